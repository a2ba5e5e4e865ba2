"""Who speaks in consoles, or is spoken of by launchers, and what each says of its end."""

from __future__ import annotations

import bisect
import re
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from cockpit.core.explain.console import LINE_MOST, ConsoleFacts, Window
from cockpit.core.explain.launchers import End, LauncherFacts
from cockpit.core.explain.speaking import Speaker
from cockpit.core.finding import Finding
from cockpit.core.logs import causes
from cockpit.core.logs.cause_words import NOISE_BEFORE, PASSED_ON, PROGRESS, SIGNS, STOPPED, VICTIM, Weight
from cockpit.core.logs.causes import SURVIVED
from cockpit.core.logs.prefixes import TRACEBACK, message
from cockpit.core.logs.tracebacks import read_lines, read_tracebacks, shown
from cockpit.core.run.first import CRASHES
from cockpit.core.text import one_line
from cockpit.lang import Phrase

UNNAMED = 1 << 19
"""Numbers from here on stand for speakers whose rank is not known."""
SHARE = 0.3
"""So many of a console's lines have a label, or a host, if its launcher puts them there."""
LAST = 12
"""A line that says it is an error counts as a failure if no more lines follow it."""
RAISED = 40
"""Lines between an exception of a worker of Ray and what says whose it is."""
LINE_S = 1e-6
"""What one line is in time, where lines have none: all is at once, in order."""

_CLOCK = re.compile(
    rb"(\d{4})[-/](\d\d)[-/](\d\d)[ T_](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?"
    rb"|\b[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{1,6})"
)
_SUMMARY = re.compile(rb"(?:\w{1,80}\.){0,10}[A-Z]\w{0,80}(?:Error|Exception|Interrupt|Exit)(?::|\Z)")


@dataclass(frozen=True)
class Source:
    """A console that was read.

    :param name: as it was given
    :param rank: as the name says, if it is the log of one rank; None: it does not
    :param notes: what went wrong with reading it
    """

    name: str
    heard: ConsoleFacts
    rank: int | None = None
    node: str = ""
    notes: tuple[Phrase, ...] = ()


@dataclass
class Witness:
    """One who speaks, or of whom a launcher speaks."""

    number: int
    rank: int | None
    node: str
    name: str
    lines: int = 0
    size: int = 0
    windows: list[tuple[Source, Window]] = field(default_factory=list)
    end: End | None = None
    told_by: list[Source] = field(default_factory=list)
    ended: float = 0.0
    cause: causes.Cause | None = None
    said: tuple[Source, Window, int] | None = None
    """Where its cause is: the index of a line."""
    at: float = 0.0


def witnesses(sources: Sequence[Source]) -> list[Witness]:
    """All of them, of all consoles."""
    return list(_Hearing(sources).parties.values())


