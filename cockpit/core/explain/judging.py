"""Who broke first, and why, of those who speak in consoles: by their words and what launchers say."""

from __future__ import annotations

import bisect
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from cockpit.core.explain import launchers
from cockpit.core.explain.console import Window
from cockpit.core.explain.report import Cause, Line, Party, Report
from cockpit.core.explain.witnesses import LINE_S, Source, Witness, short_host, witnesses
from cockpit.core.logs.cause_words import VICTIM, Weight
from cockpit.core.logs.prefixes import message
from cockpit.core.masks import ranks_of
from cockpit.core.ranks import ranks_named
from cockpit.core.rules.explanation import explanation
from cockpit.core.rules.table import Table
from cockpit.core.run.failure import recorded
from cockpit.core.run.first import LISTENED, First, LoggedEnd, first_of
from cockpit.core.run.model import RunModel
from cockpit.core.run.states import Node, Rank, RankState, signal_name
from cockpit.core.text import one_line
from cockpit.lang import UNSAID, Phrase

NEAR = 40
"""Lines around a cause in which a rule may find a sign."""

_KILLED = re.compile(rb"(?:[^\n]{1,200}: line \d{1,9}: +\d{1,10} )?Killed\b")
_OOM_ONLY = re.compile(rb"(?i)oom|out of memory: killed|memory cgroup|killed due to")


def judged(sources: Sequence[Source], rules: Table) -> Report:
    """What consoles tell together."""
    court = _Court(sources, rules)
    return court.report()


