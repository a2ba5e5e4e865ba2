"""What somebody at a terminal can do to a run, and what a program reads in place of a person."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.lab.cockpits import EXAMPLES, Cockpits
from tests.lab.terminals import Terminal, terminal
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

PLAIN = str(EXAMPLES / "train_plain.py")
QUESTION = "[Enter] leave, the run continues"


@pytest.fixture
def asked(cockpits: Cockpits) -> Iterator[Terminal]:
    """A terminal with a cockpit on it that has been asked to end, by Ctrl-C; its ranks wait for a file."""
    script = f'echo "r$RANK waits"; until [ -e {cockpits.lab.home()}/go-{cockpits.name} ]; do sleep 0.1; done'
    words = cockpits.words("--launcher", "command", "--grace", "5", program=["/bin/sh", "-c", script])
    with terminal(cockpits.lab, words) as made:
        made.wait_for("r3 waits", timeout=PATIENCE_S)
        made.type("\x03")
        made.wait_for(QUESTION)
        assert b"[s] stop the run" in made.shown
        assert b"[c] stay" in made.shown
        yield made


@pytest.mark.long
def test_ctrl_c_then_enter_leaves(cockpits: Cockpits, asked: Terminal) -> None:
    asked.type("\n")
    assert asked.end() == 130
    assert f"cockpit attach {cockpits.name}".encode() in asked.shown
    assert not any(cockpits.count(node, "rank_exited") for node in cockpits.lab.nodes)
    assert len(cockpits.left_over()) >= 4
    cockpits.lab.write(None, cockpits.lab.home() / f"go-{cockpits.name}", "")
    until(cockpits.ended, "the run ends by itself")
    attached = cockpits.cockpit("attach", cockpits.name)
    assert attached.returncode == 0, attached.stderr


@pytest.mark.long
def test_ctrl_c_twice_leaves(cockpits: Cockpits, asked: Terminal) -> None:
    asked.type("\x03")
    assert asked.end() == 130
    assert not any(cockpits.count(node, "rank_exited") for node in cockpits.lab.nodes)


def test_ctrl_c_then_s_stops(cockpits: Cockpits, asked: Terminal) -> None:
    asked.type("s\n")
    assert asked.end() == 1
    assert not cockpits.left_over()
    for node in cockpits.lab.nodes:
        exits = [event for event in cockpits.events(node) if event["e"] == "rank_exited"]
        assert [event["signal"] for event in exits] == [signal.SIGTERM] * 2


def test_ctrl_c_then_c_stays(cockpits: Cockpits, asked: Terminal) -> None:
    asked.type("c\n")
    cockpits.lab.write(None, cockpits.lab.home() / f"go-{cockpits.name}", "")
    assert asked.end() == 0
    assert b"ranks 0-3 exited 0" in asked.shown


@pytest.mark.long
def test_a_closed_terminal_leaves(cockpits: Cockpits) -> None:
    words = cockpits.words("--launcher", "command", program=[PLAIN, "--steps", "100000"])
    with terminal(cockpits.lab, words) as made:
        made.wait_for("step 5/100000", timeout=PATIENCE_S)
        made.hang_up()
        assert made.process.wait(PATIENCE_S) == 130
    assert len(cockpits.left_over()) >= 4


@pytest.mark.long
def test_a_reader_that_ends_leaves(cockpits: Cockpits) -> None:
    process = cockpits.start(
        "--launcher",
        "command",
        program=[PLAIN, "--steps", "100000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout
    process.stdout.close()
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, said
    assert f"cockpit attach {cockpits.name}" in said
    assert len(cockpits.left_over()) >= 4


def test_an_event_stream(cockpits: Cockpits) -> None:
    done = cockpits.run("--launcher", "command", "--json", program=[PLAIN, "--steps", "3"])
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(isinstance(event, dict) and event["event"] for event in events)
    exited = [event for event in events if event["event"] == "rank_exited"]
    assert {(event["node"], event["rank"], event["code"]) for event in exited} == {
        ("node1", 0, 0),
        ("node1", 1, 0),
        ("node2", 2, 0),
        ("node2", 3, 0),
    }
    assert len(exited) == 4
    for rank in range(4):
        log = cockpits.logs(f"node{rank // 2 + 1}")[f"rank-{rank}.log"]
        said = [event for event in events if event["event"] == "log" and event["rank"] == rank]
        assert [event["text"] for event in said] == log.decode().splitlines()
        assert all(log[e["offset"] :].startswith(e["text"].encode()) for e in said)
