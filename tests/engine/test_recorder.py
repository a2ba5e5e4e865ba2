"""One look at the recorders of all ranks: each node for itself, and none speaks for another."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from cockpit.base.answers import RecorderItem
from cockpit.base.gate import read
from cockpit.base.recorder.packing import pack
from cockpit.base.recorder.reading import read_json
from cockpit.core.stacks.snapshot import Place
from cockpit.engine import recorder
from cockpit.engine.recorder import RecorderAnswers, Recorders
from cockpit.errors import CockpitError
from cockpit.transport.base import LinkError
from tests.recorder import recorded

Part = tuple[dict[str, Any], bytes]
AT = 2_000_000_000.0


def part(number: int, ahead_s: float = 0.0, **more: Any) -> Part:
    """What a node says of a rank; its clock is so far ahead."""
    trace = read_json(recorded.dumps("missing")[number], "fr_trace_json").shifted(round(ahead_s * 1e6))
    data = pack(trace)
    return {"rank": number, "at": AT + ahead_s, "source": "server", "lengths": [len(data)], **more}, data


class FakeNode:
    """A node that gives these answers; None: it says nothing more."""

    def __init__(self, *parts: Part | None, ahead_s: float = 0.0) -> None:
        self.parts_told = parts
        self.clock = SimpleNamespace(offset_s=ahead_s, rtt_s=float("inf"))
        self.pings = 0
        self.asked: list[Any] = []
        self.closed = False

    async def measure_clock(self) -> None:
        self.pings += 1

    async def stream(self, request: Any) -> FakeNode:
        self.asked.append(request)
        self._left = iter(self.parts_told)
        return self

    async def part(self, within_s: float) -> tuple[RecorderItem, bytes] | None:
        for told in self._left:
            if told is None:
                raise LinkError(f"no answer within {within_s:g} s", where="gpu01")
            return read(RecorderItem, told[0]), told[1]
        return None

    async def close(self) -> None:
        self.closed = True


class FakeJob:
    """Two nodes of two ranks."""

    def __init__(self, first: FakeNode, second: FakeNode | CockpitError, folder: str = "/run") -> None:
        self._links = {"gpu01": first, "gpu02": second}
        self._folder = folder
        self.nodes = list(self._links)

    def places(self) -> dict[int, Place]:
        return {rank: Place(self.nodes[rank // 2], pid=rank) for rank in range(4)}

    twice: Mapping[int, str] = {}

    async def refresh(self) -> None:
        pass

    def folder(self, node: str) -> str:
        return self._folder

    async def link(self, node: str) -> FakeNode:
        found = self._links[node]
        if isinstance(found, CockpitError):
            raise found
        return found


def seen(first: FakeNode, second: FakeNode | CockpitError, **more: Any) -> RecorderAnswers:
    """One look."""
    job: Any = FakeJob(first, second, **more)
    return asyncio.run(Recorders(job).look())


def test_all_nodes_are_read_together_on_one_clock() -> None:
    first, second = FakeNode(part(0), part(1)), FakeNode(part(2, 7200.0), part(3, 7200.0), ahead_s=7200.0)
    heard = seen(first, second)
    assert (heard.look.missing(), heard.silent, heard.probed) == (0b1000, {}, True)
    arrivals = heard.look.collectives[0].arrivals.values()
    assert max(arrivals) - min(arrivals) < 10_000_000
    # Clocks that were never measured are, first.
    assert (first.pings, second.asked[0].ranks, second.closed) == (3, (2, 3), True)


def test_a_node_that_does_not_answer_leaves_its_ranks_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "SILENCE_S", 0.05)
    heard = seen(FakeNode(part(0), None), CockpitError("connection refused"))
    assert heard.silent == {
        1: "no answer within 0.05 s",
        2: "connection refused",
        3: "connection refused",
    }
    assert heard.look.heard == 0b0001
    assert heard.look.missing() == 0


def test_a_run_without_probes_is_said_to_have_none() -> None:
    absent: Part = ({"rank": 0, "at": AT, "kind": "absent", "what": "no probe runs in this run"}, b"")
    heard = seen(FakeNode(absent), FakeNode())
    assert not heard.probed
    assert heard.silent[0] == "no probe runs in this run"
    heard = seen(FakeNode(), FakeNode(), folder="")
    assert not heard.probed
    assert heard.silent[3] == "cockpit did not start it: no probe runs in it"


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([part(2)], "sent the recorder of rank 2, which was not requested"),
        ([part(0), part(0)], "sent the recorder of rank 0, which was not requested"),
        ([part(0, lengths=[3])], "sent a truncated recorder"),
    ],
)
def test_a_node_that_lies_costs_its_own_ranks_alone(parts: list[Part], said: str) -> None:
    heard = seen(FakeNode(*parts), FakeNode(part(2), part(3)))
    assert heard.silent[1].startswith(said)
    assert heard.look.heard & 0b1100 == 0b1100


def test_more_than_was_asked_for_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "ROWS", 0)
    heard = seen(FakeNode(part(0)), FakeNode())
    assert heard.silent[0] == "its recorder's answer is invalid: more entries than requested"
    assert heard.look.heard == 0


def test_a_recorder_that_makes_no_sense_costs_its_own_rank_alone() -> None:
    head, data = part(0)
    heard = seen(FakeNode((head, b"x" * len(data)), part(1)), FakeNode(part(2), part(3)))
    assert heard.silent[0].startswith("its recorder's answer is invalid: ")
    assert list(heard.silent) == [0]
    assert heard.look.heard == 0b1110


def test_what_a_node_says_is_harmless() -> None:
    evil: Part = ({"rank": 0, "at": AT, "kind": "odd", "what": "\x1b]52;c;x\x07"}, b"")
    assert "\x1b" not in seen(FakeNode(evil), FakeNode()).silent[0]


def test_what_one_look_teaches_the_next_one_knows() -> None:
    first, second = FakeNode(part(0), part(1)), FakeNode(part(2), part(3))
    job: Any = FakeJob(first, second)
    recorders = Recorders(job)

    async def twice() -> RecorderAnswers:
        await recorders.look()
        second.parts_told = (part(2),)
        return await recorders.look(since=1.0)

    heard = asyncio.run(twice())
    found = next(one for one in heard.look.collectives if (one.group.name, one.number) == ("4", 52))
    # Rank 3 does not answer any more: that it is in that group is still known.
    assert (found.members, found.unknown, found.absent) == (0b1010, 0b1000, 0)
    assert first.asked[1].since_us == 1_000_000
