"""Why SLURM ended a run: which of its words mean what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit import slurm
from cockpit.transport import srun_end

# As SLURM 22.05.8 writes them.
ABORTED = "srun: Job step aborted: Waiting up to 7 seconds for job step to finish.\n"
CANCELLED = (
    ABORTED + "slurmstepd-node1: error: *** STEP 12.2 ON node1 CANCELLED AT 2026-11-22T17:00:45{due} ***\n"
)
NODE = "srun: error: Node failure on node2\n"
ANSWER = "JobId=12 JobName=x UserId=ckplab(58000) JobState={state} Reason=None ExitCode={code} "
ANSWER += "Restarts={restarts} TimeLimit=01:00:00 Comment=JobState=RUNNING TimeLimit=5\n"


def why(due: str = "", state: str = "", code: str = "0:0", restarts: int = 0, before: str = "") -> str:
    words = srun_end.told(before + CANCELLED.format(due=due))
    answer = ANSWER.format(state=state, code=code, restarts=restarts) if state else ""
    return srun_end.sentence("12", words, srun_end.fields(answer))


@pytest.mark.parametrize(
    ("due", "state", "sentence"),
    [
        (" DUE TO TIME LIMIT", "", "SLURM ended job 12 at its time limit"),
        (" DUE TO TIME LIMIT", "COMPLETING", "SLURM ended job 12 at its time limit (01:00:00)"),
        (" DUE TO PREEMPTION", "PREEMPTED", "SLURM preempted job 12 for another one"),
        (" DUE TO JOB REQUEUE", "PENDING", "SLURM ended job 12 to queue it again (requeue)"),
        (
            " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS",
            "",
            "SLURM ended job 12: one of its nodes failed",
        ),
        ("", "CANCELLED", "SLURM job 12 was cancelled (scancel)"),
        (" DUE TO SIGNAL Terminated", "CANCELLED", "SLURM job 12 was cancelled (scancel)"),
        ("", "COMPLETED", "SLURM job 12 is over: its script, or the salloc that made it, has ended"),
        ("", "RUNNING", "step 12.2, which held the run, was cancelled; SLURM job 12 continues"),
        ("", "", "SLURM cancelled step 12.2, which held the run"),
    ],
)
def test_every_end_has_its_sentence(due: str, state: str, sentence: str) -> None:
    assert why(due, state) == sentence


def test_more_is_said_where_more_is_known() -> None:
    node = " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"
    assert why(node, before=NODE) == "SLURM ended job 12: node2 failed"
    assert why(" DUE TO PREEMPTION", "PENDING", restarts=1).endswith("for another one, and queued it again")
    assert why("", "COMPLETING", code="0:15") == "SLURM job 12 was cancelled (scancel)"


def test_the_controller_knows_what_srun_did_not_say() -> None:
    assert (
        srun_end.sentence("12", None, {"JobState": "NODE_FAIL"})
        == "SLURM ended job 12: one of its nodes failed"
    )
    assert srun_end.sentence("12", None, {"JobState": "RUNNING"}) == ""
    assert srun_end.sentence("12", None, {}) == ""


def test_a_srun_that_was_killed_says_nothing() -> None:
    job = {"job": "12"}
    assert "was killed (pid 5 on login)" in srun_end.ending(job, "", ask=False, gone="pid 5 on login")[0]
    one_by_one = "srun: error: node1: task 0: Killed\nsrun: error: node2: task 1: Killed\n"
    assert srun_end.ending(job, one_by_one, ask=False, gone="pid 5 on login")[0] == ""
    assert srun_end.ending(job, "", ask=False)[0] == ""


def test_without_slurm_what_srun_has_said_is_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/none")
    words = CANCELLED.format(due=" DUE TO TIME LIMIT")
    assert srun_end.ending({"job": "12"}, words, ask=True) == ("SLURM ended job 12 at its time limit", True)
    assert srun_end.ending({"job": "12"}, "", ask=True) == ("", False)


@given(st.text())
def test_any_words_are_read(said: str) -> None:
    srun_end.told(said)
    srun_end.fields(said)
    srun_end.told(f"*** STEP {said} ON node1 CANCELLED AT {said} DUE TO {said} ***")


@pytest.mark.parametrize(
    ("fields", "why", "final"),
    [
        ("JobState=RUNNING PreemptTime=2026-11-22T17:00:40", "SLURM preempted job 12 for another one", True),
        (
            "JobState=RUNNING PreemptTime=None",
            "step 12.2, which held the run, was cancelled; SLURM job 12 continues",
            True,
        ),
        ("JobState=COMPLETING PreemptTime=None", "SLURM cancelled step 12.2, which held the run", False),
        ("JobState=PREEMPTED PreemptTime=None", "SLURM preempted job 12 for another one", True),
        ("JobState=PENDING Restarts=1", "SLURM ended job 12 to queue it again (requeue)", True),
        ("JobState=CANCELLED", "SLURM job 12 was cancelled (scancel)", True),
    ],
)
def test_it_is_asked_again_until_its_answer_is_final(
    monkeypatch: pytest.MonkeyPatch, fields: str, why: str, final: bool
) -> None:
    answer = slurm.Answer(0, f"JobId=12 JobName=x {fields}", "")
    monkeypatch.setattr(slurm, "show_job", lambda job, *, fresh=False: answer)
    assert srun_end.ending({"job": "12"}, CANCELLED.format(due=""), ask=True) == (why, final)


def test_what_slurm_has_forgotten_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = slurm.Answer(1, "", "slurm_load_jobs error: Invalid job id specified")
    monkeypatch.setattr(slurm, "show_job", lambda job, *, fresh=False: gone)
    words = CANCELLED.format(due="")
    why = "SLURM cancelled step 12.2, which held the run"
    assert srun_end.ending({"job": "12"}, words, ask=True) == (why, True)
    assert srun_end.ending({"job": "12"}, words, ask=False) == (why, False)
    silent = slurm.Answer(1, "", "slurm_load_jobs error: Unable to contact slurm controller")
    monkeypatch.setattr(slurm, "show_job", lambda job, *, fresh=False: silent)
    assert srun_end.ending({"job": "12"}, words, ask=True) == (why, False)
