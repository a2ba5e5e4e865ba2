"""What SLURM is asked: seldom, in one place, and whatever its answers look like."""

from __future__ import annotations

from pathlib import Path

import pytest

from cockpit import slurm
from cockpit.errors import CockpitError


class Tool:
    """A ``scontrol`` that records what it was asked, and says what a test wants."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "scontrol"
        self._log = folder / "asked"

    def says(self, text: str) -> None:
        script = f"#!/bin/sh\necho \"$*\" $(/bin/cat) >>{self._log}\n/bin/cat <<'END'\n{text}\nEND\n"
        self._path.write_text(script)
        self._path.chmod(0o755)

    def rename(self, name: str) -> None:
        self._path = self._path.rename(self._path.with_name(name))

    def fails(self, text: str) -> None:
        self._path.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit 1\n")

    @property
    def asked(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    monkeypatch.setenv("PATH", str(tmp_path))
    return Tool(tmp_path)


def test_the_same_question_is_asked_once(tool: Tool) -> None:
    tool.says("JobId=7 x")
    assert slurm.show_job("7").out == slurm.show_job("7").out == "JobId=7 x"
    assert tool.asked == ["--oneliner --details show job 7 show step 7 show config"]


def test_what_may_have_changed_is_asked_again(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "PERIOD_S", 1e6)
    monkeypatch.setattr("cockpit.slurm.time.sleep", lambda seconds: None)
    tool.says("JobId=7 JobState=RUNNING")
    slurm.show_job("7")
    tool.says("JobId=7 JobState=CANCELLED")
    assert slurm.show_job("7").out == "JobId=7 JobState=RUNNING"
    assert slurm.show_job("7", fresh=True).out == "JobId=7 JobState=CANCELLED"


def test_another_question_waits_for_its_turn(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("cockpit.slurm.time.sleep", slept.append)
    tool.says("")
    for job in ("7", "8"):
        slurm.show_job(job)
    assert slept[0] == 0
    assert 0 < slept[1] <= slurm.PERIOD_S
    assert len(tool.asked) == 2


@pytest.mark.parametrize(
    "text",
    [
        "scontrol: show job 7\nJobId=7 a=b\n\nscontrol: show config\nKillWait = 12 sec\nscontrol: ",
        "scontrol: JobId=7 a=b\n\nscontrol: Configuration data\nKillWait                = 12 sec",
    ],
    ids=["with readline", "without"],
)
def test_a_job_and_the_configuration_come_in_one_call(tool: Tool, text: str) -> None:
    tool.says(text)
    assert slurm.show_job("7").out == "JobId=7 a=b"
    assert slurm.setting("KillWait", 30) == 12
    assert len(tool.asked) == 1


def test_which_element_of_an_array_a_job_is(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last element has the array's own number, and ``show job`` of that prints all of them."""
    monkeypatch.setattr("cockpit.slurm.time.sleep", lambda seconds: None)
    tool.says(
        "scontrol: JobId=7 ArrayJobId=7 ArrayTaskId=4 JobName=x\n"
        "JobId=9 ArrayJobId=7 ArrayTaskId=3 JobName=x\nJobId=10 JobName=ArrayJobId=1"
    )
    assert [slurm.element(job) for job in ("7", "9", "10")] == [("7", "4"), ("7", "3"), None]
    assert len(tool.asked) == 1
    assert slurm.element("11") is None
    tool.fails("slurm_load_jobs error: Invalid job id specified")
    assert slurm.element("12") is None
    tool.fails("Unable to contact slurm controller")
    with pytest.raises(CockpitError, match="job 13: scontrol failed: Unable to contact"):
        slurm.element("13")