class _Hearing:
    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self.parties: dict[tuple[int | None, str, str], Witness] = {}
        self._clocked = len(sources) > 1
        for order, source in enumerate(sources):
            self._hear(order, source)
        for order, source in enumerate(sources):
            self._end(order, source)
        for party in self.parties.values():
            self._listen(party)
        for order, source in enumerate(sources):
            self._end_nodes(order, source)
        self._adopt()

    # Who is there

    def _hear(self, order: int, source: Source) -> None:
        heard = source.heard
        named = _settled(source)
        for speaker in dict.fromkeys([*heard.windows, *heard.counts]):
            party = self._party(*named(speaker))
            party.lines += heard.counts[speaker]
            party.size += heard.sizes[speaker]
            window = heard.windows.get(speaker)
            if window is not None and window.lines:
                self._add(party, source, window)

    def _add(self, party: Witness, source: Source, window: Window) -> None:
        for known, its in party.windows:
            if known is source:
                its.merge(window)
                return
        party.windows.append((source, window))

    def _party(self, rank: int | None, node: str, name: str) -> Witness:
        key = (rank, "" if rank is not None else node, "" if rank is not None else name)
        party = self.parties.get(key)
        if party is None:
            number = rank if rank is not None else UNNAMED + len(self.parties)
            party = self.parties[key] = Witness(number, rank, node, name)
        party.node = party.node or node
        return party

    def _end(self, order: int, source: Source) -> None:
        told = source.heard.told
        alone = len({node for node in (*told.bases, *told.mapped, *told.offsets) if node}) < 2
        for end in told.ends:
            if end.whole:
                continue
            rank = end.rank
            if rank is None and end.local is not None:
                rank = told.rank_of(end.node, end.local, alone=alone)
            if rank is None and end.local is None and end.pid is not None:
                party = self._actor(end.node, end.pid, told)
            else:
                party = self._party(rank, end.node, "" if rank is not None else f"local rank {end.local}")
            self._has_ended(party, end, order, source)

    def _actor(self, node: str, pid: int, told: LauncherFacts) -> Witness:
        """A worker of Ray; where its driver runs, lines name no address."""
        rank = told.actors.get((node, pid))
        if rank is not None:
            return self._party(rank, node, "")
        its = [one for one in self.parties.values() if one.name.endswith(f" pid {pid}")]
        its = [one for one in its if one.node == node] or [one for one in its if not (one.node and node)]
        if its:
            its[0].node = its[0].node or node
        return its[0] if its else self._party(None, node, f"worker pid {pid}")

    def _end_nodes(self, order: int, source: Source) -> None:
        """Whose ends those are of which only the node is told."""
        told = source.heard.told
        done = {end.node for end in told.ends if not end.whole}
        for end in told.ends:
            # Who started another launcher there tells its end too.
            if end.whole and end.node not in done:
                done.add(end.node)
                self._has_ended(self._one_of(end, told), end, order, source)

    def _one_of(self, end: End, told: LauncherFacts) -> Witness:
        """The one on a node that ended so, by what they say: an exception ends Python with 1."""
        here = {
            one.rank: one
            for one in self.parties.values()
            if one.rank is not None and short_host(one.node) == short_host(end.node)
        }
        ranks = told.ranks_at(end.node) or list(here)
        spoke = {
            rank: here[rank]
            for rank in ranks
            if rank in here and (cause := here[rank].cause) is not None and cause.weight >= Weight.VICTIM
        }
        own = [one for one in spoke.values() if one.cause and one.cause.weight > Weight.VICTIM]
        fit = [one for one in own if one.cause and _fits(end, one.cause)]
        fit = fit or (list(spoke.values()) if end.code == 1 else [])
        if fit:
            return min(fit, key=lambda one: one.at)
        silent = [rank for rank in ranks if rank not in spoke]
        return self._party(silent[0] if len(silent) == 1 else None, end.node, "")

    def _has_ended(self, party: Witness, end: End, order: int, source: Source) -> None:
        better = party.end is None or (end.root and not party.end.root)
        if better and end.code != 0:
            party.told_by = [source]
            first = party.end
            party.end = end if first is None else replace(end, at=first.at)
            party.ended = self._time(order, source, party.end.at)

    def _time(self, order: int, source: Source, number: int) -> float:
        return order * 10.0 + number * LINE_S

    # What they say

    def _listen(self, party: Witness) -> None:
        best: causes.Cause | None = None
        for source, window in party.windows:
            text = b"\n".join(window.lines) + b"\n"
            found = causes.search(partial(_slice, text), len(text))
            index = 0 if found is None else min(text.count(b"\n", 0, found.at), len(window.lines) - 1)
            mixed = party.rank is None and not party.name and any(end.code for end in source.heard.told.ends)
            if mixed and (found is None or found.weight <= Weight.VICTIM):
                # Others may train on for a while: their lines do not show that it was survived.
                start = _unsurvived(window, self._world(source))
                found, index = _among_others(window, found, index, start)
            ended = mixed or (party.end is not None and party.end.signal is None)
            if ended and (found is None or found.weight <= Weight.NOISE):
                found, index = _at_the_end(window, found, index, self._world(source) if mixed else SURVIVED)
            if found is None or (best is not None and found.weight <= best.weight):
                continue
            if party.rank is None and not party.name and found.weight <= Weight.VICTIM:
                found, index = _amid(window, found, index, _unsurvived(window, self._world(source)))
            if found.weight is Weight.NOISE:
                continue
            if found.weight <= Weight.ERROR and not self._last(source, window, index):
                continue
            best = found
            party.said = source, window, index
            order = self._sources.index(source)
            party.at = self._when(order, source, window, index)
        party.cause = best

    def _world(self, source: Source) -> int:
        """How many processes there are, about."""
        return max((end.rank + 1 for end in source.heard.told.ends if end.rank is not None), default=8)

    def _last(self, source: Source, window: Window, index: int) -> bool:
        """Whether hardly anything follows, of its speaker and in all."""
        rest = window.lines[index + 1 :]
        return len(rest) <= LAST and not any(PROGRESS.search(line) for line in rest)

    def _when(self, order: int, source: Source, window: Window, index: int) -> float:
        if self._clocked:
            for line in (*window.lines[index : index + 3], *window.lines[max(0, index - 30) : index][::-1]):
                clock = _seconds(line)
                if clock is not None:
                    return clock + window.numbers[index] * LINE_S
        return self._time(order, source, window.numbers[index])

    def _adopt(self) -> None:
        """What nobody named says of an end is said by the one that ended so, if that one says nothing."""
        for source in self._sources:
            for at, node, pid in source.heard.told.raised:
                self._raise(source, at, self._actor(node, pid, source.heard.told))
        ended = sorted((one for one in self.parties.values() if one.end is not None), key=_ended)
        for party in list(self.parties.values()):
            if party.rank is not None or party.cause is None or party.end is not None:
                continue
            if party.cause.weight < Weight.CHILD:
                continue
            for one in ended:
                silent = one.cause is None or one.cause.weight < Weight.VICTIM
                same = not party.node or not one.node or short_host(party.node) == short_host(one.node)
                if silent and same and _fits(one.end, party.cause):
                    one.cause, one.said, one.at = party.cause, party.said, party.at
                    party.cause = party.said = None
                    break

    def _raise(self, source: Source, at: int, actor: Witness) -> None:
        """An exception of a worker of Ray is printed by whoever asked it for something."""
        for party in list(self.parties.values()):
            if party is actor or party.said is None or party.said[0] is not source:
                continue
            _, window, index = party.said
            low = bisect.bisect_left(window.numbers, at)
            near = (
                low < len(window.numbers)
                and window.numbers[low] == at
                and low - RAISED <= index <= low + RAISED
            )
            if near and (actor.cause is None or actor.cause.weight < Weight.VICTIM):
                actor.cause, actor.said, actor.at = party.cause, party.said, party.at
                party.cause = party.said = None


