"""Composed ends of several ranks, played in simulated time through what cockpit judges runs by.

A play has one rank that broke, or none of which that can be known, and others that waited for it. It becomes
the folder of a run: logs with a time index, and the run records of its nodes, whose clocks differ.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cockpit.base import events
from cockpit.base.record import EVENTS
from cockpit.core.finding import Finding
from cockpit.core.masks import mask_of, ranks_of
from cockpit.core.ranks import ranks_text
from cockpit.core.run.events import Event
from cockpit.core.run.summary import state_text, summary
from cockpit.engine.logs.last_words import last_cause
from cockpit.engine.records.folder import RunFolder
from tests.ends.rows import BROKEN, SURVIVED, WAITED, WATCHDOG, Broken
from tests.engine.books import Writer, run_folder

DELAYS = (0.0, 0.1, 0.4, 1.0, 2.5, 5.0, 15.0, 30.0, 60.0)
"""Seconds from one thing to the next."""
HANGS = 1e9
"""It never ends by itself."""

FAMILIES = {
    "ends at once": 5,
    "ends late": 4,
    "never ends": 4,
    "silent": 6,
    "alive and silent": 2,
    "behind": 2,
    "left with 0": 2,
    "another breaks later": 3,
    "nobody knows": 2,
}
"""How a play goes, and how many of thirty go so."""

START, BREAKS, STOPS = 1000.0, 1060.0, 3.0
SKEW = {"gpu1": 0.0, "gpu2": 47.3}
"""What the clocks of nodes are ahead of ours, in seconds."""


@dataclass(frozen=True)
class Part:
    """What one rank does: prints at a time, ends at another.

    :param end: exit status, or a negative signal
    """

    words: str
    at: float
    ends: float
    end: int


@dataclass(frozen=True)
class Play:
    """One run.

    :param first: who broke; empty: it cannot be known, and several are candidates
    :param told: a pattern of the cause
    """

    name: str
    family: str
    size: int
    parts: dict[int, Part]
    nodes: int
    first: tuple[int, ...]
    told: str = ""
    before: tuple[int, ...] = ()
    flood: bool = False


def plays(seed: int, count: int) -> list[Play]:
    """So many, alike for one seed."""
    families = [name for name, many in FAMILIES.items() for _ in range(many)]
    return [_play(families[at % len(families)], at, random.Random(f"{seed} {at}")) for at in range(count)]


def _play(family: str, number: int, rng: random.Random) -> Play:
    size = rng.choice((2, 3, 4, 4, 8))
    size = max(size, 3) if family in ("behind", "alive and silent", "nobody knows", "left with 0") else size
    first = rng.randrange(size)
    others = [rank for rank in range(size) if rank != first]
    parts: dict[int, Part] = {}
    told = ""
    named: tuple[int, ...] = (first,)
    worded = [one for one in BROKEN if one.words]
    broken: Broken | None = None
    if family in ("ends at once", "ends late", "never ends", "another breaks later"):
        broken = rng.choice([one for one in worded if family != "never ends" or one.end > 0])
        late = {"ends late": rng.choice(DELAYS[3:]), "never ends": HANGS}.get(family, rng.choice((0.0, 0.3)))
        parts[first] = Part(_filled(broken.words, first, first, size), BREAKS, BREAKS + late, broken.end)
        told = broken.told
    elif family == "silent":
        broken = rng.choice([one for one in BROKEN if not one.words])
        parts[first] = Part("", BREAKS, BREAKS + rng.choice((0.0, 0.1, 0.6, 1.5)), broken.end)
        told = broken.told
    elif family == "left with 0":
        parts[first] = Part("training done\n", BREAKS, BREAKS, 0)
    if family in ("behind", "alive and silent"):
        parts |= _timed_out(family, first, size, rng)
    elif family == "nobody knows":
        waited = rng.choice([one for one in WAITED if "{first}" not in one.words])
        for rank in range(size):
            at = BREAKS + rng.choice((0.0, 0.1, 0.2))
            parts[rank] = Part(_filled(waited.words, rank, first, size), at, at + 0.1, waited.end)
        named = ()
    else:
        parts |= _waiting(others, first, size, parts[first], rng)
        if family == "another breaks later":
            other = rng.choice(others)
            at = BREAKS + rng.choice(DELAYS[3:])
            own = rng.choice([one for one in worded if one is not broken])
            # It is recorded sooner than the end of the first, now and then.
            parts[other] = Part(_filled(own.words, other, first, size), at, at + 0.1, own.end)
            if rng.random() < 0.5:
                parts[first] = replace(parts[first], ends=at + 2.0)
    before = tuple(rank for rank in range(size) if rng.random() < 0.3)
    flood = rng.random() < 0.15
    nodes = rng.choice((1, 2)) if size > 2 else 1
    return Play(f"{family} {number}", family, size, parts, nodes, named, told, before, flood)


def _waiting(
    others: Sequence[int], first: int, size: int, broken: Part, rng: random.Random
) -> dict[int, Part]:
    """Those that wait for it: at least one of them says so and ends, or, if it ends itself, none need."""
    found = {}
    hangs = broken.ends >= HANGS
    least = 1 if hangs or not broken.end else 0
    talks = rng.sample(others, rng.randint(least, len(others)))
    alone = True
    for rank in sorted(talks):
        kinds = [one for one in WAITED if (one.lasts or not hangs) and (alone or not one.apart)]
        waited = rng.choice(kinds)
        alone = alone and not waited.apart
        delay = rng.choice(DELAYS[5:] if waited.lasts else DELAYS)
        at = broken.at + delay
        found[rank] = Part(
            _filled(waited.words, rank, first, size), at, at + rng.choice((0.1, 0.5)), waited.end
        )
    return found


def _timed_out(family: str, first: int, size: int, rng: random.Random) -> dict[int, Part]:
    """All but one give up waiting at NCCL's watchdog; that one is silent, or at another call."""
    number = rng.randint(10, 5000)
    found = {}
    behind = rng.choice(((-1, "ALLREDUCE"), (-3, "_ALLGATHER_BASE"), (0, "BROADCAST")))
    for rank in range(size):
        if rank == first and family == "alive and silent":
            continue
        more, op = behind if rank == first else (0, "ALLREDUCE")
        at = BREAKS + 30.0 + rng.choice((0.0, 0.1, 0.3, 0.8))
        words = WATCHDOG.words.format(me=rank, seq=number + more, op=op)
        found[rank] = Part(words, at, at + rng.choice((0.1, 0.5)), WATCHDOG.end)
    return found


