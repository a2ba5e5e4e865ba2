"""The facts of a snapshot in words: what a verdict gives as its evidence."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from cockpit.base.stacks.dump import Dump
from cockpit.base.stacks.kinds import python_frames
from cockpit.core.masks import mask_of, ranks_of
from cockpit.core.stacks.class_facts import ClassPart, union
from cockpit.core.stacks.facts import Facts
from cockpit.core.stacks.words import USUAL, does_words, number_text, ranks_words, state_text
from cockpit.core.time_text import rounded_span

EVIDENCE = 6
"""At most this many facts are given."""


class Case(Facts):
    """Facts that can say themselves."""

    @property
    def ceased(self) -> bool:
        """Whether the job stands still: no step is made, or most of those that wait do not move."""
        no_step = self.progress is not None and self.progress.goes_on is False
        return self.looks > 1 and not self.goes_on and (no_step or not self.passing)

    def lasting(self) -> str:
        """The words for it: `` for 52 s``; empty where nobody knows."""
        return f" for {rounded_span(self.for_s)}" if self.for_s is not None and self.for_s >= 1 else ""

    def still(self) -> str:
        """The words for "unmoved": in how many samples, over which time."""
        return f"same in {self.looks} of {self.looks} samples, {self.span}"

    @property
    def span(self) -> str:
        """The time over which there are samples, in words."""
        return f"{self.span_s:.1f} s apart" if self.looks == 2 else f"over {self.span_s:.1f} s"

    def wait_fact(self, *, timed: bool = True) -> str:
        """What the waiting ranks do, as evidence.

        :param timed: say how long they have waited
        """
        if not self.waits:
            return ""
        told = (
            f"{number_text(self.waiting)} in {self.blocked or 'collectives'}{self.lasting() if timed else ''}"
        )
        if self.all_frozen:
            return f"{told}, {self.still()}"
        return f"{told}, {'some of them moving' if self.looks > 1 else 'in one sample'}"

    def wait_words(self) -> str:
        """What the waiting ranks do, for a headline; empty if none waits."""
        if not self.waits:
            return ""
        where = self.blocked or "collectives"
        return f"{number_text(self.waiting, 'waits', 'wait')} in {where}"

    def part_fact(self, part: ClassPart, *, beside: str = "") -> str:
        """What a class does, as evidence.

        :param beside: the place that is named beside it
        """
        at = f" at {part.where}" if part.where not in ("", beside) else ""
        return f"{ranks_words(part.ranks)}: {does_words(part.text, part.ranks)}{at}"

    def part_facts(self, parts: Iterable[ClassPart]) -> Iterator[str]:
        """What classes do, as evidence: those that do the same at the same place in one fact."""
        alike: dict[tuple[str, str], list[ClassPart]] = defaultdict(list)
        for part in parts:
            alike[part.text, part.where].append(part)
        for same in alike.values():
            yield self.part_fact(replace(same[0], ranks=union(same)))

    def suspect_fact(self, part: ClassPart) -> str:
        """Whether a suspect moves, as evidence that comes after :meth:`wait_fact`."""
        if self.looks < 2:
            return ""
        who = ranks_words(part.ranks)
        if part.frozen:
            if self.waits and self.all_frozen:
                return f"{ranks_words(part.ranks, 'has', 'have')} not moved either"
            return f"{who} {self.still()}"
        stacks = {python_frames(dump.frames) for dump in self.dumps(next(ranks_of(part.ranks)))}
        return (
            f"{who} at {len(stacks)} places in {self.looks} samples" if len(stacks) > 1 else f"{who} at work"
        )

    def unheard_fact(self) -> str:
        """Who did not answer, as evidence."""
        if not self.unheard:
            return ""
        why = sorted(set(self.unheard.values()))
        told = why[0] if len(why) == 1 else f"{len(why)} reasons"
        return f"no answer from {ranks_words(mask_of(self.unheard))}: {told}"


def state_fact(dump: Dump, beside: str = "") -> str:
    """The state of a rank's process, as evidence: ``rank 7: sleeps in clock_nanosleep``.

    :param beside: the sentence beside it, of which nothing is repeated
    """
    process = dump.process
    if process is None or not process.state:
        return ""
    state = USUAL.get(process.state) or state_text(process.state)
    word = state.partition(" (")[0]
    told = "" if re.search(rf"\b{word}\b", beside) else state
    call = "" if f"in {process.call}()" in beside else process.call
    if not told and not call:
        return ""
    join = ", " if state != word else " "
    return f"rank {dump.rank}: {join.join(filter(None, (told, call and f'in {call}')))}"


def kept(told: Iterable[str]) -> tuple[str, ...]:
    """The first of the facts that exist."""
    return tuple(fact for fact in told if fact)[:EVIDENCE]
