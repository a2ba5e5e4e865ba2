"""Why a node is unfit for a job: rules over the job and the node's answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cockpit.base.answers import FactsAnswer
from cockpit.core.finding import findings
from cockpit.engine.launch.prepare import REPORT_ROOM, UNFIT, _refusal
from cockpit.errors import Exit
from cockpit.plans.launch import Job
from cockpit.plans.nodes.hostfile import parse
from cockpit.plans.profilers import NsysOptions

JOB = Job("otter", tuple(parse("a slots=1")), ("train.py",), "/work")
FIT = FactsAnswer(
    "/opt/my python", "3.11.7", (0,), nsys="/nsys", deepspeed="0.19", torch="2.9", free_bytes=REPORT_ROOM
)


def lines(job: Job, **changes: Any) -> list[str]:
    """What is wrong with a node whose answer differs in this, as a person reads it."""
    facts = replace(FIT, **changes)
    return [str(_refusal(found, "a")) for found in findings(UNFIT, {"job": job, "facts": facts})]


@pytest.mark.parametrize("launcher", ["deepspeed", "torchrun", "command"])
def test_a_node_that_has_everything_is_fit(launcher: str) -> None:
    assert lines(replace(JOB, launcher=launcher, nsys=NsysOptions())) == []


@pytest.mark.parametrize(("launcher", "module"), [("deepspeed", "deepspeed"), ("torchrun", "torch")])
def test_the_launcher_must_be_there(launcher: str, module: str) -> None:
    python = "'/opt/my python'"
    expected = f"a: no {module} in {python}; try there: {python} -m pip install {module}, or another --python"
    assert lines(replace(JOB, launcher=launcher), deepspeed=None, torch=None) == [expected]


def test_a_command_needs_neither() -> None:
    assert lines(replace(JOB, launcher="command"), deepspeed=None, torch=None) == []


def test_the_script_must_be_there() -> None:
    expected = "a: no train.py in /work; run from a folder that every node has, or give --cwd DIR"
    assert lines(JOB, script=False) == [expected]


def test_a_profiler_needs_to_be_there_and_to_have_room() -> None:
    changes = {"nsys": None, "free_bytes": 12_000_000}
    assert lines(JOB, **changes) == []
    assert lines(replace(JOB, nsys=NsysOptions()), **changes) == [
        "a: nsys is not on PATH, in CUDA's or in Nsight's folders; give its path: --nsys PATH",
        "a: 12 MB free for run folders, nsys needs 500; free some, or give another place: --node-dir DIR",
    ]


def test_a_refusal_ends_with_the_code_of_an_unfit_node() -> None:
    (found,) = findings(UNFIT, {"job": JOB, "facts": replace(FIT, script=False)})
    assert (found.id, found.severity, found.certainty) == ("no_script", "error", "sure")
    assert _refusal(found, "a").code is Exit.NODE_UNFIT
