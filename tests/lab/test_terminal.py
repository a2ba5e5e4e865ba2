"""What somebody at a terminal can do to a run."""

from __future__ import annotations

import shlex
import signal
import subprocess

import pytest

from tests.lab.cockpits import Cockpits
from tests.lab.terminals import Terminal, terminal
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

QUESTION = "[Enter] leave, the run continues"


def ask(made: Terminal) -> None:
    """Press Ctrl-C, and wait for the question."""
    before = made.text.count(QUESTION)
    made.type("\x03")
    until(lambda: made.text.count(QUESTION) > before, "the question")


def stay(made: Terminal) -> None:
    """Answer that the cockpit is to stay, and wait until it shows more."""
    before = len(made.text)
    made.type("c\n")
    # Before it has read the answer, another Ctrl-C would take that back, and mean to leave.
    until(lambda: "at step" in made.text[before:], "output continues")


def left(cockpits: Cockpits, why: str) -> None:
    """The run continues."""
    assert not any(cockpits.count(node, "rank_exited") for node in cockpits.lab.nodes), why
    assert len(cockpits.left_over()) >= 4, why


def test_whoever_leaves_a_run_leaves_it_alone_and_who_stays_sees_its_end(cockpits: Cockpits) -> None:
    """By Enter or another Ctrl-C after the first, or by a terminal that closes."""
    attach = ["cockpit", "attach", cockpits.name]
    with terminal(cockpits.lab, cockpits.words("--launcher", "command", program=cockpits.steps())) as made:
        made.wait_for("at step", timeout=PATIENCE_S)
        cockpits.wait_for_start()
        ask(made)
        assert b"[s] stop the run" in made.shown
        assert b"[c] stay" in made.shown
        stay(made)
        ask(made)
        made.type("\n")
        assert made.end() == 130
        assert shlex.join(attach).encode() in made.shown
    left(cockpits, "ctrl-c, c, ctrl-c and enter")

    with terminal(cockpits.lab, attach) as made:
        made.wait_for("at step", timeout=PATIENCE_S)
        ask(made)
        made.type("\x03")
        assert made.end() == 130
    left(cockpits, "ctrl-c twice")

    with terminal(cockpits.lab, attach) as made:
        made.wait_for("at step", timeout=PATIENCE_S)
        made.hang_up()
        assert made.process.wait(PATIENCE_S) == 130
    left(cockpits, "a closed terminal")

    with terminal(cockpits.lab, attach) as made:
        made.wait_for("at step", timeout=PATIENCE_S)
        ask(made)
        stay(made)
        cockpits.finish()
        assert made.end() == 0
        assert b"ranks 0-3 exited 0" in made.shown


def test_a_reader_that_ends_leaves_and_ctrl_c_then_s_stops(cockpits: Cockpits) -> None:
    process = cockpits.start(
        "--launcher", "command", program=cockpits.steps(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout
    process.stdout.close()
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, said
    assert f"cockpit attach {cockpits.name}" in said
    left(cockpits, "a reader that ends")

    with terminal(cockpits.lab, ["cockpit", "attach", cockpits.name]) as made:
        made.wait_for("at step", timeout=PATIENCE_S)
        ask(made)
        stay(made)
        ask(made)
        made.type("s\n")
        assert made.end() == 1
    assert not cockpits.left_over()
    for node in cockpits.lab.nodes:
        exits = [event for event in cockpits.events(node) if event["e"] == "rank_exited"]
        assert [event["signal"] for event in exits] == [signal.SIGTERM] * 2
