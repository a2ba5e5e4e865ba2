"""What a run was, counted once more from the files in its folder: by other code than that of the report."""

from __future__ import annotations

import json
import math
import re
import signal
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

SAID = re.compile(r"^step (\d+)/\d+ loss (\S+) tokens/s (\d+)$", re.MULTILINE)
TOGETHER_S = 3.0
"""Ends that are alike are told as one, within so many seconds."""

Span = tuple[float, float]


class PaceLine(NamedTuple):
    """The fields of a line of the pace that are counted again."""

    restarts: int
    step: int
    at: float
    many: int
    span: float
    exact: bool


class Happened(NamedTuple):
    """What is told as one event: when, of whom, and how bad it is."""

    at: float
    level: str
    rank: int | None = None


def rows(path: Path) -> list[dict[str, Any]]:
    """The lines of a file; none if it is not there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def length(spans: Iterable[Span]) -> float:
    """Seconds that are in at least one of them."""
    whole, until = 0.0, -math.inf
    for begin, end in sorted(spans):
        whole += max(0.0, end - max(begin, until))
        until = max(until, end)
    return whole


class Recount:
    """The numbers of a run of one node.

    :param timed: the last step of which its report says how long it took: what only logs tell may be too
        short a time to say so
    """

    def __init__(self, folder: Path, timed: float = math.inf) -> None:
        self.spool = folder / "spool" / "0000-localhost"
        self.journal = rows(folder / "journal.jsonl")
        self.record = rows(self.spool / "events.jsonl")
        self.sizes = rows(self.spool / "times.jsonl")
        found = [json.loads(line) for line in _lines(folder / "pace.jsonl")]
        self.pace = [PaceLine(one[0], one[1], one[2], one[3], one[5], one[11]) for one in found]
        self.logs = {rank: _text(self.spool / f"rank-{rank}.log") for rank in self.ranks}
        self.rest = self._rest(timed)
        """What only logs tell, after the last line of the pace: times are as exact as their index."""
        self.untimed = not self.pace
        """Whether logs alone tell of steps: the run was too short for a line of the pace."""
        self.pace += self._told() if self.untimed else self.rest

    def _rest(self, timed: float) -> list[PaceLine]:
        if not self.pace or self.exact:
            return []
        found: dict[int, float] = {}
        for rank, log in self.logs.items():
            if lines := list(SAID.finditer(log)):
                step, at = int(lines[-1][1]), self._written(rank, lines[-1].end() + 1)
                found[step] = min(at, found.get(step, at))
        rest, last = [], self.pace[-1]
        for step, at in sorted(found.items()):
            if timed >= step > last.step and at > last.at:
                many = step - last.step
                last = PaceLine(0, step, at, many, (at - last.at) / many, False)
                rest.append(last)
        return rest

    def _told(self) -> list[PaceLine]:
        """Steps between times of the log that counts."""
        log = "" if self.speaker is None else self.logs[self.speaker]
        last: dict[float, int] = {}
        for line in SAID.finditer(log):
            last[self._written(self.speaker or 0, line.end() + 1)] = int(line[1])
        times = sorted(last)
        return [
            PaceLine(0, last[at], at, last[at] - last[since], (at - since) / (last[at] - last[since]), False)
            for since, at in pairwise(times)
        ]

    def _written(self, rank: int, end: int) -> float:
        """When a log had so many bytes."""
        name = f"rank-{rank}.log"
        return float(next(one["t"] for one in self.sizes if one["s"].get(name, 0) >= end)) - self.offsets[-1]

    # How it ended

    @cached_property
    def ranks(self) -> list[int]:
        """All of them."""
        return sorted(
            rank for one in self.journal if one["e"] == "planned" for rank in one["nodes"]["localhost"]
        )

    @cached_property
    def began(self) -> float:
        """Unix seconds."""
        return float(next(one["t"] for one in self.journal if one["e"] == "planned"))

    @cached_property
    def offsets(self) -> list[float]:
        """Seconds that the node's clock was ahead, the last one last."""
        return [one["offset_s"] for one in self.journal if one["e"] == "clock"] or [0.0]

    @cached_property
    def exits(self) -> dict[int, dict[str, Any]]:
        """How each rank ended."""
        return {one["rank"]: one for one in self.record if one["e"] == "rank_exited"}

    @cached_property
    def ended(self) -> float:
        """Unix seconds on our clock."""
        return float(max(one["t"] for one in self.exits.values())) - self.offsets[-1]

    @cached_property
    def bad(self) -> list[int]:
        """The ranks that did not exit 0, the first one first."""
        bad = [one for one in self.exits.values() if one["signal"] is not None or one["code"]]
        return [one["rank"] for one in sorted(bad, key=lambda one: one["t"])]

    @cached_property
    def code(self) -> int:
        """The exit code."""
        hung = any(one["e"] == "stop_asked" and one["by"] == "the watch" for one in self.journal)
        return 4 if hung else int(bool(self.bad))

    def how(self, rank: int) -> str:
        """``exited 3``, ``killed by SIGKILL``."""
        return self._how(self.exits[rank])

    @staticmethod
    def _how(one: Mapping[str, Any]) -> str:
        return (
            f"exited {one['code']}"
            if one["signal"] is None
            else f"killed by {signal.Signals(one['signal']).name}"
        )

    @cached_property
    def first_bad(self) -> int | None:
        """The rank that failed first, before anybody asked for a stop."""
        asked = [one["t"] for one in self.record if one["e"] == "stop_requested"]
        if not self.bad or (asked and self.exits[self.bad[0]]["t"] >= min(asked)):
            return None
        return self.bad[0]

    # Its steps

    @cached_property
    def speaker(self) -> int | None:
        """The rank whose log counts: the lowest that tells of steps."""
        return next((rank for rank in self.ranks if SAID.search(self.logs[rank])), None)

    @cached_property
    def said(self) -> list[tuple[int, float, float]]:
        """Steps, with loss and tokens per second, as its log has them."""
        log = "" if self.speaker is None else self.logs[self.speaker]
        return [(int(step), float(loss), float(speed)) for step, loss, speed in SAID.findall(log)]

    @cached_property
    def steps(self) -> set[tuple[int, int]]:
        """All that the pace or its log tells of: how often ranks had been restarted, and the step."""
        found = {(line.restarts, line.step - back) for line in self.pace for back in range(line.many)}
        restarts = before = 0
        for step, _, _ in self.said:
            restarts += step <= before
            before = step
            found.add((restarts, step))
        return found

    @cached_property
    def exact(self) -> bool:
        """Whether ranks noted their steps."""
        return any(line.exact for line in self.pace)

    @cached_property
    def begun_s(self) -> float | None:
        """Seconds until the first step was over."""
        first = min(self.steps, default=(0, None))[1]
        line = self.pace[0] if self.pace else None
        if first is None:
            return None
        if self.said and self.said[0][0] == first and (line is None or line.step != first):
            found = SAID.search(self.logs[self.speaker or 0])
            assert found is not None
            at = self._written(self.speaker or 0, found.end() + 1)
            return min(at, line.at if line else math.inf) - self.began
        assert line is not None
        return line.at - (line.many - 1) * line.span - self.began

    @cached_property
    def stretches(self) -> list[Span]:
        """From when to when the steps of each line of the pace went."""
        found: list[Span] = []
        for before, line in zip([None, *self.pace], self.pace, strict=False):
            last = line.restarts, line.step - line.many
            follows = before is not None and (before.restarts, before.step) == last and line.at > before.at
            began = before.at if before is not None and follows and line.exact and line.many > 1 else None
            found.append((line.at - line.many * line.span if began is None else began, line.at))
        return found

    @cached_property
    def mean_s(self) -> float | None:
        """Seconds of a step."""
        many = sum(line.many for line in self.pace)
        return sum(end - begin for begin, end in self.stretches) / many if many else None

    # Its wall time

    @cached_property
    def stalls(self) -> list[Span]:
        """From when to when ranks stood still."""
        found, since = [], None
        for one in self.journal:
            if one["e"] == "watch" and one["state"] == "stalled":
                since = one["since"] if since is None else since
            elif one["e"] == "watch" and one["state"] == "going" and since is not None:
                found.append((since, since + one["still_s"] if one["still_s"] else one["t"]))
                since = None
        return [*found, *([] if since is None else [(since, self.ended)])]

    @cached_property
    def wall(self) -> dict[str, float]:
        """Seconds of each part that can be in such a run; empty: no step was timed."""
        if not self.stretches:
            return {}
        starts, since = list[Span](), self.began
        for last, line, (begin, end) in zip([None, *self.pace], self.pace, self.stretches, strict=False):
            if last is None or last.restarts < line.restarts:
                starts.append((since, begin))
            since = end
        layers = {
            "stalled": self.stalls,
            "lost": [span for span, line in zip(self.stretches, self.pace, strict=True) if self._again(line)],
            "steps": self.stretches,
            "start": starts,
            "other": [(self.began, self.ended)],
        }
        taken: list[Span] = []
        parts, before = {}, 0.0
        for name, spans in layers.items():
            taken += [(max(begin, self.began), min(end, self.ended)) for begin, end in spans]
            parts[name] = length(taken) - before
            before += parts[name]
        return parts

    def _again(self, line: PaceLine) -> bool:
        """Whether its steps were done again: each start of these ranks begins with step 1."""
        return line.restarts < self.pace[-1].restarts

    @cached_property
    def lost_steps(self) -> int | None:
        """Steps that were done again; None: a run that failed lost some, but no log names a checkpoint."""
        return None if self.code else sum(line.many for line in self.pace if self._again(line))

    # What happened

    @cached_property
    def events(self) -> list[Happened]:
        """What is told as an event, in the order of time."""
        return sorted([*self._own_events(), *self._record_events()], key=lambda one: one.at)

    def _own_events(self) -> Iterable[Happened]:
        known: set[tuple[str, str]] = set()
        for one in self.journal:
            kind, level = one["e"], "info"
            if kind in ("launched", "link"):
                yield Happened(one["t"], level)
            elif kind == "stop_asked":
                yield Happened(one["t"], "warning")
            elif kind == "notice" and not one["over"] and ("notice", one["id"]) not in known:
                known.add(("notice", one["id"]))
                yield Happened(one["t"], one["severity"])
            elif kind == "watch":
                before = {key for key in known if key[0] in ("quiet", "stalled")}
                key = one["state"], (one["found"] or {}).get("what", "")
                if before if one["state"] == "going" else key not in known:
                    yield Happened(one["t"], "warning" if one["state"] == "stalled" else "info")
                known = known - before if one["state"] == "going" else known | {key}

    def _record_events(self) -> Iterable[Happened]:
        asked = any(one["e"] == "stop_asked" for one in self.journal)
        running: set[int] = set()
        attempts = dict.fromkeys(self.ranks, 0)
        alike: dict[str, float] = {}
        at = -math.inf
        for one in self.record:
            # It is written in order, whatever its times are.
            kind, at = one["e"], max(at, one["t"] - self.offsets[-1])
            if kind == "rank_started" and one.get("attempt"):
                attempts[one["rank"]] = one["attempt"]
                yield Happened(at, "warning")
            elif kind == "rank_started":
                running.add(one["rank"])
                if len(running) == len(self.ranks):
                    yield Happened(at, "info")
            elif kind in ("stage", "ended"):
                yield Happened(at, "info")
            elif kind == "evidence":
                yield Happened(at, "info" if one.get("file") else "warning")
            elif kind == "note" or (kind == "stop_requested" and not asked):
                yield Happened(at, "warning")
            elif kind == "rank_exited" and one.get("attempt", 0) >= attempts[one["rank"]]:
                running.discard(one["rank"])
                rank, how, bad = one["rank"], self._how(one), one["signal"] is not None or bool(one["code"])
                if rank == self.first_bad:  # one that may be restarted is none that failed
                    yield Happened(at, "error", rank)
                elif abs(at - alike.get(how, -math.inf)) >= TOGETHER_S:
                    alike[how] = at
                    yield Happened(at, "warning" if bad else "info")


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _lines(path: Path) -> list[str]:
    return _text(path).splitlines()


def numbers_in(told: Any, path: str = "") -> set[str]:
    """Where in some JSON numbers are: ``curves[].first``."""
    if isinstance(told, Mapping):
        return {
            found for name, each in told.items() for found in numbers_in(each, f"{path}.{name}".lstrip("."))
        }
    if isinstance(told, list):
        return {found for each in told for found in numbers_in(each, f"{path}[]")}
    return {path} if isinstance(told, int | float) and not isinstance(told, bool) else set()
