"""How long there has been no sign of progress, from the best source there is: steps, a log, CPU time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cockpit.base.stillness import NEVER, STEPS, Pause, Sign, Signs, is_busy
from cockpit.core.masks import mask_of
from cockpit.core.pace.pace import Pace
from cockpit.core.run.probes import notes_steps
from cockpit.core.run.states import Node, Rank, RankState, Run

FRESH_S = 5.0
"""A node that was not measured for so long cannot tell that its ranks stand still."""
START = 10
"""So many times as long as a rank may stand still it may begin later than the others."""


@dataclass(frozen=True)
class Progress(Sign):
    """What can be said of a run's progress at one moment, beside the best sign of it.

    :param runs: whether it is to make any: ranks run, nobody has asked to stop it, none of them has failed
    :param known: whether what is known is of this moment: some node is linked, and those that are tell
    :param step: the last one of the front; None: there was none, or it is not known
    :param noting: whether some rank notes its steps, or will
    :param age_of_start_s: seconds since the last of the ranks began
    :param behind: ranks that have stood still for long while others go on, as a mask
    :param behind_s: for so long
    :param lost: nodes without a link
    :param heard_at: when that of the nodes with running ranks was measured that was not for longest, unix
        seconds; 0: one never was
    :param longest: the longest step that the run has made; known only once there has been none for long
    :param final: whether no step is to follow, according to its log
    """

    runs: bool = False
    known: bool = False
    step: int | None = None
    noting: bool = False
    age_of_start_s: float = 0.0
    behind: int = 0
    behind_s: float = 0.0
    lost: tuple[str, ...] = ()
    heard_at: float = 0.0
    longest: Pause = NEVER
    final: bool = False


class Tracker:
    """Follows a run's progress; to be asked once a second.

    :param least_s: how long a rank has stood still at least to be called behind
    """

    def __init__(self, least_s: float) -> None:
        self._least_s = least_s
        self._signs = Signs()
        self._measured: dict[str, float] = {}
        self._first_at: float | None = None
        """When most ranks had made their first step."""
        self._reached: dict[int, tuple[int, int]] = {}
        """The attempt of each rank, and the last step that it noted."""
        self._advances = 0
        """How many times any rank has reached a new step."""
        self._final = False
        """Whether the last step in the log is the final one."""

    def said(self, step: int, at: float, final: bool = False) -> None:
        """A log told of a step.

        :param at: unix seconds
        :param final: none is to follow
        """
        self._signs.told(step, at)
        self._final = final

    @property
    def logged(self) -> tuple[int, float, float | None] | None:
        """The last step that a log told of, when (unix seconds), and the usual seconds between two."""
        return None if self._signs.said is None else (*self._signs.said, self._signs.usual_s)

    def spoke(self, at: float) -> None:
        """A rank printed something."""
        self._signs.spoke(at)

    def restarted(self) -> None:
        """Ranks were started again."""
        self._signs.restarted()
        self._first_at = None
        self._final = False

    def look(self, at: float, run: Run, pace: Pace) -> Progress:
        """What there is to say now.

        :param at: unix seconds
        """
        ranks = [rank for rank in run.ranks.values() if rank.state is RankState.RUNNING]
        starts = ((rank.started_at or 0.0) - run.nodes[rank.node].offset_s for rank in ranks)
        began = max(starts, default=at)
        # Others may be on their way; but some never start.
        awaited = any(rank.state in (RankState.WAITING, RankState.STARTING) for rank in run.ranks.values())
        whole = bool(ranks) and not (awaited and at - began < START * self._least_s)
        runs = whole and not run.asked_to_stop and not run.job_end and run.first_failure() is None
        nodes = {rank.node: run.nodes[rank.node] for rank in ranks}
        lost = tuple(name for name, node in nodes.items() if node.link != "ok")
        linked = [node for node in nodes.values() if node.link == "ok"]
        known = bool(linked) and all(
            node.sampled_at is not None and 0 <= at - node.sampled_at < FRESH_S for node in linked
        )
        self._mind_activity(at, linked, ranks)
        noting = any(map(notes_steps, ranks))
        behind, behind_s = self._behind(at, run, ranks, pace) if runs and known else (0, 0.0)
        sign, step = self._front(at, run, ranks, pace)
        # No step is older than the process that made it, whatever a node says.
        age = sign.age_s if sign.age_s is None else min(sign.age_s, max(0.0, at - began))
        if ranks:
            first = sign.stepless or age is None
            self._signs.came(None if first else sign.mark, began if first else at - (age or 0.0))
        front = sign.source, sign.mark, age, sign.usual_s, self._signs.longest_s
        # Before that nobody asks.
        longest = pace.paused() if age is not None and age > self._least_s else NEVER
        return Progress(
            *front,
            runs,
            known,
            step,
            noting,
            at - began,
            behind,
            behind_s,
            lost,
            heard_at(run),
            longest,
            self._final,
        )

    def _front(self, at: float, run: Run, ranks: Iterable[Rank], pace: Pace) -> tuple[Sign, int | None]:
        told = [(rank, rank.sample.progress) for rank in ranks if rank.sample and rank.sample.progress]
        attempts = sum(rank.attempt for rank in run.ranks.values())
        if told:
            for rank, progress in told:
                reached = rank.attempt, progress.step
                if self._reached.get(rank.rank) != reached:
                    self._reached[rank.rank] = reached
                    self._advances += 1
            age = min(self._age(at, run, rank) for rank, _ in told)
            # Before that nobody asks what is usual.
            usual = pace.usual() if age > self._least_s else None
            mark = "steps", attempts, self._advances
            return Sign("steps", mark, age, usual), max(progress.step for _, progress in told)
        if self._signs.said is not None:
            step, when = self._signs.said
            return Sign("log", ("log", attempts, step, when), max(0.0, at - when), self._signs.usual_s), step
        return self._signs.activity(at), None

    def _age(self, at: float, run: Run, rank: Rank) -> float:
        """Seconds since the last step of a rank that notes them."""
        assert rank.sample is not None
        assert rank.sample.progress is not None
        sampled = run.nodes[rank.node].sampled_at
        return max(0.0, rank.sample.progress.age_s) + (max(0.0, at - sampled) if sampled is not None else 0.0)

    def _mind_activity(self, at: float, linked: Iterable[Node], ranks: Iterable[Rank]) -> None:
        fresh = set()
        for node in linked:
            if node.sampled_at is not None and self._measured.get(node.name) != node.sampled_at:
                self._measured[node.name] = node.sampled_at
                fresh.add(node.name)
        for rank in ranks:
            used = rank.sample.cpu_percent if rank.sample is not None else None
            if rank.node not in fresh or used is None:
                continue
            self._signs.worked(at, busy=is_busy(used / 100))

    def _behind(self, at: float, run: Run, ranks: Iterable[Rank], pace: Pace) -> tuple[int, float]:
        """Ranks that have not made a step for long while others go on; and for how long."""
        noting = list(filter(notes_steps, ranks))
        stepped = {
            rank.rank for rank in noting if rank.sample is not None and rank.sample.progress is not None
        }
        if self._first_at is None and 2 * len(stepped) > len(noting):
            self._first_at = at
        ages: dict[int, float] = {}
        for rank in noting:
            if rank.sample is None or run.nodes[rank.node].link != "ok":
                continue
            if rank.sample.progress is not None:
                ages[rank.rank] = self._age(at, run, rank)
            elif self._first_at is not None:
                ages[rank.rank] = at - self._first_at
        going = sum(age <= self._least_s for age in ages.values())
        if not going or max(ages.values()) <= 2 * self._least_s:
            return 0, 0.0
        patience = 2 * max(self._least_s, STEPS * (pace.usual() or 0.0))
        # Some ranks may never be meant to make a step; one that did, and stopped, is odd whoever goes on.
        most = 2 * going > len(noting)
        late = {rank: age for rank, age in ages.items() if age > patience and (most or rank in stepped)}
        return mask_of(late), max(late.values(), default=0.0)


def heard_at(run: Run) -> float:
    """When that of the nodes with running ranks was measured that was not for longest; 0: one never was."""
    names = {rank.node for rank in run.ranks.values() if rank.state is RankState.RUNNING}
    return min((run.nodes[name].sampled_at or 0.0 for name in names), default=0.0)
