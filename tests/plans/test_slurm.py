"""The nodes of a SLURM job, from what scontrol prints."""

from __future__ import annotations

import contextlib
import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.errors import CockpitError
from cockpit.plans.nodes import slurm

# As SLURM 22.05.8 prints it.
TEXT = (
    "JobId={job} {more}JobName={name} UserId=ckplab({uid}) GroupId=ckplab(58000) MCS_label=N/A "
    "Priority=4294901758 Nice=0 Account=(null) QOS=(null) JobState={state} Reason={reason} Dependency=(null) "
    "Requeue=1 Restarts=0 BatchFlag=0 Reboot=0 ExitCode=0:0 DerivedExitCode=0:0 RunTime=00:00:00 "
    "TimeLimit=UNLIMITED TimeMin=N/A SubmitTime=2026-11-22T14:21:06 AllocNode:Sid=login:11537 "
    "ReqNodeList=(null) ExcNodeList=(null) NodeList={nodes} BatchHost=node1 NumNodes=2 NumCPUs=2 NumTasks=2 "
    "CPUs/Task=1 ReqB:S:C:T=0:0:*:* TRES=cpu=2,node=2,billing=2 Socks/Node=* NtasksPerN:B:S:C={tasks}:0:*:* "
    "CoreSpec=* JOB_GRES=(null)   {parts} MinCPUsNode=1 MinMemoryNode=0 Comment={comment} Power= \n"
)
PLAIN = "  Nodes=node[1-2] CPU_IDs=0 Mem=0 GRES="


def shown(**fields: object) -> str:
    known = {
        "job": 2,
        "more": "",
        "name": "test",
        "uid": os.getuid(),
        "state": "RUNNING",
        "reason": "None",
        "nodes": "node[1-2]",
        "tasks": 0,
        "parts": PLAIN,
        "comment": "x",
    }
    return TEXT.format(**{**known, **fields})


def slots(text: str) -> dict[str, int]:
    return {host.name: len(host.slots) for host in slurm.parse(text, "2", os.getuid())}


def test_names_and_nothing_else_if_the_job_says_nothing_else() -> None:
    assert slots(shown()) == {"node1": 0, "node2": 0}


def test_tasks_a_node_that_were_asked_for() -> None:
    assert slots(shown(tasks=4)) == {"node1": 4, "node2": 4}


def test_gpus_differ_from_node_to_node() -> None:
    parts = (
        "  Nodes=gpu[01-02,05] CPU_IDs=0-7 Mem=0 GRES=gpu:a100:8(IDX:0-7),nvme:1(IDX:0) "
        "  Nodes=big1 CPU_IDs=0 Mem=0 GRES=gpu:2(IDX:1,3)"
    )
    found = slots(shown(nodes="gpu[01-02,05],big1", parts=parts))
    assert found == {"gpu01": 8, "gpu02": 8, "gpu05": 8, "big1": 2}
    assert slots(shown(nodes="gpu[01-02,05],big1", parts=parts, tasks=1)) == found


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"state": "PENDING", "reason": "Resources", "nodes": "(null)"}, "PENDING (Resources)"),
        ({"state": "TIMEOUT"}, "has ended: TIMEOUT"),
        ({"uid": os.getuid() + 1}, "its owner alone"),
        ({"nodes": "-oProxyCommand=x"}, "oProxyCommand"),
        ({"nodes": "node[1-999999999]"}, "999999999"),
        ({"nodes": ""}, "invalid node list"),
    ],
)
def test_a_job_that_cannot_be_used_says_why(fields: dict[str, object], says: str) -> None:
    with pytest.raises(CockpitError) as caught:
        slots(shown(**fields))
    assert says in str(caught.value)


def test_a_heterogeneous_job_is_refused_in_words() -> None:
    parts = [shown(job=2 + n, more=f"HetJobId=2 HetJobOffset={n} ") for n in (0, 1)]
    with pytest.raises(CockpitError, match="heterogeneous jobs are not supported"):
        slots("".join(parts))


def test_an_array_wants_an_element() -> None:
    with pytest.raises(CockpitError, match=r"array of 2 jobs.*2_0"):
        slots(shown() + shown(job=3))


def test_fields_in_a_comment_of_its_owner_mean_nothing() -> None:
    text = shown(comment="UserId=x(1) NodeList=evil JobState=DONE NtasksPerN:B:S:C=9:0")
    assert slots(text) == {"node1": 0, "node2": 0}


@pytest.mark.parametrize("job", ["x", "1;2", "1.0", "12345678901", "-f", "１"])
def test_words_that_are_no_job_are_refused_before_anything_is_asked(
    job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("asked"))
    with pytest.raises(CockpitError, match="no SLURM job"):
        slurm.read(job)


def test_without_a_job_there_are_no_nodes() -> None:
    with pytest.raises(CockpitError, match="in no SLURM job"):
        slurm.read("")


def test_an_element_of_an_array_has_a_number_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "_asked", lambda job: shown(job=9, more="ArrayJobId=7 ArrayTaskId=1 "))
    assert slurm.number("7_1") == "9"
    monkeypatch.setattr(slurm, "_asked", lambda job: "nonsense")
    assert slurm.number("7") == "7"
    with pytest.raises(CockpitError, match="its number"):
        slurm.number("7_1")


def test_no_slurm_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(CockpitError, match="SLURM is not here"):
        slurm.read("7")


@given(st.text(max_size=200))
def test_any_text_is_nodes_or_an_error(text: str) -> None:
    with contextlib.suppress(CockpitError):
        slurm.parse(text, "2", 0)


@given(st.text(alphabet="node[]-,0123456789()gpu:= ", max_size=60))
def test_any_lists_in_it_too(text: str) -> None:
    with contextlib.suppress(CockpitError):
        slurm.parse(shown(nodes=text.replace(" ", ""), parts=f"  Nodes={text}"), "2", os.getuid())


def prints(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Every command of SLURM prints this."""
    done = subprocess.CompletedProcess(["squeue"], 0, text.encode(), b"")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)


@pytest.mark.parametrize(
    ("word", "parts"),
    [("12", ("12", "")), ("12.0", ("12", "0")), ("12_4.3", ("12_4", "3")), ("12.batch", ("12", "batch"))],
)
def test_a_step_of_a_job(word: str, parts: tuple[str, str]) -> None:
    assert slurm.split(word) == parts


@pytest.mark.parametrize("word", ["12.", "12.x", "12.3.4", "12.-1", "12.3;rm"])
def test_what_is_no_step(word: str) -> None:
    with pytest.raises(CockpitError, match="not a SLURM step"):
        slurm.split(word)


def test_the_steps_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    step = "StepId={} UserId=0 State=RUNNING Nodes=2 Name={} Network=(null) SrunHost=login:1"
    lines = [step.format(*each) for each in (("12.0", "train me"), ("12.batch", "batch"), ("13.0", "x"))]
    prints(monkeypatch, "\n".join([*lines, "StepId=nonsense", "JobId=12"]))
    assert slurm.steps("12") == {"0": "train me", "batch": "batch"}
