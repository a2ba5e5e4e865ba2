"""When a person is called, what they are told, and what of it reaches their terminal."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from cockpit.core.calls.alert import BELL, alert
from cockpit.core.calls.calls import CAUSE_S, STALL_EVERY_S, Call, Calls
from cockpit.core.finding import Finding
from cockpit.core.run.model import RunModel
from tests.happened import happened

CAUSE = Finding("failed", "rank 1 exited 1", 2, "train.py:7 main", "ValueError: no", ("train.py:7 main",))
STALL = Finding("absent", "rank 1 did not join all_reduce", 2, "data.py:118 read_shard", certainty="sure")
WATCHER = "cockpit, pid 1 on login"


class Play:
    """A run of two ranks, and who is called about it."""

    def __init__(self, since: float = 0.0, run: str = "otter") -> None:
        self.model = RunModel()
        self.calls = Calls(run, since, WATCHER, ["correct horse"])
        self.tell("planned", "", nodes={"a": [0], "b": [1]})

    def tell(self, kind: str, node: str, at: float = 100.0, **data: Any) -> None:
        self.model.apply(happened(at, kind, node, data))

    def ends(self, rank: int, code: int | None = 0, signal: int | None = None, at: float = 100.0) -> None:
        self.tell("rank_exited", "ab"[rank], at, rank=rank, code=code, signal=signal)

    def over(self) -> None:
        for node in "ab":
            self.tell("ended", node)

    def due(self, now: float, stall: Finding | None = None, cause: Finding | None = CAUSE) -> list[Call]:
        return list(self.calls.due(now, self.model, lambda: cause, stall))


def test_a_failure_is_told_once_and_says_who_why_and_who_watches() -> None:
    play = Play()
    assert play.due(100.0) == []
    play.ends(1, 1)
    assert play.due(100.0) == []  # its last lines are on their way
    (call,) = play.due(100.0 + CAUSE_S)
    assert (call.kind, call.title, call.watched_by) == ("failure", "otter: rank 1 exited 1", WATCHER)
    assert call.lines[:3] == (
        "first to fail: rank 1 on b, exited 1 at 00:01:40.000",
        "ValueError: no",
        "at train.py:7 main",
    )
    assert call.lines[-1] == f"still watched by {WATCHER}"
    assert call.as_json()["exit"] is None
    play.ends(0, 1, at=101.0)
    assert play.due(900.0) == []


def test_a_run_that_is_over_at_once_is_one_call() -> None:
    play = Play()
    play.ends(1, 1)
    assert play.due(100.0) == []
    play.ends(0, None, 15, at=100.4)
    play.over()
    (call,) = play.due(100.5)
    assert (call.kind, call.title, call.exit) == ("end", "otter: failed: rank 1 exited 1", 1)
    assert "ValueError: no" in call.lines
    assert call.watched_by == ""
    assert play.due(200.0) == []


def test_who_failed_first_is_whom_the_cause_names() -> None:
    cause = Finding("failed", "rank 0 exited 3", 1, "train.py:7 main", "ValueError: no")
    play = Play()
    play.ends(1, 1)
    play.ends(0, 3, at=100.6)
    play.due(100.6, cause=cause)
    (call,) = play.due(100.6 + CAUSE_S, cause=cause)
    assert (call.title, call.lines[0]) == (
        "otter: rank 0 exited 3",
        "first to fail: rank 0 on a, exited 3 at 00:01:40.599",
    )
    play.over()
    play.model.judged = cause
    (end,) = play.due(110.0, cause=cause)
    assert end.lines[:2] == (call.lines[0], "ValueError: no")
    # A rank that exited 0 may be why the others fail.
    left = Finding("failed", "rank 0 exited 0 while the others continued: rank 1 exited 1", 1)
    play = Play()
    play.ends(0, 0)
    play.ends(1, 1)
    play.due(100.0, cause=left)
    (call,) = play.due(100.0 + CAUSE_S, cause=left)
    assert call.title == f"otter: {left.what}"


def test_what_happened_before_is_no_news() -> None:
    play = Play(since=500.0)
    play.ends(1, 1)
    assert play.due(501.0) == play.due(510.0) == []
    play.ends(0, 0)
    play.over()
    assert play.due(520.0) == []


def test_what_was_known_when_it_was_joined_is_no_news() -> None:
    play = Play()
    play.ends(1, 1)
    play.calls.joined(play.model)
    assert play.due(100.0) == play.due(110.0) == []
    play.ends(0, 0)
    play.over()
    (call,) = play.due(120.0)
    assert call.kind == "end"


def test_a_stall_is_told_once_and_another_one_not_too_soon() -> None:
    play = Play()
    play.tell("watch", "", state="stalled", stuck="likely", before_s=9.0)
    (call,) = play.due(100.0, STALL)
    assert call.title == "otter: stalled: rank 1 did not join all_reduce"
    assert "at data.py:118 read_shard" in call.lines
    assert "who: sure; stuck: likely, longer than ever in this run" in call.lines
    assert call.as_json()["stuck"] == "likely"
    assert play.due(9000.0, STALL) == []
    play.calls.goes_on()
    assert play.due(9010.0) == []
    (again,) = play.due(9020.0, STALL)
    assert again.kind == "stall"
    other = replace(STALL, ranks=1)
    assert play.due(9030.0, other) == []  # not yet, but if it is still so
    (later,) = play.due(9020.0 + STALL_EVERY_S, other)
    assert later.finding is not None
    assert later.finding.ranks == 1


def test_a_run_that_flickers_calls_seldom() -> None:
    play = Play()
    calls = []
    for second in range(3600):
        if second % 2:
            play.calls.goes_on()
            calls += play.due(second)
        else:
            calls += play.due(second, STALL)
    assert len(calls) == 3600 / STALL_EVERY_S


def test_leaving_says_that_nobody_watches() -> None:
    play = Play()
    call = play.calls.left(100.0, play.model)
    assert (call.kind, call.watched_by) == ("left", "")
    assert "nobody is called" in call.lines[0]


NASTY = (
    "\x1b]52;c;cm0gLXJm\x07\x1b[2J\x9b31m\x9d0;x\x9c\x1b\\ $(touch owned) `touch owned` ; touch owned\n"
    "'\"\x00\u202eabc | touch owned WANDB_API_KEY=deadbeef99 correct horse \udcff" + "x" * 100_000
)
"""What a hostile node's log may end with."""


