"""Checkpoints: overdue, or slower than before. Nothing is called one unless a line of a log names it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from cockpit.base.events import NoticeStep
from cockpit.base.shell import quote
from cockpit.core.pace.pace import Pace
from cockpit.core.run.notices.checkpoint_words import HINTS, names_one, took
from cockpit.core.run.notices.rule import About, Condition, Rule
from cockpit.core.run.states import Run
from cockpit.core.time_text import clock, rounded_span

LINE, REST = 1024, 512
"""Bytes of a line that are read; of one that is not whole, which are kept."""
ONE_S = 30.0
"""Lines of one checkpoint follow each other by less than this, or no step lies between them."""
DEAF = 15
"""Looks after a start or a gap: what arrives then may be old."""
GAPS, ALIKE, ALIKE_S = 3, 0.1, 0.2
"""Gaps between checkpoints that it takes; by how much, in steps or in time, they may differ."""
OVERDUE = 1.5
"""So many gaps without one."""
PAUSES, SLOWER, SLOWER_S = 3, 1.5, 10.0
"""Pauses that it takes to know what is usual; the last two are longer by this factor and so many seconds."""
NOISE = 4.0
"""Where lines of a log tell of steps, a pause is also longer by so many times what their times vary by."""
LINES = 200
"""Of a log that tells of steps, whose times are remembered."""
HANGS, HANGS_S = 3.0, 60.0
"""A checkpoint is reported as too long after this multiple of the longest one, and this many seconds."""
STEPS = 20
"""Kept of each."""
SAVES = 256
"""Lines that named one whose times are remembered."""


@dataclass
class _Save:
    """A checkpoint.

    :param at, step: of its first line; the last step that was finished then
    :param last: of its last line
    :param took: seconds, according to the log; 0: it does not say
    :param paused: whether its pause was looked for
    """

    at: float
    step: int | None
    last: float
    took: float = 0.0
    paused: bool = False


class Checkpoint(Rule):
    """Learns how far apart they are, and how long training pauses for each."""

    id = "checkpoint"

    def __init__(self, about: About) -> None:
        super().__init__(about)
        self._rest: dict[tuple[str, int | None], bytes] = {}
        self._heard: list[tuple[float, float | None]] = []
        self.saves: deque[float] = deque(maxlen=SAVES)
        """When lines of logs named one, unix seconds; the newest last."""
        self._step: int | None = None
        self._total: int | None = None
        self._last: _Save | None = None
        self._step_gaps: deque[int] = deque(maxlen=2 * GAPS)
        self._gaps: deque[float] = deque(maxlen=2 * GAPS)
        self._pauses: deque[float] = deque(maxlen=STEPS)
        self._took: deque[float] = deque(maxlen=STEPS)
        self._guessed: deque[float] = deque(maxlen=STEPS)
        self._noise = 0.0
        self._lines: deque[tuple[float, int]] = deque(maxlen=LINES)
        self._deaf = DEAF

    def restarted(self) -> None:
        """See :class:`Rule`."""
        self._step = None
        self.interrupted()

    def interrupted(self) -> None:
        """See :class:`Rule`."""
        self._last = None
        self._lines.clear()
        self._deaf = DEAF

    def read(self, at: float, said: Mapping[str, float]) -> None:
        """See :class:`Rule`."""
        if "step" in said:
            self._step = int(said["step"])
            if not self._lines or self._step > self._lines[-1][1]:
                self._lines.append((at, self._step))
            elif self._step < self._lines[-1][1]:
                self._lines.clear()
        if "total" in said:
            self._total = int(said["total"])

    def printed(self, at: float, node: str, rank: int | None, data: bytes) -> None:
        """See :class:`Rule`."""
        data = self._rest.get((node, rank), b"") + data
        whole, _, rest = data.rpartition(b"\n")
        self._rest[node, rank] = rest[-REST:]
        if not any(hint in whole for hint in HINTS) or len(self._heard) >= STEPS:
            return
        named = [line[:LINE] for line in whole.splitlines() if names_one(line[:LINE])]
        if named:
            times = [seconds for line in named if (seconds := took(line)) is not None]
            self._heard.append((at, max(times, default=None)))

    def look(self, at: float, run: Run, pace: Pace) -> Iterator[Condition]:
        """See :class:`Rule`."""
        heard, self._heard = self._heard, []
        if any(node.link != "ok" and not node.over for node in run.nodes.values()):
            self.interrupted()
            return
        if self._deaf:
            self._deaf -= 1
            return
        front = pace.front
        step = self._step if front is None else front[0]
        self.saves.extend(when for when, _ in heard)
        for when, seconds in heard:
            self._take(when, step, seconds)
        if self._last is None:
            return
        self._measure(at, pace, step)
        if self._total is not None and step is not None and step >= self._total:
            return
        yield from self._overdue(at, pace, step, self._last)
        yield from self._hangs(at, pace, step, self._last)
        yield from self._slower(self._last)

    def _take(self, at: float, step: int | None, seconds: float | None) -> None:
        last = self._last
        if last is not None and (at - last.last < ONE_S or (step is not None and step == last.step)):
            last.last = at
            last.took = max(last.took, seconds or 0.0)
            return
        if last is not None:
            if last.took:
                self._took.append(last.took)
            self._gaps.append(at - last.at)
            if step is not None and last.step is not None:
                self._step_gaps.append(step - last.step)
        self._last = _Save(at, step, at, seconds or 0.0)

    def _measure(self, at: float, pace: Pace, step: int | None) -> None:
        """How long training paused for the last one, once a few steps are over since."""
        last = self._last
        if last is None or last.paused or last.step is None or step is None:
            return
        if step < last.step + 3 or at < last.at + DEAF:
            return
        last.paused = True
        self._guess(last, last.step)
        usual = pace.usual()
        if not usual:
            return
        # A line takes up to two seconds until it is here.
        begin = last.step - 2 - min(200, int(2 / usual))
        steps = [found for number in range(begin, last.step + 4) if (found := pace.step(number)) is not None]
        spans = [found.typical_span for found in steps if any(one == one for one in found.spans)]
        if spans:
            self._pauses.append(max(0.0, max(spans) - usual))

    def _guess(self, last: _Save, step: int) -> None:
        """The same by when lines of the log arrived that tell of steps."""
        pairs = list(pairwise(self._lines))
        if len(pairs) < STEPS:
            return
        usual = median((b[0] - a[0]) / (b[1] - a[1]) for a, b in pairs)
        over = [(a[1], b[0] - a[0] - usual * (b[1] - a[1])) for a, b in pairs]
        self._noise = 1.4826 * median(abs(seconds) for _, seconds in over)
        near = max(b[1] - a[1] for a, b in pairs)
        around = [seconds for begin, seconds in over if step - near <= begin <= step + 1]
        if around:
            self._guessed.append(max(0.0, *around))

    def _overdue(self, at: float, pace: Pace, step: int | None, last: _Save) -> Iterator[Condition]:
        gap = _alike(self._step_gaps, ALIKE)
        logs = NoticeStep(
            f"cockpit logs {quote(self.about.name)} --grep checkpoint", "what it says about them"
        )
        before = f"the log mentioned the last one at {clock(last.at, at)}"
        if gap and step is not None and last.step is not None:
            if step - last.step > OVERDUE * gap + 2:
                what = (
                    f"a checkpoint is overdue: {step - last.step:,} steps since the last, usually {gap:,.0f}"
                )
                yield Condition("overdue", what, at, None, (before,), steps=(logs,))
            return
        gap = _alike(self._gaps, ALIKE_S)
        moves = pace.last_at is not None and at - pace.last_at < ONE_S
        if gap and moves and at - last.at > OVERDUE * gap + ONE_S:
            since, usually = rounded_span(at - last.at), rounded_span(gap)
            what = f"a checkpoint is overdue: {since} since the last, usually {usually}"
            yield Condition("overdue", what, at, None, (before,), steps=(logs,))

    def _hangs(self, at: float, pace: Pace, step: int | None, last: _Save) -> Iterator[Condition]:
        name = quote(self.about.name)
        steps = (NoticeStep(f"cockpit stacks {name}", "where it waits: usually a file system"),)
        if len(self._pauses) < PAUSES:
            return
        going, most = at - last.at, max(self._pauses)
        if step == last.step and pace.exact and going > HANGS * most + HANGS_S:
            what = f"no step since the log mentioned a checkpoint, at {clock(last.at, at)}"
            evidence = (f"after earlier ones, training continued within {rounded_span(most)}",)
            yield Condition("pause", what, last.at, None, evidence, "unsure", steps=steps)

    def _slower(self, last: _Save) -> Iterator[Condition]:
        """Whether the last ones took longer: by pauses that ranks timed, else as the log says, or shows."""
        took = [*self._took, *([last.took] if last.took and last.paused else [])]
        kinds = ((self._pauses, 0.0), (took, 0.0), (self._guessed, NOISE * self._noise))
        kind = next((place for place, (times, _) in enumerate(kinds) if len(times) >= PAUSES), None)
        if kind is None:
            return
        times, more = list(kinds[kind][0]), kinds[kind][1]
        before, latest = times[:-2], times[-2:]
        usual = median(before) if len(before) >= PAUSES else 0.0
        if len(before) < PAUSES or min(latest) <= SLOWER * usual + SLOWER_S + more:
            return
        verb = "the log says" if kind == 1 else "training paused"
        what = f"checkpoints are slower than before: {verb} {rounded_span(latest[-1])} for the last"
        evidence = (f"and {rounded_span(latest[0])} for the one before; usually {rounded_span(usual)}",)
        name = quote(self.about.name)
        steps = (NoticeStep(f"cockpit stacks {name}", "where it waits: usually a file system"),)
        yield Condition("slower", what, last.at, None, evidence, steps=steps)

    def ended(self, of: str) -> str:
        """See :class:`Rule`."""
        if of == "overdue":
            return "checkpoints are saved again" if self._last is not None else ""
        return (
            "training continues after the checkpoint"
            if of == "pause"
            else "checkpoints are as fast as before"
        )


def _alike(gaps: Sequence[float], share: float) -> float | None:
    """The usual gap; None: they are too few or too different."""
    if len(gaps) < GAPS:
        return None
    usual = median(gaps)
    return usual if usual > 0 and max(gaps) - min(gaps) <= share * usual + 2 else None
