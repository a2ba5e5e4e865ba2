"""Phases that marks make, in a real torch, against what programs measure themselves.

``COCKPIT_TORCH`` is a Python that has another torch than this one, or also transformers and lightning, for
trials by hand.
"""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from cockpit.base.progress import ring
from cockpit.base.progress.phases import NAMES, Phases, Reader
from tests.needs import lacking, require_module
from tests.probe.chosen import chosen
from tests.probe.loops import ALL_COMPILED, BROKEN, COMPILED, END, FRAMES, LOOPS, PLAIN, PRELUDE, Loop

pytestmark = pytest.mark.slow

MOST_OFF = 0.05
"""Of a step; half of all steps may be further off, which on a busy machine is between two of their clocks."""

PROGRAMS = {
    **LOOPS,
    **{f"{name} that fails": Loop(f"{text}\n{PLAIN}") for name, text in BROKEN.items()},
    "frames": Loop(FRAMES),
    "a loader and backward compiled": Loop(COMPILED),
    "all compiled": Loop(ALL_COMPILED),
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Those that are looked at, in one folder."""
    executable = os.environ.get("COCKPIT_TORCH", sys.executable)
    if executable == sys.executable:
        require_module("torch")
    folder = tmp_path_factory.mktemp("phased")
    for name in ("probe", "rings"):
        (folder / name).mkdir(mode=0o700)
    programs = {
        name: (PRELUDE + one.text + END, one.ranks, one.needs)
        for name, one in chosen(PROGRAMS, request, "frames").items()
    }
    (folder / "programs.json").write_text(json.dumps(programs))
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run(
        [executable, "-m", "tests.probe.phased", str(folder)],
        cwd=Path(__file__).parents[2],
        env=env,
        check=True,
        timeout=450,
    )
    return folder


def outcome(folder: Path, probed: str, name: str) -> list[str]:
    """All that can be seen of a program from outside: its status, output and losses."""
    work = folder / probed / name
    if (work / "lacks").exists():
        module = (work / "lacks").read_text()
        lacking(f"the Python module {module} is not installed")
    seen = [(work / each).read_text() for each in ("status", "out", "err")]
    # Times, as torch and deepspeed begin a line; a warning of Python 3.12.
    seen = [
        re.sub(r"(?m)^\[?[WEI]\d{4} [\d:.]+ (?:\d+ )?|^\[[-\d :,]+\]|\(pid=\d+\)", "", one) for one in seen
    ]
    return [*seen, (work / "losses").read_text() if (work / "losses").exists() else ""]


def told(folder: Path, name: str) -> ring.Ring:
    """What the probe of a program noted: it has nothing to complain about."""
    work = folder / "with" / name
    said = json.loads((work / "told").read_text())
    assert (said["steps"], said["phases"]) == ("", "")
    found = ring.read((work / "ring").read_bytes())
    assert found.broken == ""
    return found


def measured(folder: Path, name: str) -> list[tuple[float, Phases, Phases]]:
    """By step but the first, which has no beginning: how long it took, and its phases, ours and its own."""
    found = told(folder, name)
    own = json.loads((folder / "with" / name / "own").read_text())
    assert [step.step for step in found.steps] == list(range(1, len(own) + 1))
    spans = [(one.mono_ns, next_.mono_ns) for one, next_ in zip(found.steps, found.steps[1:], strict=False)]
    ours = Reader().read(spans, found.marks, found.marks_since_ns)
    theirs = [Phases(*(int(1e9 * step[phase]) for phase in NAMES)) for step in own[1:]]
    return [
        (end - begin, *both) for (begin, end), both in zip(spans, zip(ours, theirs, strict=True), strict=True)
    ]


def off(steps: list[tuple[float, Phases, Phases]], phase: str) -> list[float]:
    """By how much of a step a phase is off, in each."""
    return [abs(getattr(ours, phase) - getattr(own, phase)) / took for took, ours, own in steps]


@pytest.mark.few(10, "campaign")
@pytest.mark.parametrize("name", LOOPS)
def test_phases_are_those_that_the_program_measures(ran: Path, name: str) -> None:
    without, probed = (outcome(ran, each, name) for each in ("without", "with"))
    assert probed[0] == "0", probed[2]
    steps = measured(ran, name)
    assert len(steps) >= 10
    for phase in NAMES:
        known = {getattr(ours, phase) is not None for _, ours, _ in steps}
        assert known == {phase not in LOOPS[name].lacks}, phase
        if known == {True}:
            assert statistics.median(off(steps, phase)) <= MOST_OFF, phase
    assert probed == without


@pytest.mark.parametrize("name", [f"{name} that fails" for name in BROKEN])
def test_what_fails_says_so_as_without_us(ran: Path, name: str) -> None:
    probed = outcome(ran, "with", name)
    assert os.WEXITSTATUS(int(probed[0])) == 1
    assert "Traceback" in probed[2]
    assert not re.search(r"\b(marks|hooks)\.py\b", probed[2])
    assert probed == outcome(ran, "without", name)
    told(ran, name)


def test_stacks_have_no_frame_of_ours(ran: Path) -> None:
    probed = outcome(ran, "with", "frames")
    assert {"__getitem__ train.py", "backward train.py", "loss_of train.py"} <= set(probed[1].splitlines())
    assert probed == outcome(ran, "without", "frames")
    assert {mark.kind for mark in told(ran, "frames").marks} == set(range(1, 7))  # no workers


@pytest.mark.parametrize("name", ["compiled", "a loader and backward compiled", "all compiled"])
def test_a_compiler_looks_at_as_many_frames_and_breaks_as_many_graphs(ran: Path, name: str) -> None:
    probed = outcome(ran, "with", name)
    assert probed[0] == "0", probed[2]
    assert json.loads(probed[1])["stats"]["unique_graphs"] > 0
    assert probed == outcome(ran, "without", name)
    told(ran, name)


def test_none_hung(ran: Path) -> None:
    statuses = {path.parent.name: int(path.read_text()) for path in ran.glob("*/*/status")}
    assert signal.SIGALRM not in {os.WTERMSIG(status) for status in statuses.values()}
