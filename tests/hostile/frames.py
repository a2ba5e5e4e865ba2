"""Rewritten frames through decoder, link and run record: a value of its definition, or an error."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from cockpit.base.answers import Hello
from cockpit.base.frames import Decoder
from cockpit.base.gate import fields
from cockpit.base.verbs import VERBS
from cockpit.core.run.events import RecordReader
from cockpit.engine.links.link import REPLIES, Link, RemoteError, Reply, _Done, _Pending
from cockpit.transport.base import LinkError
from cockpit.transport.local import LocalTransport
from tests.hostile import mutations, values
from tests.hostile.mutations import MUTATIONS, Sent, made, mutated

LARGE = ("huge", "lengths", "payload")
"""Mutations that may fill a frame."""
RANKS = (0, 1)
"""Ranks of the node whose run record is read."""


@dataclass
class Outcome:
    """What came of a campaign."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Cases by verb and mutation."""
    refused: int = 0
    passed: int = 0
    faults: list[str] = field(default_factory=list)

    def blame(self, what: str) -> None:
        """Note a fault, the first hundred of them in full."""
        self.faults.append(what[:2000] if len(self.faults) < 100 else what[:100])


class _Held(Link):
    """A link without a node: frames are given to it by hand."""

    def __init__(self) -> None:
        super().__init__("bad", LocalTransport("bad"), [])

    def greeted(self, data: bytes) -> list[Hello]:
        """What it says of itself in some bytes.

        :raises LinkError: they make no sense
        """
        return [self._greeting(header) for header, _ in self._frames(Decoder(), data)]

    async def taken(self, verb: str, data: bytes, cuts: random.Random) -> list[Any]:
        """What comes of some bytes: parts of the answer to a request.

        :raises LinkError: they make no sense
        """
        pending = _Pending(verb, REPLIES[VERBS[verb]], 1 << 20)
        self._pending = {7: pending}
        decoder = Decoder()
        found = []
        while data:
            size = cuts.choice((1, 7, 300, 1 << 16, 1 << 24))
            chunk, data = data[:size], data[size:]
            for header, body in self._frames(decoder, chunk):
                await self._take(header, body)
                while not pending.queue.empty():
                    found.append(pending.queue.get_nowait())
        return found


def _bad(part: Any, reply: Reply) -> str:
    """What is wrong with a part that came through; empty: nothing."""
    if isinstance(part, RemoteError):
        return ""
    if isinstance(part, _Done):
        return values.wrong(reply.answer, part.answer)
    item, body = part
    return values.wrong(reply.item, item) or ("" if type(body) is bytes else "no bytes")


async def _one(link: _Held, sent: Sent, name: str, rng: random.Random) -> tuple[bool, str]:
    """Whether anything came through, and what was wrong with it."""
    out = mutated(name, sent, rng)
    data = b"".join([*out.chunks, *out.held])
    if sent.verb == "hello":
        found = link.greeted(data)
        return bool(found), "".join(values.wrong(Hello, hello) for hello in found)
    # The cuts take numbers of their own: the same frame comes however it is cut.
    parts = await link.taken(sent.verb, data, random.Random(len(data)))
    return bool(parts), "".join(_bad(part, REPLIES[VERBS[sent.verb]]) for part in parts)


async def _frames(count: int, seed: int, until: float, outcome: Outcome) -> None:
    link = _Held()
    for number in range(count):
        if time.monotonic() > until:
            outcome.blame(f"out of time after {number} of {count} frames")
            return
        rng = random.Random(f"{seed}.frame.{number}")
        verb = (*VERBS, "hello")[number % (len(VERBS) + 1)]
        # The large ones cost a hundred times as much: a part of them will do.
        names = [name for name in MUTATIONS if name not in LARGE or rng.random() < 0.1]
        name = rng.choice(names)
        outcome.counts[verb, name] += 1
        try:
            passed, bad = await _one(link, made(verb, rng), name, rng)
        except LinkError:
            outcome.refused += 1
            continue
        except Exception as error:
            outcome.blame(f"frame {number}: {verb} {name}: {type(error).__name__}: {error}")
            continue
        outcome.passed += passed
        if bad:
            outcome.blame(f"frame {number}: {verb} {name}: came through: {bad}")


def frames(count: int, seed: int, *, minutes: float = 30) -> Outcome:
    """So many rewritten frames through a link's decoder."""
    outcome = Outcome()
    asyncio.run(_frames(count, seed, time.monotonic() + 60 * minutes, outcome))
    return outcome


def lines(count: int, seed: int) -> Outcome:
    """So many rewritten lines through the reader of a run record."""
    outcome = Outcome()
    for number in range(0, count, 50):
        rng = random.Random(f"{seed}.line.{number}")
        record = RecordReader("bad", RANKS)
        told = [mutations.line(rng) for _ in range(50)]
        outcome.counts["run record", "lines"] += len(told)
        data = b"\n".join(told) + b"\n"
        try:
            while data:
                size = rng.choice((1, 80, 3000, 1 << 20))
                chunk, data = data[:size], data[size:]
                for event in record.feed(chunk):
                    outcome.passed += 1
                    rank = getattr(event.fact, "rank", RANKS[0])
                    bad = values.wrong_fact(event.fact) or ("" if rank in RANKS else f"rank {rank}")
                    if bad or not values.holds(_TIME, event.at) or event.node != "bad":
                        outcome.blame(f"line {number}: came through: {bad or event}")
        except Exception as error:
            outcome.blame(f"line {number}: {type(error).__name__}: {error}")
        outcome.refused += record.bad
    return outcome


_TIME = next(kind for name, kind, _ in fields(Hello) if name == "t")