def _ended(one: Witness) -> tuple[bool, float]:
    return not (one.end is not None and one.end.root), one.ended


def _fits(end: End | None, cause: causes.Cause) -> bool:
    """Whether a process that ended so may have said this."""
    number = None if end is None else end.signal
    if number is None or number in CRASHES:
        return True
    return number == signal.SIGKILL and cause.weight is Weight.ROOT


def _unsurvived(window: Window, world: int) -> int:
    """Where the first traceback is that was not survived; each of so many processes may train a step more."""
    start, progress = len(window.lines), 0
    for at in range(len(window.lines) - 1, -1, -1):
        line = window.lines[at]
        if TRACEBACK in line:
            start, progress = at, 0
        elif PROGRESS.search(line[:LINE_MOST]):
            progress += 1
            if progress > world:
                break
    return start


def _amid(window: Window, found: causes.Cause, index: int, start: int) -> tuple[causes.Cause, int]:
    """The first exception that is no victim's, amid tracebacks of several processes in each other's lines."""
    if sum(TRACEBACK in line for line in window.lines[start:]) < 2:
        return found, index
    for at in range(start, len(window.lines)):
        line = window.lines[at]
        text = message(line)
        if _SUMMARY.match(text) and not (VICTIM.search(text) or PASSED_ON.match(text) or STOPPED.match(text)):
            what = one_line(text.strip()[:2000])
            return found._replace(weight=Weight.OWN, found=Finding("cause", what, certainty="unsure")), at
        signs = SIGNS.found_in(text) if SIGNS.hint(text) else []
        if signs and max(weight for weight, _ in signs) >= Weight.OWN and not VICTIM.search(text):
            what = one_line(text.strip()[:2000])
            return found._replace(weight=Weight.OWN, found=Finding("cause", what, certainty="unsure")), at
    return found, index


