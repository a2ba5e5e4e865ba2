"""Files of evidence, rewritten: each is refused whole, or what it says is of its node's own ranks, and can be
put together, judged, kept and shown."""

from __future__ import annotations

import json
import random
import tempfile
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

from cockpit.base import evidence_file
from cockpit.base.events import RankStarted
from cockpit.base.gate import Malformed, Of
from cockpit.base.recorder.packing import pack as pack_trace
from cockpit.base.stacks.dump import Deputy, Dump, Frame, LockFile, Process, Thread, Unanswered
from cockpit.base.stacks.packing import dump_json, pack
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.core.stacks.evidence_snapshots import Testimony, moments, snapshot
from cockpit.core.stacks.verdict import verdict
from cockpit.engine.records.manifest import Manifest, NodeEntry, planned
from cockpit.engine.stacks import saved
from cockpit.engine.stacks.evidence import Shown, opened
from tests.hostile import values
from tests.hostile.frames import Outcome
from tests.hostile.mutations import CHANGES
from tests.recorder.recorded import dumps, recorded

RANKS = (0, 1)
"""Ranks of the node that keeps them."""
AT = 1.7e9
_TOGETHER = 10


@lru_cache
def _traces(rank: int) -> tuple[bytes, ...]:
    return tuple(map(pack_trace, recorded(dumps("missing"))[rank].traces))


def _dump(rank: int, rng: random.Random) -> Dump:
    def text() -> str:
        return rng.choice(values.EVIL)

    def thread() -> Thread:
        names = [text(), "wait", text(), "all_reduce"][: rng.randrange(5)]
        files = ("torch/distributed/distributed_c10d.py", "./train.py", text())
        return Thread(text(), 7, False, False, tuple(Frame(name, rng.choice(files), 7) for name in names))

    process = Process(100 + rank, 5, rng.choice("RSDTZ?"), text(), rng.choice(("futex", text())), text())
    kind = rng.choice(("thread", "child", text()))
    return Dump(
        rank,
        AT,
        process,
        rng.choice(("plain", text())),
        (thread(), thread()),
        loop=text(),
        deputy=Deputy(kind, thread(), process) if rng.random() < 0.5 else None,
        lock=LockFile(text(), rng.choice((-1e9, 0.0, 1e9)), rng.choice((0, 1 << 30)), text())
        if rng.random() < 0.5
        else None,
        unanswered=(Unanswered(rng.choice(("10.0.0.7", "$(id)", text())), rng.choice((-1, 80, 1 << 40)), 5),)
        if rng.random() < 0.3
        else (),
    )


def file(rng: random.Random) -> bytes:
    """Some file of evidence, as it should be."""
    head = values.good_object(evidence_file.Head, rng) | {"format": 1, "t": AT + rng.choice((0, 5, 700))}
    items = []
    for rank in rng.sample(RANKS, rng.randrange(len(RANKS) + 1)):
        traces = _traces(rank)
        item = {"rank": rank, "at": AT, "source": "server", "lengths": list(map(len, traces))}
        items.append((item, b"".join(traces)))
    own = rng.sample(RANKS, rng.randrange(len(RANKS) + 1))
    return evidence_file.written(head, [(rank, pack([_dump(rank, rng)])) for rank in own], items)


def rewritten(rng: random.Random) -> bytes:
    """The same, with a fault or more."""
    line, _, rest = file(rng).partition(b"\n")
    data = bytearray(rest)
    match rng.randrange(6):
        case 0 | 1 | 2:
            line = _head(line, rng)
        case 3:
            for _ in range(rng.choice((1, 3, 30)) if data else 0):
                data[rng.randrange(len(data))] = rng.randrange(256)
        case 4:
            (part,) = rng.sample([b"", b"x", rng.randbytes(5000), b"[" * 200_000, bytes(data[:-1])], 1)
            data[:] = part
        case _:
            # Packed as it should be, and what is in it is not.
            told = json.loads(line)
            part = _lied(rng)
            told |= {"stacks": [[rng.choice((0, 1, 2)), len(part)]], "recorders": []}
            line, data[:] = json.dumps(told).encode(), part
    return line + b"\n" + bytes(data)


