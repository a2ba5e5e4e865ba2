"""Feeds the rules, and says what is news: a thing once, then each minute that it still is so, and its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TypeVar

from cockpit.base.events import Notice, NoticeStep, Sample
from cockpit.base.shell import quote
from cockpit.core.finding import RULE_FAILED
from cockpit.core.logs.metrics import Metrics
from cockpit.core.pace.pace import Pace
from cockpit.core.run.notices.checkpoint import Checkpoint
from cockpit.core.run.notices.disk import Disk
from cockpit.core.run.notices.gpu import Gpu
from cockpit.core.run.notices.limit import TimeLimit
from cockpit.core.run.notices.loss import Loss
from cockpit.core.run.notices.members import Members
from cockpit.core.run.notices.reach import Reach
from cockpit.core.run.notices.rule import About, Condition, Rule
from cockpit.core.run.notices.slow import SlowRanks
from cockpit.core.run.notices.throughput import Throughput
from cockpit.core.run.states import RankState, Run
from cockpit.core.text import one_line

RULES: tuple[type[Rule], ...] = (
    Loss,
    Throughput,
    Disk,
    Checkpoint,
    TimeLimit,
    Gpu,
    SlowRanks,
    Reach,
    Members,
)
"""All rules; the switch of each has its id."""

AGAIN_S = 60.0
"""A notice that still holds is repeated, so that a ``cockpit ps`` elsewhere knows it is current."""

ALIKE_S = 5.0
"""Two clocks that advance by amounts more different than this: one was set, or this machine slept."""

MOST_STEPS = float(1 << 40)
"""A greater number in a log is no step."""

FLOOD = 1 << 14
"""Of more bytes than this at once, a flood or what was missed, rules are shown the end: looking through all
of it would take longer than fetching it."""

MOST = 32
"""Notices of one rule that are told at a time: a whole cluster may have the same trouble."""
_MORE = "more"

_SPOKEN = ("loss", "samples_s", "tokens_s")
_Result = TypeVar("_Result")


def _end(data: bytes) -> bytes:
    """What rules are shown of bytes that a rank printed: whole lines, if there is more before them."""
    if len(data) <= FLOOD:
        return data
    end = data[-FLOOD:]
    return end[end.find(b"\n") :]  # the newline too: what was held of a line before is no part of it


@dataclass
class _Active:
    seen: Condition
    at: float


class Watch:
    """Watches one run.

    :param off: ids of rules that are switched off
    """

    def __init__(self, about: About, off: Collection[str] = ()) -> None:
        self._rules = [rule(about) for rule in RULES if rule.id not in off]
        self._name = about.name
        self._failed: list[Notice] = []
        self._told: dict[tuple[str, str], _Active] = {}
        self._metrics = Metrics()
        self._reads = True
        self._speakers: dict[str, float] = {}
        self._looked: tuple[float, float] | None = None
        self._linked = True
        self._attempts = 0
        self.said_step: tuple[int, float, bool] | None = None
        """The run's last logged step, its time (unix seconds), and whether it is the final one."""

    @property
    def limit(self) -> TimeLimit | None:
        """The rule that has to be told the time limit of the job; None: there is nothing to ask for."""
        found = next((rule for rule in self._rules if isinstance(rule, TimeLimit)), None)
        return found if found is not None and found.about.job else None

    @property
    def saves(self) -> Sequence[float]:
        """When lines of logs named a checkpoint, unix seconds; empty also if the rule is switched off."""
        return next((tuple(rule.saves) for rule in self._rules if isinstance(rule, Checkpoint)), ())

    def sampled(self, at: float, node: str, sample: Sample, run: Run) -> None:
        """A node was measured."""
        self._each(lambda rule: rule.sampled(at, node, sample, run))

    def log(self, at: float, node: str, rank: int | None, data: bytes) -> None:
        """A rank printed these bytes; None: its launcher. One rank speaks for the run, as on the screen."""
        end = _end(data)
        self._each(lambda rule: rule.printed(at, node, rank, end))
        order = inf if rank is None else rank
        if "loss" in self._speakers and order > max(self._speakers.values()):
            return
        if not self._feed(rank, data, at):
            return
        said = dict(self._metrics.said(rank))
        if 0 <= said.get("step", -1.0) <= MOST_STEPS:
            place = self._metrics.place
            self.said_step = int(said["step"]), at, place is not None and place[0] >= place[1]
        for name in _SPOKEN:
            if name in said and order > self._speakers.setdefault(name, order):
                del said[name]
            elif name in said:
                self._speakers[name] = order
        self._each(lambda rule: rule.read(at, said))

    def _feed(self, rank: int | None, data: bytes, at: float) -> bool:
        try:
            return self._reads and self._metrics.feed(rank, data, at)
        except Exception as error:
            self._reads = False
            self._fail("numbers of logs", error)
            return False

    def look(self, at: float, ticks: float, run: Run, pace: Pace) -> Iterator[Notice]:
        """What is news; to be called once a second.

        :param at: unix seconds
        :param ticks: seconds of a clock that nobody sets
        """
        self._mind_time(at, ticks, run)
        if not any(rank.state is RankState.RUNNING for rank in run.ranks.values()) or run.asked_to_stop:
            return
        attempts = sum(rank.attempt for rank in run.ranks.values())
        if attempts != self._attempts:
            self._attempts = attempts
            self._each(lambda rule: rule.restarted())
        for rule, seen in self._each(lambda rule: list(rule.look(at, run, pace))):
            yield from self._news(at, rule, seen, run)
        yield from self._failed
        self._failed.clear()

    def _mind_time(self, at: float, ticks: float, run: Run) -> None:
        before, self._looked = self._looked, (at, ticks)
        linked = all(node.link in ("ok", "connecting") or node.over for node in run.nodes.values())
        back, self._linked = linked and not self._linked, linked
        jumped = before is not None and abs(at - before[0] - (ticks - before[1])) > ALIKE_S
        late = before is not None and ticks - before[1] > 2 * ALIKE_S
        if back or jumped or late:
            self._each(lambda rule: rule.interrupted())

    def _news(self, at: float, rule: Rule, found: Iterable[Condition], run: Run) -> Iterator[Notice]:
        seen_all = list(found)
        shown = _fairly(rule.id, self._name, seen_all, at)
        now = {seen.of: _as_known(rule, seen, run) if rule.lasting else seen for seen in shown}
        there = {seen.of for seen in seen_all}
        for of, seen in now.items():
            told = self._told.get((rule.id, of))
            due = told is not None and (told.seen.due is None) == (seen.due is None)
            if told is None or not due or not 0 <= at - told.at < AGAIN_S:
                self._told[rule.id, of] = _Active(seen, at)
                yield notice(rule.id, seen)
        gone = [key for key in self._told if key[0] == rule.id and key[1] not in now]
        for key in gone:
            told = self._told[key]
            if not any(run.nodes[node].link != "ok" for node in told.seen.nodes if node in run.nodes):
                del self._told[key]
                # What only made room for others is not over.
                what = "" if key[1] in there or key[1] == _MORE else self._ended(rule, key[1])
                yield Notice(rule.id, key[1], what, told.seen.since, over=True)

    def _ended(self, rule: Rule, of: str) -> str:
        try:
            return rule.ended(of)
        except Exception as error:
            self._rules.remove(rule)
            self._fail(rule.id, error)
            return ""

    def _each(self, do: Callable[[Rule], _Result]) -> list[tuple[Rule, _Result]]:
        """Do something with every rule; one that raises an error costs itself only."""
        results = []
        for rule in list(self._rules):
            try:
                results.append((rule, do(rule)))
            except Exception as error:
                self._rules.remove(rule)
                self._fail(rule.id, error)
        return results

    def _fail(self, rule: str, error: Exception) -> None:
        what = one_line(f"the rule {rule} failed: {type(error).__name__}: {error}", limit=300)
        self._failed.append(Notice(RULE_FAILED, rule, what, time.time(), certainty="sure"))