def nasty_call(kind: str = "failure") -> Call:
    """A call full of it."""
    play = Play(run="otter" if kind == "failure" else "stall")
    nasty = Finding("failed", NASTY, 2, NASTY, NASTY, (NASTY, NASTY), NASTY)
    if kind == "stall":
        return play.due(100.0, nasty)[0]
    play.ends(1, 1)
    play.due(100.0, cause=nasty)
    return play.due(110.0, cause=nasty)[0]


@pytest.mark.parametrize("kind", ["failure", "stall"])
def test_a_nodes_text_is_harmless_bounded_and_without_secrets(kind: str) -> None:
    text = json.dumps(nasty_call(kind).as_json())
    assert text.isascii()
    assert len(text) < 20_000
    assert "deadbeef99" not in text
    assert "correct horse" not in text
    strings = [*nasty_call(kind).lines, nasty_call(kind).title]
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202e\ud800-\udfff]", "".join(strings))


TERMINALS = {
    "xterm": ({"TERM": "xterm-256color"}, rb"\x1b\]9;cockpit: (.*)\x1b\\"),
    "foot": ({"TERM": "foot"}, rb"\x1b\]777;notify;cockpit;([^;]*)\x1b\\"),
    "gnome": ({"TERM": "xterm-256color", "VTE_VERSION": "7600"}, rb"\x1b\]777;notify;cockpit;([^;]*)\x1b\\"),
    "tmux": (
        {"TERM": "tmux-256color", "TMUX": "/tmp/x,1,0"},
        rb"\x1bPtmux;\x1b\x1b\]9;cockpit: (.*)\x1b\x1b\\\x1b\\",
    ),
}


@pytest.mark.parametrize("name", TERMINALS)
@pytest.mark.parametrize("kind", ["failure", "stall"])
def test_a_nodes_text_cannot_leave_the_notification(name: str, kind: str) -> None:
    environ, form = TERMINALS[name]
    written = alert(nasty_call(kind), environ)
    assert written.startswith(BELL)
    assert written.count(BELL) == 1
    whole = re.fullmatch(form, written[1:].encode(), re.DOTALL)
    assert whole, written
    body = whole[1].decode()
    assert body.isprintable()
    assert ";" not in body
    assert len(body) < 300


@pytest.mark.parametrize("term", ["linux", "dumb", "screen.xterm-256color", "vt100"])
def test_a_terminal_that_would_print_it_only_rings(term: str) -> None:
    assert alert(nasty_call(), {"TERM": term}) == BELL
