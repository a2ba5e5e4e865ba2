"""Profiles, rewritten: as a node sends them, and as they are read back from disk. Each is refused, or what it
says can be put together and shown."""

from __future__ import annotations

import gzip
import json
import random
import traceback
import zlib
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cockpit.base.profile.summary import RankProfile
from cockpit.config import Quotas
from cockpit.core.profile import folded, spread, words
from cockpit.core.profile.collection import DONE, Collection, RankResult
from cockpit.core.profile.flame_page import flame_page
from cockpit.core.profile.reader import operations, read
from cockpit.engine.profile import reports, store
from cockpit.engine.profile.choose import Estimate, Plan
from cockpit.engine.profile.store import MAIN, Store
from cockpit.engine.profile.taking import _opened
from cockpit.errors import CockpitError
from tests.core import profiled
from tests.hostile import values
from tests.hostile.frames import Outcome
from tests.hostile.mutations import spoilt

FIRST, STEPS = 700, 5


def collection(kind: str, rng: random.Random) -> Collection:
    """Some collection, as it should be."""
    if kind == "torch":
        return profiled.collection(4, lambda rank, step: profiled.Work(data=5 + 400 * (rank == 2)), nodes=2)
    if kind == "nsys":
        name = rng.choice(("r.gpu0.nsys.id.nsys-rep", *values.EVIL))
        results = {
            rank: RankResult(rank, f"gpu{rank // 2}", DONE, name, 1.7e9 + rank, name, 1 << 20)
            for rank in range(4)
        }
        return Collection(1, "id", "otter", kind, 1.7e9, 700, 5, results=results)
    results = {
        rank: RankResult(rank, f"gpu{rank}", DONE, rate=20, samples=90, folded=stacks(rng))
        for rank in range(4)
    }
    return Collection(1, "id", "otter", "cpu", 1.7e9, seconds=10.0, results=results)


def stacks(rng: random.Random) -> str:
    """Folded stacks, some of which are none."""
    frames = ("main (train.py:9)", "step (train.py:4)", "load (data.py:7)", "thread: pin", *values.EVIL)
    lines = (
        f"{';'.join(rng.choices(frames, k=rng.randrange(1, 5)))} {rng.choice((0, 1, 80, '', -1, '9' * 5000))}"
        for _ in range(20)
    )
    return "\n".join(lines)


def sent(summary: RankProfile) -> dict[str, Any]:
    """A summary as its node sends it."""
    return json.loads(json.dumps(store._as_sent(summary)))  # type: ignore[no-any-return]


def summary(rank: int, first: int, rng: random.Random) -> bytes:
    """A summary of a rank, packed, with a fault or more."""
    told = collection("torch", rng).results[rank % 4].summary
    assert told is not None
    return zlib.compress(spoilt({**_of(sent(told), first), "rank": rank}, RankProfile, rng))


def _of(told: dict[str, Any], first: int) -> dict[str, Any]:
    """The same of other steps."""
    for name in ("steps", "collectives"):
        told[name] = [[row[0] - FIRST + first, *row[1:]] for row in told[name]]
    return told


def keep_damaged(root: Path, rng: random.Random) -> None:
    """A damaged collection in this folder."""
    kept, one = Store(root), collection(rng.choice(("torch", "cpu", "nsys")), rng)
    number = kept.begin(Quotas())
    kept.save(replace(one, number=number))
    _damaged(kept.folder(number), rng)


def _damaged(folder: Path, rng: random.Random) -> None:
    """A fault or more in the files of a collection."""
    for _ in range(rng.choice((1, 2, 4))):
        path = rng.choice([path for path in sorted(folder.iterdir()) if path.is_file()])
        was = path.read_bytes()
        match rng.randrange(5):
            case 0:
                path.write_bytes(was[: rng.randrange(len(was) + 1)])
            case 1:
                data = bytearray(was)
                for _ in range(rng.choice((1, 3, 30)) if data else 0):
                    data[rng.randrange(len(data))] = rng.randrange(256)
                path.write_bytes(data)
            case 2 if path.suffix == ".gz":
                strange = (b"[" * 200_000, b" " * (40 << 20), b"null", b"\xff\xfe", rng.randbytes(5000))
                path.write_bytes(gzip.compress(rng.choice(strange), 1))
            case 3:
                path.unlink()
                path.symlink_to(rng.choice(("/dev/zero", "/etc/hostname", "/nowhere")))
                return
            case _ if path.name == MAIN:
                _main(path, was, rng)
            case _ if path.suffix == ".gz":
                _gz(path, was, rng)
            case _:
                path.write_bytes(was + stacks(rng).encode("utf-8", "replace"))