def _head(line: bytes, rng: random.Random) -> bytes:
    told = {"line": json.loads(line)}
    places = list(values.places(told, "line", Of(evidence_file.Head)))[1:]
    rng.choice(CHANGES)(rng.choice(places), rng)
    return values.dumped(told["line"])


def _lied(rng: random.Random) -> bytes:
    """A packed dump with a strange value in it."""
    told = dump_json(_dump(0, rng))
    for thread in told["threads"]:
        thread["stack"] = -1
    if told["deputy"]:
        told["deputy"]["thread"]["stack"] = -1
    holder: Any = told
    while True:
        key = rng.choice(list(holder))
        if not isinstance(holder[key], dict) or rng.random() < 0.3:
            break
        holder = holder[key]
    strange: tuple[Any, ...] = (
        None,
        -1,
        10**400,
        "x" * 7000,
        [],
        {},
        1 << 62,
        values.Raw("1e400"),
        rng.choice(values.EVIL),
    )
    holder[key] = rng.choice((*strange, values.deep(rng)))
    return zlib.compress(values.dumped({"dump": told}) + b"\n")


def evidence(count: int, seed: int) -> Outcome:
    """So many rewritten files, each read as one that a node sent; what comes through is put together."""
    outcome = Outcome()
    entry = NodeEntry("bad", "/x", list(RANKS))
    manifest = Manifest("run", AT, [entry], "command", ["train.py"], "/")
    started = [Event(AT, "bad", RankStarted(rank, pid=100 + rank)) for rank in RANKS]
    model = RunModel.of([planned(manifest), *started])
    came: list[Testimony] = []
    with tempfile.TemporaryDirectory(prefix="cockpit-evidence-") as top:
        for number in range(count):
            rng = random.Random(f"{seed}.evidence.{number}")
            outcome.counts["evidence", "files"] += 1
            try:
                one = opened(rewritten(rng), entry, rng.choice((0.0, 0.0, 5.0, -(1 << 36), 1 << 36)))
            except Malformed:
                outcome.refused += 1
                continue
            except Exception as error:
                outcome.blame(f"evidence {number}: {type(error).__name__}: {error}")
                continue
            outcome.passed += 1
            if bad := _bad(one):
                outcome.blame(f"evidence {number}: came through: {bad}")
            came.append(one)
            if len(came) == _TOGETHER:
                try:
                    _shown(came, model, Path(top))
                except Exception as error:
                    outcome.blame(f"evidence up to {number}: {type(error).__name__}: {error}")
                came.clear()
    return outcome


def _bad(one: Testimony) -> str:
    """What is wrong with what came through; empty: nothing."""
    if odd := {*one.failed, *one.steps, *one.dumps, *one.recorded} - set(RANKS):
        return f"ranks {sorted(odd)}"
    texts = [one.boot_id, *one.trouble]
    for dump in one.dumps.values():
        texts += [dump.loop, dump.way, dump.source, *(each.name for each in dump.threads)]
        if dump.lock is not None:
            texts += [dump.lock.path, dump.lock.name]
        if dump.deputy is not None:
            texts += [dump.deputy.kind, dump.deputy.thread.name, dump.deputy.process.target]
    return next((f"{text!r}"[:200] for text in texts if values.odd_characters(text)), "")


def _shown(several: list[Testimony], model: RunModel, top: Path) -> None:
    """Put together what came through; keep it, read it again, judge it and say so."""
    for rounds in moments(several):
        made = snapshot(rounds, model, "run")
        path = saved.new_folder(top, made)
        saved.save(made, path)
        again = saved.load(path)
        for found in (verdict(made), verdict(again)):
            text = Shown(path, again, found).sentence
            if odd := values.odd_characters(text):
                raise AssertionError(f"says {odd}: {text!r}")
