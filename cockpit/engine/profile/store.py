"""Profiles on disk: a folder a collection, named by its number, below ``profiles`` of a run.

====================  =================================================================================
``collection.json``   who was asked for what, when, and what came of each rank
``rank-N.json.gz``    of ``torch``: the summary of global rank N
``rank-N.folded``     of ``cpu``: its stacks, folded; of ``nsys`` there is nothing beside the reports
====================  =================================================================================
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from cockpit import __version__
from cockpit.base import gate
from cockpit.base.gate import (
    Definition,
    Digits,
    ListOf,
    Malformed,
    MapOf,
    Of,
    Text,
    bound,
    maybe,
    plain,
    read,
)
from cockpit.base.profile.summary import RankProfile
from cockpit.base.shared_fields import PROFILE_ID, PROFILE_STEPS
from cockpit.config import Quotas
from cockpit.core.profile.collection import DONE, Collection, RankResult
from cockpit.core.text import one_line
from cockpit.engine import files
from cockpit.engine.quotas import Space
from cockpit.errors import CockpitError, os_error
from cockpit.private import private_dir

FORMAT = 1
"""Version of the files; a reader refuses a newer one."""

MAIN = "collection.json"

LIMIT = 32 << 20
"""Bytes of one file: a larger one is not ours."""

NUMBER = r"[1-9][0-9]{0,8}"
"""How a folder of one is called."""


class _Rank(Definition):
    node: str = bound(Text(255))
    state: str = bound(gate.WORD, "")
    why: str = bound(gate.SENTENCE, "")
    began: float | None = maybe(gate.TIME)
    file: str = bound(Text(1000), "")
    size: int = bound(gate.SIZE, 0)
    sha256: str = bound(Text(64), "")
    rate: int = bound(gate.COUNT, 0)
    samples: int = bound(gate.COUNT, 0)
    errors: int = bound(gate.COUNT, 0)


class _Head(Definition):
    """``collection.json``."""

    id: str = bound(PROFILE_ID)
    run: str = bound(Text(255))
    kind: str = bound(Text(10, "torch|cpu|nsys"))
    at: float = bound(gate.TIME)
    first: int | None = maybe(gate.COUNT)
    steps: int = bound(gate.Whole(0, PROFILE_STEPS), 0)
    seconds: float | None = maybe(gate.SECONDS)
    options: tuple[str, ...] = bound(ListOf(gate.WORD, 10), ())
    ranks: dict[int, _Rank] = bound(MapOf(Digits(gate.RANK), Of(_Rank), gate.RANK_LIMIT))
    offsets: dict[str, float] = bound(MapOf(Text(255), gate.SECONDS, 1 << 16), {})
    before: float | None = maybe(gate.SECONDS)
    during: float | None = maybe(gate.SECONDS)
    after: float | None = maybe(gate.SECONDS)
    cancelled: str = bound(gate.SENTENCE, "")
    since: dict[int, int] = bound(MapOf(Digits(gate.RANK), gate.COUNT, gate.RANK_LIMIT), {})


class _Version(Definition):
    """The part of ``collection.json`` that every version has."""

    format: int = bound(gate.COUNT)
    version: str = bound(gate.WORD, "")


class Store:
    """Where the profiles of one job are kept.

    :param root: the folder of them
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._kept: set[int] = set()
        """Ranks of the collection under way whose file is written."""

    def numbers(self) -> list[int]:
        """Of all collections here, the oldest first."""
        try:
            names = os.listdir(self.root)
        except OSError:
            return []
        return sorted(int(name) for name in names if re.fullmatch(NUMBER, name))

    def folder(self, number: int) -> Path:
        """That of one."""
        return self.root / str(number)

    def begin(self, quotas: Quotas) -> int:
        """Make room for another one, and give its number; the oldest go where there are too many.

        :raises CockpitError: there is no room, or it cannot be made
        """
        try:
            private_dir(self.root)
            Space(self.root, quotas).check(LIMIT)
            known = self.numbers()
            for number in known[: max(0, len(known) - max(1, quotas.profiles) + 1)]:
                shutil.rmtree(self.folder(number), ignore_errors=True)
            number = known[-1] + 1 if known else 1
            while True:
                try:
                    self.folder(number).mkdir(mode=0o700)
                    break
                except FileExistsError:
                    number += 1
        except OSError as error:
            raise os_error("cannot make a folder", error.filename or self.root, error) from None
        self._kept = set()
        return number

    def discard(self, number: int) -> None:
        """Remove one that has not begun."""
        with suppress(OSError):
            self.folder(number).rmdir()

    def save(self, one: Collection) -> None:
        """Write what is not written yet; each file is whole, or as it was before.

        :raises CockpitError: it cannot be written
        """
        folder = self.folder(one.number)
        for rank, result in one.results.items():
            if result.state != DONE or rank in self._kept or one.kind == "nsys":
                continue
            if result.summary is not None:
                data = gzip.compress(json.dumps(_as_sent(result.summary)).encode(), 6, mtime=0)
                files.replace(folder / f"rank-{rank}.json.gz", data)
            else:
                files.replace(folder / f"rank-{rank}.folded", result.folded.encode("utf-8", "replace"))
            self._kept.add(rank)
        files.replace(folder / MAIN, json.dumps(_told(one), indent=1).encode())

    def load(self, number: int) -> Collection:
        """A collection.

        A rank whose file is missing or damaged is in it, with the reason.

        :raises CockpitError: there is none, a newer cockpit wrote it, or it is damaged
        """
        one = self.head(number)
        return replace(one, results={rank: self._with(one, result) for rank, result in one.results.items()})

    def head(self, number: int) -> Collection:
        """The same without summaries and stacks.

        :raises CockpitError: see :meth:`load`
        """
        file = self.folder(number) / MAIN
        try:
            told = gate.parsed(files.read_small(file, LIMIT))
            written = read(_Version, told)
            if written.format > FORMAT:
                what = f"written by cockpit {one_line(written.version)}, which is newer than this one"
                raise CockpitError(what, where=str(file))
            head = read(_Head, told)
        except FileNotFoundError:
            raise self.absent(number) from None
        except OSError as error:
            raise os_error("cannot be read", file, error) from None
        except Malformed as error:
            raise CockpitError(f"is damaged: {one_line(str(error), limit=200)}", where=str(file)) from None
        results = {rank: _result(rank, each) for rank, each in head.ranks.items()}
        fields = {name: value for name, value in vars(head).items() if name != "ranks"}
        fields["cancelled"] = one_line(head.cancelled, limit=300)
        return Collection(number, results=results, **fields)

    def absent(self, number: int | None) -> CockpitError:
        """That there is no such collection, and what there is."""
        known = self.numbers()
        if not known:
            return CockpitError("there is no profile of it here", where=str(self.root.parent.name))
        have = f"it has {', '.join(map(str, known[-10:]))}"
        return CockpitError(f"no profile {number}", where=str(self.root.parent.name), hint=have)

    def heads(self) -> list[Collection]:
        """All that can be read, the oldest first."""
        found = []
        for number in self.numbers():
            with suppress(CockpitError):
                found.append(self.head(number))
        return found

    def _with(self, one: Collection, result: RankResult) -> RankResult:
        if result.state != DONE or one.kind == "nsys":
            return result
        folder = self.folder(one.number)
        try:
            if one.kind == "torch":
                packed = files.read_small(folder / f"rank-{result.rank}.json.gz", LIMIT)
                text = zlib.decompressobj(31).decompress(packed, LIMIT)
                summary = read(RankProfile, gate.parsed(text))
                if summary.rank != result.rank:
                    raise Malformed(f"it is of rank {summary.rank}")
                return replace(result, summary=summary)
            folded = files.read_small(folder / f"rank-{result.rank}.folded", LIMIT)
            return replace(result, folded=folded.decode("utf-8", "replace"))
        except (OSError, Malformed, zlib.error) as error:
            why = getattr(error, "strerror", None) or str(error)
            return replace(
                result, state="failed", why=f"its file here cannot be read: {one_line(why, limit=200)}"
            )


def _result(rank: int, told: _Rank) -> RankResult:
    return RankResult(
        rank, **{**vars(told), "why": one_line(told.why, limit=300), "node": one_line(told.node)}
    )


def _as_sent(summary: RankProfile) -> dict[str, Any]:
    """A summary as its node sends it: what there is many of are rows."""
    told: dict[str, Any] = plain(summary)
    for name in ("steps", "operations", "collectives"):
        told[name] = [list(row.values()) for row in told[name]]
    return told


def _told(one: Collection) -> Mapping[str, Any]:
    """``collection.json``."""
    left_out = ("number", "results")
    return {
        "format": FORMAT,
        "version": __version__,
        **{name: value for name, value in vars(one).items() if name not in left_out},
        "ranks": {
            str(rank): {
                name: value
                for name, value in vars(result).items()
                if name not in ("rank", "summary", "folded")
            }
            for rank, result in sorted(one.results.items())
        },
    }