def _fairly(rule: str, name: str, found: list[Condition], at: float) -> list[Condition]:
    """Of many notices of one rule as many as are told, the first of each node first; and how many more."""
    if len(found) <= MOST:
        return found
    many: dict[tuple[str, ...], int] = {}
    places = []
    for place, seen in enumerate(found):
        many[seen.nodes] = many.get(seen.nodes, 0) + 1
        places.append((many[seen.nodes], place))
    kept = [found[place] for _, place in sorted(places)[:MOST]]
    rest = len(found) - MOST
    what = f"{rest:,} more notice{'s' * (rest > 1)} like these ({rule})"
    step = NoticeStep(f"cockpit ps {quote(name)}", "those that are shown")
    return [*kept, Condition(_MORE, what, at, severity=kept[0].severity, certainty="sure", steps=(step,))]


def _as_known(rule: Rule, seen: Condition, run: Run) -> Condition:
    """What is seen, in the words of a cockpit that saw it earlier, and not its end."""
    _, known = run.notices.get((rule.id, seen.of), (0.0, None))
    if known is None or known.since >= seen.since:
        return seen
    return replace(seen, what=known.what, since=known.since, evidence=known.evidence, step=known.step)


def notice(rule: str, seen: Condition) -> Notice:
    """The fact of what a rule has seen."""
    return Notice(
        rule,
        seen.of,
        one_line(seen.what, limit=300),
        seen.since,
        seen.due,
        tuple(one_line(text, limit=300) for text in seen.evidence),
        seen.certainty,
        seen.severity,
        seen.nodes,
        seen.ranks,
        seen.steps,
        step=seen.step,
    )