class _Court:
    def __init__(self, sources: Sequence[Source], rules: Table) -> None:
        self._sources = sources
        self._rules = rules
        self._parties = witnesses(sources)

    def report(self) -> Report:
        found = self._first()
        parties = sorted(self._parties, key=lambda one: (one.rank is None, one.number))
        shown = tuple(
            Party(one.rank, one.node, one.name, max(0, one.lines), max(0, one.size), self._how(one))
            for one in parties
        )
        report = Report(
            files=tuple(
                (one.name, one.heard.lines, one.heard.size, one.heard.exact, one.notes)
                for one in self._sources
            ),
            launchers=tuple(
                dict.fromkeys(name for one in self._sources for name in one.heard.told.launchers)
            ),
            parties=shown,
        )
        return report if found is None else self._told(report, *found)

    def _first(self) -> tuple[First, RunModel] | None:
        failed = [one for one in self._parties if self._has_failed(one)]
        if not failed:
            return None
        model = RunModel()
        model.nodes[""] = Node("", ())
        failed.sort(key=lambda one: (-self._weight(one), one.at if one.cause else one.ended, one.number))
        for one in failed[:LISTENED]:
            model.ranks[one.number] = self._rank(one)
        if any(one.rank is not None for one in failed):
            listed = {one.number for one in failed}
            for one in self._parties:
                if one.rank is not None and one.number not in listed:
                    model.ranks[one.number] = Rank(one.number, "", RankState.RUNNING)
        by_number = {one.number: one for one in self._parties}

        def listen(rank: Rank) -> LoggedEnd | None:
            one = by_number[rank.rank]
            return LoggedEnd(one.cause, one.at if one.cause else None) if one.windows or one.cause else None

        first = first_of(model, listen)
        return None if first is None else (first, model)

    def _weight(self, one: Witness) -> int:
        if one.cause is not None and one.cause.weight >= Weight.VICTIM:
            return int(one.cause.weight > Weight.VICTIM)
        return 1 if one.end is not None and one.end.signal != signal.SIGTERM else 0

    def _has_failed(self, one: Witness) -> bool:
        if one.end is not None:
            return True
        if one.cause is None:
            return False
        # All workers of Ray Train are named: what is left is said by whoever started them.
        ray = not one.name and any(source.heard.told.actors for source in self._sources)
        if one.rank is None and (ray or one.cause.weight < Weight.VICTIM):
            # Of launchers' words, unless they are all there is.
            return not any(
                other is not one
                and (other.end is not None or (other.cause and other.cause.weight >= Weight.VICTIM))
                for other in self._parties
            )
        killed = (other.end is not None and other.end.signal == signal.SIGKILL for other in self._parties)
        return not (one.rank is None and self._is_oom(one) and any(killed))

    def _is_oom(self, one: Witness) -> bool:
        return one.cause is not None and _OOM_ONLY.search(one.cause.found.what.encode()) is not None

    def _rank(self, one: Witness) -> Rank:
        if one.end is None:
            return Rank(one.number, "", RankState.EXITED, code=1, ended_at=one.at)
        ended = one.ended
        number = one.end.signal
        silent = one.cause is None or one.cause.weight < Weight.VICTIM
        if silent and one.end.root and number is not None and number != signal.SIGTERM:
            ended = -1.0
        if one.end.lost:
            return Rank(one.number, "", RankState.LOST, ended_at=ended or LINE_S)
        if number is not None:
            oom = 1 if number == signal.SIGKILL and self._oom_line(one) is not None else None
            return Rank(
                one.number, "", RankState.KILLED, signal=number, oom_kills=oom, ended_at=ended or LINE_S
            )
        return Rank(one.number, "", RankState.EXITED, code=one.end.code, ended_at=ended or LINE_S)

    def _how(self, one: Witness) -> Phrase:
        if one.end is None:
            return UNSAID
        if one.end.lost:
            return Phrase("died unexpectedly")
        if one.end.signal is None:
            return Phrase("exited {}", (one.end.code,))
        return Phrase("killed by {}", (signal_name(one.end.signal),))

    def _told(self, report: Report, first: First, model: RunModel) -> Report:
        by_number = {one.number: one for one in self._parties}
        if self._only_saw(first, by_number):
            first = first._replace(how="unknown")
        firsts = [by_number[number] for number in ranks_of(first.ranks)]
        lead = firsts[0]
        speaker = next((one for one in self._parties if one.cause is first.cause), None)
        speaker = lead if speaker is None and lead.cause is not None else speaker
        facts = recorded(model.ranks[lead.number]) if first.how == "broke" else frozenset()
        cause = None
        words = b""
        near: tuple[bytes, ...] = ()
        if speaker is not None and speaker.said is not None and first.cause is not None:
            source, window, index = speaker.said
            found = first.cause.found
            lines = tuple(_lines(source, window, index, found.what))
            # What its launcher says of its end is told beside it.
            if first.cause.weight > Weight.PASSED_ON or lead.end is None:
                cause = Cause(found.what, found.evidence, lines)
            if first.cause.weight >= Weight.VICTIM or first.cause.weight is Weight.ERROR:
                # What a launcher says of an end are no words of the rank's own.
                own = not (lines and launchers.tells(lines[0].text.encode("utf-8", "surrogateescape")))
                words = found.what.encode("utf-8", "surrogateescape") if own else b""
                # Nor is what a shell says of it.
                words = b"" if _KILLED.match(words) else words
            around = window.lines[index : index + NEAR] + window.lines[max(0, index - NEAR) : index][::-1]
            near = tuple(around)
        oom = self._oom_line(lead) if "oom" in facts else None
        if oom is not None and (cause is None or first.cause is None or first.cause.weight < Weight.OWN):
            cause = Cause(oom.text, (), (oom,))
            words = oom.text.encode("utf-8", "surrogateescape")
        end_line = self._end_line(lead)
        if end_line is not None and lead.end is not None and lead.end.lost:
            near = (end_line.text.encode("utf-8", "surrogateescape"), *near)
        row = explanation(words, near, facts, self._rules)
        followers = self._followers(first, firsts)
        return replace(
            report,
            how=first.how,
            ranks=tuple(one.rank for one in firsts if one.rank is not None),
            names=tuple(dict.fromkeys(filter(None, (_named(one) for one in firsts if one.rank is None)))),
            nodes=tuple(dict.fromkeys(one.node for one in firsts if one.node)),
            what=self._what(first, firsts),
            end=self._how(lead),
            cause=cause,
            row=row,
            end_line=end_line,
            certainty="likely" if first.how in ("broke", "left") and len(firsts) == 1 else "unsure",
            waited=followers[0],
            ended_too=followers[1],
        )

    def _only_saw(self, first: First, by_number: Mapping[int, Witness]) -> bool:
        """Whether the one that is named has only seen another one's end, and its own is not told."""
        cause = first.cause
        if first.how != "broke" or cause is None or cause.weight > Weight.VICTIM:
            return False
        if cause.weight < Weight.VICTIM and not VICTIM.search(cause.found.what.encode()):
            return False
        lead = by_number[next(iter(ranks_of(first.ranks)))]
        others = sum(one.rank is not None and one is not lead for one in self._parties)
        return lead.end is None and others > 0

    def _oom_line(self, one: Witness) -> Line | None:
        for source in self._sources:
            for at, node in source.heard.told.ooms:
                if not (node and one.node and short_host(node) != short_host(one.node)):
                    line = _line(source, at)
                    if line is not None:
                        return line
        return None

    def _end_line(self, one: Witness) -> Line | None:
        """Where its launcher says how it ended."""
        if one.end is None:
            return None
        return next((line for source in one.told_by if (line := _line(source, one.end.at)) is not None), None)

    def _what(self, first: First, firsts: Sequence[Witness]) -> str:
        lead = firsts[0]
        ranks = [one.rank for one in firsts if one.rank is not None]
        who = ranks_named(ranks) if ranks else _named(lead) or "a process that no line names"
        on = f" on {lead.node}" if len(firsts) == 1 and lead.node and lead.rank is not None else ""
        if first.how == "unknown":
            return f"which rank failed first is unknown: {who} waited for others"
        if first.how == "left":
            return f"{who}{on} exited 0 while the others continued"
        if first.how == "absent":
            return f"{who}{on} did not join the others"
        return f"{who}{on} {self._how(lead).text() or 'failed'}"

    def _followers(self, first: First, firsts: Sequence[Witness]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        waited: list[int] = []
        ended: list[int] = []
        for one in self._parties:
            if one in firsts or one.rank is None or not self._has_failed(one):
                continue
            victim = one.cause is not None and one.cause.weight <= Weight.VICTIM
            stopped = one.end is not None and one.end.signal == signal.SIGTERM
            (waited if victim or (stopped and one.cause is None) else ended).append(one.rank)
        return tuple(sorted(waited)), tuple(sorted(ended))


def _line(source: Source, number: int) -> Line | None:
    """A line of a console, if it was kept."""
    for window in source.heard.windows.values():
        index = bisect.bisect_left(window.numbers, number)
        if index < len(window.numbers) and window.numbers[index] == number:
            return Line(source.name, number + 1, one_line(message(window.lines[index])[:600]))
    return None


def _named(one: Witness) -> str:
    return (
        " on ".join(filter(None, (one.name, one.node))) if one.name else one.node and f"a rank on {one.node}"
    )


def _lines(source: Source, window: Window, index: int, what: str) -> Iterator[Line]:
    """The line where the cause begins, and the one that says it."""
    yield Line(source.name, window.numbers[index] + 1, one_line(window.lines[index][:600]))
    words = what.encode("utf-8", "surrogateescape")[:40]
    for at in range(index, min(index + 400, len(window.lines))):
        if words in window.lines[at] and at != index:
            yield Line(source.name, window.numbers[at] + 1, one_line(window.lines[at][:600]))
            return
