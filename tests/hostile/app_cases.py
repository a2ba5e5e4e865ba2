"""Hostile data for the app: made from the definitions of what nodes send, and from their bounds."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from cockpit.base.answers import EnvironAnswer
from cockpit.base.events import OWN, RECORD, Fact
from cockpit.base.gate import (
    RANK_LIMIT,
    Digits,
    FieldKind,
    Flag,
    ListOf,
    Malformed,
    MapOf,
    Maybe,
    Number,
    Of,
    RowOf,
    Text,
    Whole,
    fields,
    read,
)
from cockpit.base.record import EVENTS, LAUNCHER_LOG, TIMES, rank_log
from cockpit.base.shared_fields import LogName
from cockpit.base.stacks.dump import Child, Deputy, Dump, Frame, LockFile, Process, Thread, Unanswered
from cockpit.base.stacks.packing import pack
from cockpit.base.stacks.unpacking import unpack
from cockpit.core.run.events import RecordReader
from cockpit.engine.stacks.probes import clean
from cockpit.transport.base import LinkError
from tests.happened import happened
from tests.hostile.patterns import matching
from tests.tui.stage import Stage

EVIL = (
    "[/x]",
    "[@click=app.quit]gone[/]",
    "[bold red]loud",
    "[link=file:///etc/passwd]",
    "\\[",
    "\x1b[2J\x1b[H\x1b]0;title\x07",
    "\x1b]52;c;cm0gLXJm\x07",
    "\x1bPq\x1b\\",
    "\x9b31m\x90",
    "\u202egnp.exe",
    "\u200b\u2028\x00\x08\x7f",
    "e" + "\u0301" * 200,
    "\ud800\udfff\udc9b",
    "\U000e0041\ufeff",
    "宽" * 40,
    "a\nb\r\nc\td",
    "%s%n{0}{x}${HOME}`id`",
    "",
    " ",
    "/" * 300,
    "0" * 400,
    "nan",
)
"""Texts that a terminal, a markup parser or a format string may stumble over."""

JUNK: tuple[Any, ...] = (
    None,
    True,
    -1,
    10**400,
    1e308,
    -1e308,
    float("nan"),
    float("inf"),
    "",
    "\x1b[2J[/x]\ud800",
    "x" * 100_000,
    [],
    {},
    [[[[[]]]]],
    {"e": {"e": {}}},
    [1, 2, 3],
)
"""Values that belong in no field, or in few."""

MUTATIONS = ("text", "edge", "many", "none", "missing", "retyped")
"""What is done to what a node sends."""

Do = Callable[[Stage, str], None]


@dataclass(frozen=True)
class Case:
    """Something hostile that a node of a stage does.

    :param what: which part of what it sends
    :param mutation: one of :data:`MUTATIONS`
    """

    what: str
    mutation: str
    do: Do

    @property
    def name(self) -> str:
        """Both."""
        return f"{self.what}/{self.mutation}"


def cases(seed: int, count: int) -> Iterator[Case]:
    """So many cases, each part of what a node sends with each mutation in turn; the same for a seed."""
    rng = random.Random(seed)
    makers = [*(_of_fact(name, fact) for name, fact in FACTS.items()), ("log", _log), ("environ", _environ)]
    pairs = [(what, make, mutation) for mutation in MUTATIONS for what, make in makers]
    for number in range(count):
        what, make, mutation = pairs[number % len(pairs)]
        yield Case(what, mutation, make(random.Random(rng.random()), mutation))


FACTS: dict[str, type[Fact]] = {
    **RECORD,
    **{
        name: OWN[name]
        for name in ("link", "clock", "sample", "node_lost", "gap", "damaged", "supervisor_gone")
    },
}
"""Kinds of events that hold what a node said."""

Make = Callable[[random.Random, str], Do]


def _of_fact(name: str, fact: type[Fact]) -> tuple[str, Make]:
    def make(rng: random.Random, mutation: str) -> Do:
        if name == "node_lost":
            mutation = "text"  # nothing else of it comes from a node
        told = spoilt(fact, rng, mutation)
        at = rng.choice((0, 1, 1e9, 1 << 36)) if mutation in ("edge", "retyped") else 1_795_233_000.0

        def do(stage: Stage, node: str) -> None:
            ranks = next(entry.ranks for entry in stage.manifest.nodes if entry.name == node)
            if "rank" in told and mutation not in ("edge", "missing"):
                told["rank"] = ranks[rng.randrange(len(ranks))]
            if isinstance(told.get("ranks"), dict) and name == "sample":
                told["ranks"] = dict(zip(map(str, ranks), told["ranks"].values(), strict=False))
            if name in RECORD:
                line = json.dumps({**told, "t": at, "e": name}).encode() + b"\n"
                record = RecordReader(node, ranks)
                for event in record.feed(line):
                    stage.told(event)
                if record.bad:
                    stage.happens(node, kind="damaged", lines=record.bad)
                return
            try:
                stage.told(happened(at, name, node, told))
            except Malformed as error:
                lost(stage, node, error)

        return do

    return name, make


def _log(rng: random.Random, mutation: str) -> Do:
    texts = {
        "text": b"".join(_bytes(evil) + b"\n" for evil in EVIL),
        "edge": b"\x00" * 3000 + b"\n" + bytes(range(256)) * 8,
        "many": b"".join(b"%d%s\n" % (number, _bytes(rng.choice(EVIL))) for number in range(3000)),
        "none": b"\n" * 2000,
        "missing": b"x" * (1 << 20),
        "retyped": b"\r".join(b"step 1e999/nan loss -inf %d" % number for number in range(2000)) + b"\n",
    }
    evil = rng.choice(EVIL)

    def do(stage: Stage, node: str) -> None:
        ranks = next(entry.ranks for entry in stage.manifest.nodes if entry.name == node)
        rank = rng.choice((None, *ranks))
        stage.prints(rank, texts[mutation], node=node)
        if rank is not None:
            stage.prints(rank, _bytes(f"Building extension module {evil}\nloss {evil} step {10**400}\n"))

    return do


def _environ(rng: random.Random, mutation: str) -> Do:
    told = spoilt(EnvironAnswer, rng, mutation)

    def do(stage: Stage, node: str) -> None:
        entry = next(entry for entry in stage.manifest.nodes if entry.name == node)
        try:
            stage.environ = read(EnvironAnswer, told)
        except Malformed as error:
            stage.environ = lost(stage, node, error)
            return
        rank = stage.model.ranks[entry.ranks[0]]
        # A new attempt: its environment is asked for again.
        attempt = {"rank": rank.rank, "attempt": rank.attempt + 1, "max_restarts": 1 << 30, "pid": 7}
        stage.happens(node, kind="rank_started", **attempt)
        stage.happens(node, kind="link", state="ok")

    return do


def lost(stage: Stage, node: str, error: Malformed) -> LinkError:
    """What the session makes of an answer that makes no sense."""
    what = f"sent an invalid answer: {error}"
    stage.happens(node, kind="link", state="gone", why=what)
    return LinkError(what, where=node, retry=False)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


# From a definition


def spoilt(definition: type[Any], rng: random.Random, mutation: str) -> dict[str, Any]:
    """What describes an object of a definition, spoilt in one way."""
    told = {name: _value(kind, rng, mutation) for name, kind, _ in fields(definition)}
    if told and mutation == "missing":
        del told[rng.choice(sorted(told))]
    if told and mutation == "retyped":
        told[rng.choice(sorted(told))] = rng.choice(JUNK)
    return told


def _value(kind: FieldKind, rng: random.Random, mutation: str) -> Any:
    """A value that is of this kind, just so."""
    if isinstance(kind, Maybe):
        return None if mutation == "none" else _value(kind.kind, rng, mutation)
    if isinstance(kind, Flag):
        return rng.random() < 0.5
    if isinstance(kind, LogName):
        return rng.choice((EVENTS, TIMES, LAUNCHER_LOG, rank_log(rng.randrange(RANK_LIMIT))))
    if isinstance(kind, (Whole, Number)):
        return _number(kind, rng, mutation)
    if isinstance(kind, Digits):
        return str(_number(kind.kind, rng, mutation))
    if isinstance(kind, Text):
        return _text(kind, rng, mutation)
    if isinstance(kind, ListOf):
        return [_value(kind.kind, rng, mutation) for _ in range(_length(kind.most, mutation))]
    if isinstance(kind, MapOf):
        pairs = range(_length(kind.most, mutation))
        return {_value(kind.name, rng, mutation): _value(kind.value, rng, mutation) for _ in pairs}
    if isinstance(kind, Of):
        return {name: _value(each, rng, mutation) for name, each, _ in fields(kind.definition)}
    if isinstance(kind, RowOf):
        return [_value(each, rng, mutation) for _, each, _ in fields(kind.definition)]
    raise NotImplementedError(f"no hostile value for {kind!r}")


def _number(kind: Whole | Number, rng: random.Random, mutation: str) -> Any:
    edges = [kind.least, kind.most, 0, 1, -1]
    if isinstance(kind, Number):
        edges += [5e-324, -5e-324, 0.1 + 0.2, 1e-9]
    fit = [edge for edge in edges if kind.least <= edge <= kind.most]
    return rng.choice(fit) if mutation == "edge" else fit[-1] if rng.random() < 0.5 else kind.least


def _text(kind: Text, rng: random.Random, mutation: str) -> str:
    evil = rng.choice(EVIL)
    if mutation == "edge":
        evil = (evil or "x") * kind.most
    if mutation == "none":
        evil = ""
    like = [matching(kind.pattern, rng) for _ in range(8)]
    for text in (evil[: kind.most], "/" + evil[: kind.most - 1], "x", *like):
        try:
            return str(kind.read(text))
        except Malformed:
            pass
    raise NotImplementedError(f"no hostile text for {kind!r}")


def _length(most: int, mutation: str) -> int:
    return {"many": min(most, 2000), "none": 0}.get(mutation, min(most, 3))


# Stacks


def dumps(seed: int, count: int) -> Iterator[Dump]:
    """Hostile dumps of ranks 0 and up, as they are once they were unpacked here; the same for a seed."""
    rng = random.Random(seed)
    for rank in range(count):
        try:
            yield next(iter(unpack(pack([_dump(rank, rng)]), clean)))
        except ValueError as error:
            yield Dump(rank, 0.0, error="failed", what=str(error))


def _dump(rank: int, rng: random.Random) -> Dump:
    # Numbers out of bounds have a whole dump refused: most have none, that what they say is seen.
    within = rng.random() < 0.8

    def evil() -> str:
        return rng.choice(EVIL)

    def edge() -> Any:
        return rng.choice((0, 1, 1 << 30) if within else (0, 1, -1, 1 << 62, -(1 << 62), 1 << 31))

    def real() -> float:
        wild = (0.0, -1.0, 1e308, float("inf"), float("nan"), 1e12, 5e-324)
        return rng.choice((0.0, 5e-324, 1.7e9, float(1 << 36)) if within else wild)

    def frames(most: int) -> tuple[Frame, ...]:
        return tuple(
            Frame(evil(), rng.choice((evil(), f"./{evil()}.py")), edge(), rng.random() < 0.3)
            for _ in range(rng.choice((0, 1, 5, most)))
        )

    def thread(most: int) -> Thread:
        stack = frames(most)
        values = tuple({evil(): evil() * 20, "x": evil()} for _ in stack) if rng.random() < 0.5 else ()
        return Thread(evil(), edge(), rng.random() < 0.5, rng.random() < 0.5, stack, values)

    children = tuple(
        Child(edge(), evil(), evil(), (thread(3),) * rng.randrange(2)) for _ in range(rng.choice((0, 1, 40)))
    )
    process = Process(
        edge(), edge(), evil(), evil(), evil(), evil(), real(), real(), edge(), children=children
    )
    dump = Dump(
        rank,
        real(),
        rng.choice((process, process, None)),
        evil(),
        tuple(thread(rng.choice((3, 60))) for _ in range(rng.choice((1, 2, 30)))),
        source=evil(),
        notes=tuple(evil() for _ in range(rng.choice((0, 2)))),
        took_s=real(),
        loop=evil(),
        deputy=Deputy(rng.choice(("thread", "child", evil())), thread(60), process)
        if rng.random() < 0.5
        else None,
        lock=LockFile(evil(), real(), edge(), evil()) if rng.random() < 0.5 else None,
        unanswered=tuple(
            Unanswered("fe80::1", rng.randrange(1 << 16), rng.randrange(99))
            for _ in range(rng.choice((0, 8)))
        ),
    )
    if rng.random() < 0.3:
        error = rng.choice(("denied", "gone", "zombie", "timeout", "failed", evil()))
        dump = replace(dump, threads=(), error=error, what=evil(), hint=evil())
    return dump