def _filled(words: str, me: int, first: int, size: int) -> str:
    for name, value in {
        "me": me,
        "first": first,
        "some": size - 1,
        "all": size,
        "seq": 40,
        "op": "ALLREDUCE",
    }.items():
        words = words.replace("{%s}" % name, str(value))
    return words


def folder_of(play: Play, path: Path) -> RunFolder:
    """Write the folder of a play."""
    half = (play.size + 1) // play.nodes
    ranks = list(range(play.size))
    nodes = {"gpu1": ranks[:half], **({"gpu2": ranks[half:]} if play.nodes == 2 else {})}
    folder = run_folder(path, nodes)
    _write_logs(play, Writer(folder), nodes)
    stop = max(part.ends for part in play.parts.values() if part.ends < HANGS) + STOPS
    for entry in folder.manifest.nodes:
        skew = SKEW[entry.name]
        folder.write(Event(START, entry.name, events.Launched("/nowhere")))
        folder.write(Event(START, entry.name, events.ClockMeasured(skew, 0.001)))
        lines = [
            (stop, events.StopRequested("a rank failed", "cockpit", 3.0)),
            (stop + 1, events.LauncherExited(code=1)),
            (stop + 2, events.Ended()),
        ]
        for rank in entry.ranks:
            part = play.parts.get(rank)
            part = Part("", 0.0, stop + 0.5, -15) if part is None or part.ends >= HANGS else part
            code, signal = (part.end, None) if part.end >= 0 else (None, -part.end)
            lines.append((START, events.RankStarted(rank, pid=10 + rank)))
            lines.append((part.ends, events.RankExited(rank, code=code, signal=signal)))
        with (folder.spool_dir(entry) / EVENTS).open("w") as file:
            for at, fact in sorted(lines, key=lambda line: line[0]):
                file.write(json.dumps(events.RecordLine(at + skew, fact).as_json()) + "\n")
    return folder


