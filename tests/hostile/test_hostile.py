"""A short hostile campaign (``make hostile`` is the whole one), and that it fails where a wall is missing."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest

from cockpit.base.gate import Malformed, read
from cockpit.base.verbs import VERBS as VERBS_OF_NODES
from cockpit.engine.links.link import REPLIES
from tests.hostile import values
from tests.hostile.evidence import evidence
from tests.hostile.frames import frames, lines
from tests.hostile.profiles import profiles
from tests.hostile.sabotage import BOUNDS
from tests.hostile.verbs import COLUMNS, VERBS

REPO = Path(__file__).parents[2]
EVERY = 3
PAIRS = list(product(VERBS, COLUMNS))[::EVERY]


def campaign(*words: str) -> subprocess.CompletedProcess[str]:
    """A campaign in a process of its own: its cases are copies of it."""
    return subprocess.run(
        [sys.executable, "-m", "tests.hostile", *words], cwd=REPO, capture_output=True, text=True, timeout=900
    )


@pytest.mark.parametrize("verb", sorted(VERBS_OF_NODES))
def test_what_the_gate_lets_through_of_good_answers_is_within_bounds(verb: str) -> None:
    """The check that is not the gate's knows each kind of field that nodes send."""
    reply, rng = REPLIES[VERBS_OF_NODES[verb]], random.Random(verb)
    for definition in {reply.answer, reply.item}:
        for _ in range(20):
            made = json.loads(json.dumps(values.good_object(definition, rng)))
            with suppress(Malformed):  # what fields must be together is not told by each
                assert values.wrong(definition, read(definition, made)) == ""


@pytest.mark.slow
def test_frames_and_lines() -> None:
    done = campaign("--seed", "1", "--cases", "0", "--screens", "0", "--frames", "2000", "--lines", "100")
    assert done.returncode == 0, done.stdout
    assert "seed 1: 0 faults" in done.stdout
    # By themselves: of files, which cost more, a campaign tries more with each line.
    assert lines(2000, 1).faults == []


@pytest.mark.slow
def test_evidence() -> None:
    outcome = evidence(400, 1)
    assert outcome.faults == []
    assert outcome.refused > 100
    assert outcome.passed > 30


@pytest.mark.slow
def test_profiles() -> None:
    outcome = profiles(60, 1)
    assert outcome.faults == []
    assert outcome.refused > 50
    assert outcome.passed > 30


@pytest.mark.slow
def test_without_a_bound_stacks_show_what_comes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cockpit.core.profile.folded.one_line", lambda text, limit: text)
    assert "says" in profiles(20, 1).faults[0]


def test_without_a_sanitiser_evidence_comes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cockpit.engine.stacks.evidence.clean", lambda text: text)
    assert "came through" in evidence(100, 1).faults[0]


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_whole_verbs() -> None:
    """A third of them: every verb with some mutations, every mutation with some verbs."""
    quick = ("--seed", "1", "--cases", "1", "--frames", "0", "--lines", "0", "--screens", "0")
    done = campaign(*quick, "--every", str(EVERY))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(PAIRS)} whole verbs" in done.stdout
    assert {verb for verb, _ in PAIRS} == set(VERBS)
    assert {mutation for _, mutation in PAIRS} == set(COLUMNS)


@pytest.mark.few(2)
@pytest.mark.parametrize("wall", ["most", "finite", "text", "entries", "own ranks"])
def test_without_a_bound_frames_come_through(wall: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, instead = BOUNDS[wall]
    monkeypatch.setattr(owner, attribute, instead)
    tried = (some(size, seed) for seed in range(1, 16) for some, size in ((lines, 50), (frames, 100)))
    assert any("came through" in fault for outcome in tried for fault in outcome.faults)


@pytest.mark.slow
@pytest.mark.campaign
def test_a_campaign_without_a_bound_says_what_came_through() -> None:
    # One frame in some hundred is as large as that: so many that one is there, whatever a seed draws.
    some = ("--seed", "3", "--cases", "0", "--screens", "0", "--frames", "6000", "--lines", "50")
    done = campaign(*some, "--without", "most")
    assert done.returncode == 1
    assert "came through" in done.stdout


@pytest.mark.slow
def test_without_the_sanitiser_whole_verbs_fail() -> None:
    quick = ("--seed", "1", "--cases", "2", "--frames", "0", "--lines", "0", "--screens", "0")
    done = campaign(*quick, "--verbs", "attach", "--mutations", "text", "--without", "sanitiser")
    assert done.returncode == 1, done.stdout
    assert "prints" in done.stdout
