"""Why a node is unfit for a job: rules over the job and the node's answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cockpit.base.answers import FactsAnswer
from cockpit.core.finding import findings
from cockpit.errors import Exit
from cockpit.plans.launch import LaunchJob, NodeFacts
from cockpit.plans.nodes.hostfile import parse
from cockpit.plans.profilers.nsys import Nsys
from cockpit.plans.unfit import UNFIT, refusal

JOB = LaunchJob("otter", tuple(parse("a slots=1")), ("train.py",), "/work")
FACTS = NodeFacts(python="/opt/my python", deepspeed="0.19", torch="2.9", accelerate="1.15", profiler="/nsys")
ANSWER = FactsAnswer("/opt/my python", "3.11.7", (0,), free_bytes=Nsys().room(8))


def lines(job: LaunchJob, facts: NodeFacts = FACTS, **answer: Any) -> list[str]:
    """What is wrong with a node that has these facts and answered this, the first thing first."""
    inputs = {"job": job, "facts": facts, "answer": replace(ANSWER, **answer)}
    return [found.what for found in findings(UNFIT, inputs)]


@pytest.mark.parametrize("launcher", ["deepspeed", "torchrun", "accelerate", "command"])
def test_a_node_that_has_everything_is_fit(launcher: str) -> None:
    job = replace(JOB, launcher=launcher, profiler=Nsys())
    assert lines(job) == []
    assert refusal("a", job, FACTS, ANSWER) is None


@pytest.mark.parametrize(
    ("launcher", "module"),
    [("deepspeed", "deepspeed"), ("torchrun", "torch"), ("accelerate", "accelerate")],
)
def test_the_launcher_must_be_there(launcher: str, module: str) -> None:
    python = "'/opt/my python'"
    expected = f"a: no {module} in {python}; try there: {python} -m pip install {module}, or another --python"
    lacking = replace(FACTS, deepspeed=None, torch=None, accelerate=None)
    assert str(refusal("a", replace(JOB, launcher=launcher), lacking)) == expected


def test_a_command_needs_neither() -> None:
    assert lines(replace(JOB, launcher="command"), replace(FACTS, deepspeed=None, torch=None)) == []


def test_the_script_must_be_there() -> None:
    expected = "a: no train.py in /work; run from a folder that every node has, or give --cwd DIR"
    assert str(refusal("a", JOB, FACTS, replace(ANSWER, script=False))) == expected
    assert refusal("a", JOB, FACTS) is None, "a plan asks no node for its script"


def test_a_profiler_needs_to_be_there_and_to_have_room() -> None:
    lacking = replace(FACTS, profiler=None)
    assert lines(JOB, lacking, free_bytes=12_000_000) == []
    profiled = replace(JOB, profiler=Nsys())
    assert lines(profiled, lacking, free_bytes=12_000_000) == [
        "nsys is not on PATH, in CUDA's or in Nsight's folders",
        "12 MB free for run folders, nsys needs 500",
    ]
    refused = refusal("a", profiled, FACTS, replace(ANSWER, free_bytes=12_000_000))
    assert "; free some, or give another place: --node-dir DIR" in str(refused)
    assert "; give its path: --nsys PATH" in str(refusal("a", profiled, lacking))


def test_run_folders_must_be_possible() -> None:
    why = "programs cannot be run from /tmp/cockpit-0 (mounted noexec)"
    refused = refusal("a", JOB, FACTS, replace(ANSWER, folder=why))
    assert str(refused) == f"a: {why}; give another place: --node-dir DIR"
    assert lines(JOB, folder="\x1b[31m evil\n" + "x" * 900)[0].isprintable()


def test_a_refusal_ends_with_the_code_of_an_unfit_node() -> None:
    refused = refusal("a", JOB, FACTS, replace(ANSWER, script=False))
    assert refused is not None
    assert refused.code is Exit.NODE_UNFIT