def _main(path: Path, was: bytes, rng: random.Random) -> None:
    try:
        told = json.loads(was)
    except (ValueError, RecursionError):
        return
    path.write_bytes(spoilt(told, store._Head, rng))


def _gz(path: Path, was: bytes, rng: random.Random) -> None:
    try:
        told = json.loads(gzip.decompress(was))
    except (ValueError, OSError, EOFError, zlib.error, RecursionError):
        return
    path.write_bytes(gzip.compress(spoilt(told, RankProfile, rng), 1))


def profiles(count: int, seed: int) -> Outcome:
    """So many summaries of a node, and as many damaged collections here."""
    outcome = Outcome()
    with TemporaryDirectory(prefix="cockpit-profiles-") as top:
        for number in range(count):
            for name, does in (("sent", _sent), ("report", _report), ("kept", _kept)):
                rng = random.Random(f"{seed}.profile.{name}.{number}")
                outcome.counts["profiles", name] += 1
                try:
                    came = does(rng, Path(top, name, str(number)))
                except CockpitError:
                    outcome.refused += 1
                except Exception as error:
                    at = traceback.extract_tb(error.__traceback__)[-1]
                    what = f"{type(error).__name__}: {error} ({Path(at.filename).name}:{at.lineno})"
                    outcome.blame(f"profile {name} {number}: {what}")
                else:
                    outcome.passed += came
                    outcome.refused += not came
    return outcome


def _sent(rng: random.Random, top: Path) -> bool:
    """Whether a summary came through; what it says is put together with those of others."""
    one = collection("torch", rng)
    plan = Plan("torch", (0,), {}, FIRST, STEPS, 0.0, 20, (), 60.0, Estimate(0.0, 0.0))
    rank = rng.randrange(4)
    result = _opened(one.results[rank], plan, summary(rank, FIRST, rng), 4 << 20)
    _show(replace(one, results={**one.results, rank: result}))
    return result.state == DONE


def _report(rng: random.Random, top: Path) -> bool:
    """The same of reports of nsys, whose steps may be any."""
    one = collection("torch", rng)
    rank = rng.randrange(4)
    result = reports._opened(one.results[rank], summary(rank, FIRST, rng), 4 << 20)
    _show(reports._collection("launch", one.run, {**one.results, rank: result}, one.offsets))
    return result.state == DONE


def _kept(rng: random.Random, top: Path) -> bool:
    """A damaged collection is read and shown, or there is an error."""
    keep_damaged(top, rng)
    _show(Store(top).load(1))
    return True


def _show(one: Collection) -> None:
    """All that is made of a collection: as text it has no odd characters."""
    reading = read(one)
    texts = [
        *words.as_lines(one, reading),
        *words.as_markdown(one, reading),
        reading.finding.what,
        reading.finding.detail,
    ]
    for rank in reading.ranks:
        operations(one, reading, rank)
    json.dumps(words.as_json(one, reading), allow_nan=False)
    found = spread.spread(one)
    texts += [*spread.as_lines(found, 80), *spread.as_csv(found).split("\n"), spread.as_svg(found, "title")]
    json.dumps(spread.as_json(found), allow_nan=False)
    samples = {rank: folded.parsed(each.folded) for rank, each in one.results.items() if each.folded}
    texts += [folded.to_folded(samples), flame_page(samples, "title", "facts", folded.odd_ranks(samples))]
    json.dumps(folded.to_speedscope(samples, "title"))
    texts += [at.frame for some in folded.odd_ranks(samples).values() for at in some]
    for text in texts:
        if odd := values.odd_characters(text):
            raise AssertionError(f"says {odd}: {text!r}"[:500])