def _at_the_end(
    window: Window, found: causes.Cause | None, index: int, most: int
) -> tuple[causes.Cause | None, int]:
    """The last traceback of a process that failed, although a line beside it says that it continues."""
    text = b"\n".join(window.lines)
    starts: list[int] = []
    lines = read_lines(text, starts)
    each = next(iter(read_tracebacks(lines)[::-1]), None)
    if each is None or any(
        NOISE_BEFORE.search(line) for line in lines[max(0, each.start - 2) : each.start + 1]
    ):
        return found, index
    if sum(PROGRESS.search(line[:LINE_MOST]) is not None for line in lines[each.end + 1 :]) >= most:
        return found, index
    weight = Weight.VICTIM if VICTIM.search(each.summary) else Weight.OWN
    if PASSED_ON.match(each.summary) or STOPPED.match(each.summary):
        return found, index
    at = starts[each.start]
    what = one_line(each.summary[:2000])
    told = Finding("cause", what, evidence=shown(each.frames), certainty="unsure")
    return causes.Cause(weight, told, at), text.count(b"\n", 0, at)


def _among_others(
    window: Window, found: causes.Cause | None, index: int, start: int
) -> tuple[causes.Cause | None, int]:
    """What one of several processes says of its end, without what others print of their training after it."""
    lines = window.lines
    kept = [at for at, line in enumerate(lines) if at < start or not PROGRESS.search(line[:LINE_MOST])]
    text = b"\n".join(window.lines[at] for at in kept) + b"\n"
    other = causes.search(partial(_slice, text), len(text))
    if other is None or (found is not None and other.weight <= found.weight):
        return found, index
    return other, kept[min(text.count(b"\n", 0, other.at), len(kept) - 1)]


def _slice(text: bytes, start: int, length: int) -> bytes:
    return text[start : start + length]


def short_host(node: str) -> str:
    """A node's name without its domain."""
    return node.partition(".")[0]


def _settled(source: Source) -> Callable[[Speaker], tuple[int | None, str, str]]:
    """How speakers of a console are to be understood: rank, node and name of each."""
    heard = source.heard
    told = heard.told
    every = sum(heard.counts.values()) or 1
    kinds = Counter[str]()
    for speaker, count in heard.counts.items():
        kinds[speaker.kind] += count
        kinds["on a host"] += count * bool(speaker.node and speaker.kind != "actor")
    labels = kinds["label"] >= SHARE * every
    hosts = kinds["on a host"] >= SHARE * every
    nodes = {one.node for one in heard.counts if one.node} if hosts else set()
    alone = len(nodes) < 2

    def named(one: Speaker) -> tuple[int | None, str, str]:
        node = one.node if hosts or one.kind in ("rank", "actor") else ""
        node = node or source.node
        if one.kind == "rank" or (one.kind == "label" and labels):
            return one.number, node, ""
        if one.kind == "local":
            rank = told.rank_of(one.node, one.number, alone=alone)
            return (rank, node, "") if rank is not None else (None, node, f"local rank {one.number}")
        if one.kind == "actor":
            rank = told.actors.get((one.node, one.number))
            if rank is None:
                node, rank = _only(told.actors, one.number) or (node, None)
            if rank is None and told.actors:
                return None, "", ""  # it is no rank: Ray's own, who says what became of them
            return (rank, node, "") if rank is not None else (None, node, f"{one.name} pid {one.number}")
        if source.rank is not None:
            return source.rank, node, ""
        return None, node, ""

    return named


def _only(actors: dict[tuple[str, int], int], pid: int) -> tuple[str, int] | None:
    """The address and rank of the one worker of Ray with this pid; where the driver runs, lines name none."""
    found = [(node, rank) for (node, its), rank in actors.items() if its == pid]
    return found[0] if len(found) == 1 else None


def _seconds(line: bytes) -> float | None:
    """The time that a line tells, as seconds of some clock of the same kind."""
    found = _CLOCK.search(line[:300])
    if found is None:
        return None
    if found[1]:
        month, day, hour, minute, second = (int(found[at]) for at in range(2, 7))
        rest = found[7]
    else:
        month, day, hour, minute, second = (int(found[at]) for at in range(8, 13))
        rest = found[13]
    part = float(b"0." + rest) if rest else 0.0
    return (((month * 31 + day) * 24 + hour) * 60 + minute) * 60 + second + part
