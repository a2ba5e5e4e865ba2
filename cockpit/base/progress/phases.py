"""The phases of a step: how long a rank was at its input, forward, backward and update, from its marks.

The probe writes a :class:`Mark` where a data loader's iterator is made, and where it begins and ends its
``__next__``, where autograd begins and ends a backward, and where an optimizer has made its step. An iterator
that starts workers is marked again when they run, and once more when they have ended. From these:

========  ========================================================================================
input     the loader's ``__next__``, for what is then trained on, and the start and end of its workers
forward   from there, or from the end of a backward or of an update, to the start of a backward
backward  autograd's run backwards; ``torch.autograd.grad`` runs the same, and counts as one
update    from the end of a backward to the end of the optimizer's step, so a step with a closure is right
========  ========================================================================================

What is left of the step is *other*: an evaluation, a checkpoint, logging, and the forward of a loop without
a loader of torch's, where nobody knows when it has its input. Several of each in a step add up. All are times
of the CPU: with a GPU it runs ahead, and *forward* is how long it takes to enqueue the work.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

INPUT, INPUT_END, BACKWARD, BACKWARD_END, UPDATE_END, ITERATOR, SHUT = range(1, 8)
"""Kinds of marks."""

EVALUATES_NS = 1_000_000
"""A loader that is asked for the next batch this long after one, with no backward in between, evaluates: a
program that takes several batches for one step takes them at once. One that does not, as it moves each to
its device, is known by as many backwards as there are batches."""

NAMES = ("input", "forward", "backward", "update")


class Mark(NamedTuple):
    """Something began or ended.

    :param kind: one of those above
    :param loader: of input, which of a few loaders it was: of two numbers that are equal, perhaps the same
    :param mono_ns: when, on the node's monotonic clock
    """

    kind: int
    loader: int
    mono_ns: int


class Span(NamedTuple):
    """When a rank was in a phase.

    :param phase: its place in :data:`NAMES`
    :param began: monotonic nanoseconds, as ``ended``
    """

    phase: int
    began: int
    ended: int


class Phases(NamedTuple):
    """Nanoseconds of each phase of a step; None: not known."""

    input: Optional[int] = None
    forward: Optional[int] = None
    backward: Optional[int] = None
    update: Optional[int] = None


UNKNOWN = Phases()


class Reader:
    """Makes phases of the marks of one process, as they come."""

    def __init__(self) -> None:
        self._fed = False
        """A batch was trained on: a step without one, as of a second optimizer, is on that batch."""

    def read(
        self,
        steps: Sequence[Optional[Tuple[int, int]]],
        marks: Sequence[Mark],
        since_ns: int = 0,
        spans: Optional[List[Span]] = None,
    ) -> List[Phases]:
        """The phases of steps.

        :param steps: when each began and ended, monotonic nanoseconds, in their order; None: not known
        :param marks: in their order
        :param since_ns: marks before this were overwritten
        :param spans: takes when each forward, backward and update of these was, in their order
        """
        found, place = [], 0
        for step in steps:
            if step is None or step[0] < since_ns:
                found.append(UNKNOWN)
                continue
            start, end = step
            while place < len(marks) and marks[place].mono_ns <= start:
                place += 1
            first = place
            while place < len(marks) and marks[place].mono_ns <= end:
                place += 1
            found.append(self._step(marks[first:place], start, end, spans))
        return found

    def _step(self, marks: Sequence[Mark], start: int, end: int, spans: Optional[List[Span]]) -> Phases:
        reading = _Reading(start, self._fed)
        found = reading.read(marks, end)
        if spans is not None and found != UNKNOWN:
            spans += reading.spans
        self._fed = reading.fed
        return found if self._fed else found._replace(input=None, forward=None)


class _Reading:
    """Goes through the marks of one step."""

    def __init__(self, start: int, fed: bool) -> None:
        self.fed = fed
        """See :class:`Reader`."""
        self._input = self._forward = self._backward = self._update = 0
        self._since = start
        """When the last of them ended."""
        self._loaded = False
        """That was a loader."""
        self._trained = False
        """A backward has ended in this step."""
        self._depth = 0
        """Backwards within each other: a checkpointed part of a model makes one in another."""
        self._asked: List[Tuple[int, int, int]] = []
        """Loaders that were asked and have not answered, when, and loading before: one may use another."""
        self._loading = 0
        """What all loaders took."""
        self._iterators: Dict[int, int] = {}
        """How many were made, by loader: one is often where an earlier one was, and so has its number."""
        self._starting: Dict[int, int] = {}
        """How long those that have given nothing yet took to start workers, by loader."""
        self._pending: List[Tuple[Tuple[int, int], int]] = []
        """By loader and iterator, input that nothing was trained on yet."""
        self._evaluates: Set[Tuple[int, int]] = set()
        """Those whose batches were not trained on, as far as is known."""
        self._doubtful: List[int] = []
        """Input by batch that may be of an evaluation."""
        self._backwards = 0
        """How many began since then."""
        self.spans: List[Span] = []
        """When forward, backward and update were."""

    def read(self, marks: Sequence[Mark], end: int) -> Phases:
        """All of them, up to the end of the step; one that begins or ends in a backward has no phases."""
        last: Optional[Mark] = None
        for mark in marks:
            if mark.kind == BACKWARD:
                self._begin(mark.mono_ns)
            elif mark.kind == BACKWARD_END:
                if not self._depth:
                    return UNKNOWN
                self._end(mark.mono_ns)
            elif self._depth:
                continue
            elif mark.kind == INPUT:
                self._ask(mark)
            elif mark.kind == INPUT_END:
                self._loaded = self._got(mark) or self._loaded
            elif mark.kind == SHUT:
                self._got(mark)
            elif mark.kind == UPDATE_END:
                self._updated(mark.mono_ns)
            elif mark.kind == ITERATOR:
                self._make(mark, last)
            last = mark
        if self._depth or not self._trained:
            return UNKNOWN
        self._updated(end)
        self._settle()
        self._take_pending()
        found = Phases(self._input, self._forward, self._backward, self._update)
        return found._replace(input=None, forward=None) if self._doubtful else found

    def _make(self, mark: Mark, last: Optional[Mark]) -> None:
        self._iterators[mark.loader] = self._iterators.get(mark.loader, 0) + 1
        if last is not None and last[:2] == mark[:2]:
            self._starting[mark.loader] = mark.mono_ns - last.mono_ns

    def _ask(self, mark: Mark) -> None:
        one = self._iterator(mark)
        late = self._loaded and mark.mono_ns - self._since > EVALUATES_NS
        if late and any(of == one for of, _ in self._pending):
            self._evaluates.add(one)
        self._asked.append((mark.loader, mark.mono_ns, self._loading))

    def _got(self, mark: Mark) -> bool:
        """Whether its loader was asked: this is its answer, a batch or the end of its workers."""
        while self._asked:
            loader, asked, before = self._asked.pop()
            if loader == mark.loader:  # else it had no more
                # What loaders took that this one has used is part of it.
                took = max(0, mark.mono_ns - asked - (self._loading - before))
                took += self._starting.pop(loader, 0)
                self._loading += took
                self._pending.append((self._iterator(mark), took))
                self._since = mark.mono_ns
                return True
        return False

    def _iterator(self, mark: Mark) -> Tuple[int, int]:
        return mark.loader, self._iterators.get(mark.loader, 0)

    def _begin(self, at: int) -> None:
        self._depth += 1
        if self._depth > 1:
            return
        self._forward += self._took(1, at)
        if self._pending:
            self._settle()
            last = self._pending[-1][0]
            doubt = last in self._evaluates
            self._doubtful = [took for one, took in self._pending if doubt and one == last]
            self._take_pending()
        self._backwards += 1
        self._since, self._loaded, self._asked = at, False, []
        self._starting.clear()

    def _settle(self) -> None:
        """A loader that seemed to evaluate did not, if each of several batches of its got a backward."""
        if 1 < len(self._doubtful) <= self._backwards:
            self._input, self.fed, self._doubtful = self._input + sum(self._doubtful), True, []
        self._backwards = 0

    def _take_pending(self) -> None:
        used = [took for one, took in self._pending if one not in self._evaluates]
        self._input += sum(used)
        self.fed = self.fed or bool(used)
        self._pending = []
        self._evaluates.clear()

    def _end(self, at: int) -> None:
        self._depth -= 1
        if not self._depth:
            self._backward += self._took(2, at)
            self._since, self._trained = at, True

    def _updated(self, at: int) -> None:
        # With a batch it is no update, unless that was taken ahead of one.
        if not self._loaded or (self._trained and not self._evaluates):
            self._update += self._took(3, at)
            self._since = at
            self._asked = []
            self._starting.clear()

    def _took(self, phase: int, at: int) -> int:
        """How long a phase was that ends now, and began as the one before it ended."""
        self.spans.append(Span(phase, self._since, at))
        return at - self._since