@pytest.mark.parametrize(
    ("job", "array", "index", "meant"),
    [
        ("7", "", "", "7"),
        ("9", "7", "3", "9"),
        ("7", "7", "4", "7_4"),
        ("8", "7", "4", "8"),
        ("", "", "", ""),
    ],
)
def test_the_job_of_this_shell(
    monkeypatch: pytest.MonkeyPatch, job: str, array: str, index: str, meant: str
) -> None:
    """Also in an allocation made from within an element of an array."""
    for name, value in (("JOB", job), ("ARRAY_JOB", array), ("ARRAY_TASK", index)):
        monkeypatch.setenv(f"SLURM_{name}_ID", value)
    assert slurm.own_job() == meant


def test_whether_a_job_is_over(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cockpit.slurm.time.sleep", lambda seconds: None)
    tool.says("COMPLETING")
    tool.rename("squeue")
    assert slurm.running("7_4") == "COMPLETING"
    assert tool.asked == ["--noheader --format=%T --jobs=7_4"]
    tool.says("")
    assert slurm.running("7_4") == ""
    tool.fails("slurm_load_jobs error: Invalid job id specified")
    assert slurm.running("7_4") == ""
    tool.fails("Unable to contact slurm controller")
    with pytest.raises(CockpitError, match="job 7_4: squeue failed: Unable to contact"):
        slurm.running("7_4")


@pytest.mark.parametrize("text", ["", "KillWait = 99999999999 sec", "NoKillWait = 12"])
def test_what_is_not_said_is_as_usual(tool: Tool, text: str) -> None:
    tool.says(text)
    assert slurm.setting("KillWait", 30) == 30
    assert tool.asked == ["show config"]


def test_no_slurm_here(tool: Tool) -> None:
    assert slurm.setting("KillWait", 30) == 30
    with pytest.raises(CockpitError, match=r"^no squeue on PATH: SLURM is not here"):
        slurm.ask(["squeue"])


@pytest.mark.parametrize(
    ("says", "seconds"),
    [
        ("14:05", 845),
        ("0:30", 30),
        ("1:00:00", 3600),
        ("2-03:00:01", 183_601),
        ("UNLIMITED", None),
        ("NOT_SET", None),
        ("INVALID", None),
        ("", None),
        ("\x1b[2J12:00", None),
    ],
)
def test_the_time_left_to_a_job(says: str, seconds: float | None, tool: Tool) -> None:
    tool.says(says)
    tool.rename("squeue")
    assert slurm.time_left("12") == seconds
    assert tool.asked == ["--noheader --format=%L --jobs=12"]


def test_the_jobs_of_a_user_those_that_run_first(tool: Tool) -> None:
    tool.says("")
    tool.rename("squeue")
    tool.says(
        "4712_[5-8]|PENDING|0:00||16|Priority|2026-11-21T06:10:00|wide | pipe\n"
        "nonsense\n"
        "4711_4|RUNNING|1-02:03:04|gpu[09-12]|4|None|N/A|llama|1b\n",
    )
    running, waits = slurm.jobs_of("ada")
    assert (running.job, running.nodes, running.name, running.running) == (
        *("4711_4", "gpu[09-12]", "llama|1b", True),
    )
    assert (waits.job, waits.why, waits.name, waits.running) == (
        *("4712_[5-8]", "Priority", "wide | pipe", False),
    )


def test_a_failing_squeue_is_said(tool: Tool) -> None:
    tool.says("")
    tool.rename("squeue")
    tool.fails("slurm_load_jobs error: Unable to contact")
    with pytest.raises(CockpitError, match="Unable to contact"):
        slurm.jobs_of("ada")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
            "Unable to contact slurm controller (connect failure)",
        ),
        (
            "squeue: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\n"
            "squeue: fatal: Could not establish a configuration source\n\n",
            "Could not establish a configuration source",
        ),
        ("", "status 1"),
        ("x" * 1000, "x" * 300),
    ],
)
def test_why_the_queue_is_not_known_is_one_sentence_and_what_to_type(
    tool: Tool, said: str, told: str
) -> None:
    tool.says("")
    tool.rename("squeue")
    tool.fails(said)
    with pytest.raises(CockpitError) as found:
        slurm.jobs_of("ada")
    assert str(found.value) == f"squeue failed: {told}; try: scontrol ping"