def _write_logs(play: Play, writer: Writer, nodes: dict[str, list[int]]) -> None:
    said: list[tuple[float, str, int, str]] = []
    for node, own in nodes.items():
        for rank in own:
            if rank in play.before:
                said.append((START + 1.5, node, rank, SURVIVED))
            steps = (
                (START + 5.0 * step, f" step {step}/500 | loss 2.{step}31 | lr 1e-4\n")
                for step in range(1, 12)
            )
            said += [(at, node, rank, text) for at, text in steps]
            part = play.parts.get(rank)
            if part is not None and part.words:
                more = "gpu1:42:43 [0] NCCL INFO comm 0x55d9 rank 0 nranks 8 - Destroy COMPLETE\n" * 1500
                said.append((part.at, node, rank, part.words + (more if play.flood else "")))
    for at, node, rank, text in sorted(said):
        writer.write(node, rank, text.encode())
        writer.tick(round((at + SKEW[node]) * 5) / 5 + 0.2)
    writer.close()


@dataclass(frozen=True)
class Score:
    """What was told of a play.

    :param who: whether the right rank was named, or that it is not known
    :param why: whether the cause is right
    :param one: whether all that is told names the same
    """

    play: Play
    found: Finding | None
    who: bool
    why: bool
    one: bool

    @property
    def right(self) -> bool:
        """Whether who and why are right."""
        return self.who and self.why

    @property
    def line(self) -> str:
        """In one line."""
        said = "nothing" if self.found is None else f"{self.found.what} | {self.found.detail}"
        flags = "".join(
            mark if good else "-" for mark, good in zip("rco", (self.who, self.why, self.one), strict=True)
        )
        return f"{flags} {self.play.name}: first {self.play.first or '?'}, told: {said[:200]}"


def score(play: Play, path: Path) -> Score:
    """Play it in a folder, which is removed again."""
    folder = folder_of(play, path)
    model = folder.model()
    found = last_cause(model, folder)
    shutil.rmtree(path)
    if found is None:
        return Score(play, None, False, False, False)
    named = ranks_text(ranks_of(found.ranks))
    who = found.ranks == mask_of(play.first) if play.first else found.ranks.bit_count() > 1
    why = re.search(play.told, found.detail) is not None
    told = (state_text(model), summary(model, folder.name)[0])
    one = all(re.search(rf"ranks? {re.escape(named)}\b", line.replace(" and ", ",")) for line in told)
    return Score(play, found, who, why, one)


def scores(seed: int, count: int, path: Path) -> Iterator[Score]:
    """All of them."""
    for at, play in enumerate(plays(seed, count)):
        yield score(play, path / f"run{at}")


def table(found: Sequence[Score]) -> str:
    """Rows of Markdown: right of all, by family."""
    rows = ["| family | first and cause | first | one answer |", "|---|---|---|---|"]
    for family in (*FAMILIES, ""):
        some = [one for one in found if family in ("", one.play.family)]
        cells = (sum(getattr(one, name) for one in some) for name in ("right", "who", "one"))
        shares = " | ".join(f"{many} of {len(some)}, {many / max(1, len(some)):.0%}" for many in cells)
        rows.append(f"| {family or '**all**'} | {shares} |")
    return "\n".join(rows)
