"""Steps that the ends of logs tell, read on their node, and what a verdict makes of them."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest

from cockpit.base import verbs
from cockpit.base.answers import FindAnswer, ReadItem
from cockpit.base.gate import read
from cockpit.core.pace.pace import Pace
from cockpit.core.stacks.progress import of_pace
from cockpit.engine.links.link import Link
from cockpit.engine.logs import remote_tail
from cockpit.engine.logs.remote_tail import PrintedStep, steps_there
from cockpit.errors import CockpitError
from tests.engine.pools import Sent

FOLDER = "/tmp/cockpit-0/night/gpu[01]"


class Node:
    """A node with these files in its run folder; what it says of them goes through the gate."""

    node = "gpu01"

    def __init__(self, files: dict[str, bytes], shift: int = 0) -> None:
        self._files, self._shift = files, shift
        self.asked: list[tuple[str, int]] = []

    async def call(self, request: object) -> FindAnswer:
        assert isinstance(request, verbs.Find)
        wanted = {word.rpartition("/")[2] for word in request.words}
        assert all(word.startswith("/tmp/cockpit-0/night/gpu[[]01]/") for word in request.words)
        files = [
            {"path": f"{FOLDER}/{name}", "dir": FOLDER, "file": name, "size": len(data)}
            for name, data in self._files.items()
            if name in wanted
        ]
        return read(FindAnswer, {"files": files})

    async def stream(self, request: object) -> Any:
        assert isinstance(request, verbs.Read)
        assert request.named
        self.asked.append((request.file, request.offset))
        data = self._files[request.file][request.offset : request.size]

        async def parts() -> Any:
            for begin in range(0, len(data), 1000):
                yield ReadItem(request.offset + begin + self._shift), data[begin : begin + 1000]

        return Sent(parts())


def logged(steps: list[tuple[float, int]], name: str = "rank-0.log", head: bytes = b"") -> dict[str, bytes]:
    """A log in which a line about each step was there at that time, and its index."""
    log, index = head, [{"t": 900.0, "s": {name: len(head)}}]
    for at, step in steps:
        log += b"step %d loss 0.5\n" % step
        index.append({"t": at, "s": {name: len(log)}})
    return {name: log, "sizes.jsonl": b"".join(json.dumps(one).encode() + b"\n" for one in index)}


def told(node: Node, *ranks: int) -> list[PrintedStep]:
    return asyncio.run(steps_there(cast(Link, node), FOLDER, ranks))


def test_the_end_of_a_log_tells_its_last_steps_and_when_they_were() -> None:
    steps = [(1000.0 + 0.5 * step, step) for step in range(60)]
    node = Node(logged(steps, head=b"x" * (1 << 20) + b"\n"))
    found = told(node, 0, 1)
    assert found == [PrintedStep(0, step, at) for at, step in steps[-remote_tail.STEPS :]]
    # Not the whole of it, nor logs of ranks that print nothing.
    assert all(offset > 1 << 19 for name, offset in node.asked if name == "rank-0.log")
    assert {name for name, _ in node.asked} == {"rank-0.log", "sizes.jsonl"}
    pace = Pace(range(2))
    for one in found:
        pace.stepped(one.rank, one.step, one.at, exact=False)
    assert of_pace(pace, 1031.0).goes_on is True
    assert of_pace(pace, 1090.0).lasts is True


def test_the_end_of_a_log_that_is_one_long_bar_tells_its_steps() -> None:
    steps = [(1000.0 + 0.5 * step, step) for step in range(900)]
    bar = b"\r%9d/9999 [00:00<00:00, 1.00it/s]"
    log, index = b"starts\n", []
    for at, step in steps:
        log += bar % step
        index.append({"t": at, "s": {"rank-0.log": len(log)}})
    files = {"rank-0.log": log, "sizes.jsonl": b"".join(json.dumps(one).encode() + b"\n" for one in index)}
    # The last state is not over yet.
    assert [one.step for one in told(Node(files), 0)] == [
        step for _, step in steps[-remote_tail.STEPS - 1 : -1]
    ]


def test_of_lines_that_were_written_at_once_the_last_one_counts() -> None:
    steps = [(1000.0 + 20 * (step // 10), step) for step in range(50)]
    files = logged(steps)
    # The index has one entry for all of them.
    lines = [json.loads(line) for line in files["sizes.jsonl"].splitlines()]
    last = {line["t"]: line for line in lines}
    files["sizes.jsonl"] = b"".join(json.dumps(one).encode() + b"\n" for one in last.values())
    found = told(Node(files), 0)
    assert found == [PrintedStep(0, 10 * part + 9, 1000.0 + 20 * part) for part in range(1, 5)]
    pace = Pace(range(1))
    for one in found:
        pace.stepped(one.rank, one.step, one.at, exact=False)
    # Twenty seconds without a line are how this log is.
    assert of_pace(pace, 1100.0).goes_on is True


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"rank-0.log": b"step 7 loss 0.5\n"},
        {"rank-0.log": b"step 7 loss 0.5\n", "sizes.jsonl": b"[]\n{\n\xff\n" + b'{"t": "x", "s": 3}\n' * 9},
        {"rank-0.log": b"no word of any\n" * 9, "sizes.jsonl": b'{"t": 1000.0, "s": {"rank-0.log": 9}}\n'},
        {"rank-0.log": b"step 7\n", "sizes.jsonl": b'{"t": 1000.0, "s": {"rank-0.log": 99999}}\n'},
    ],
)
def test_what_tells_no_step_or_not_when_is_left_out(files: dict[str, bytes]) -> None:
    assert told(Node(files), 0, 3) == []


def test_a_node_that_sends_something_else_is_not_believed() -> None:
    with pytest.raises(CockpitError, match="a different part of"):
        told(Node(logged([(1000.0, 1)]), shift=7), 0)
    assert told(Node(logged([(1000.0, 1)]))) == []
