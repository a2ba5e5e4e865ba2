"""Checkpoints: overdue, or slower than before. Nothing is called one unless a line of a log names it."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from cockpit.base.events import NoticeStep
from cockpit.base.shell import quote
from cockpit.core.pace.pace import Pace
from cockpit.core.run.notices.rule import About, Rule, Seen, clock, span
from cockpit.core.run.states import Run

_HINTS = (b"heckpoint", b"CHECKPOINT", b"ckpt", b"_states", b"state_dict", b"safetensors")
_SAVES = re.compile(rb"(?i)\b(?:sav(?:e|es|ed|ing)|writ(?:es?|ing|ten)|wrote|dump(?:s|ed|ing))\b")
_NAMES = re.compile(rb"(?i)checkpoint|ckpt|(?:model|optim)_states|state_dict|safetensors")
_OTHERS = re.compile(
    rb"(?i)\b(?:load|resum|restor|every|interval|skip|fail|error|activation|gradient|will|not?\b|disabl|frequen)"
)
"""Of settings, of loading, of what went wrong."""

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
    :param paused: whether its pause was looked for
    """

    at: float
    step: int | None
    last: float
    paused: bool = False


class Checkpoint(Rule):
    """Learns how far apart they are, and how long training pauses for each."""

    id = "checkpoint"

    def __init__(self, about: About) -> None:
        super().__init__(about)
        self._rest: dict[tuple[str, int | None], bytes] = {}
        self._heard: list[float] = []
        self.saves: deque[float] = deque(maxlen=SAVES)
        """When lines of logs named one, unix seconds; the newest last."""
        self._step: int | None = None
        self._total: int | None = None
        self._last: _Save | None = None
        self._step_gaps: deque[int] = deque(maxlen=2 * GAPS)
        self._gaps: deque[float] = deque(maxlen=2 * GAPS)
        self._pauses: deque[float] = deque(maxlen=STEPS)
        self._deaf = DEAF

    def restarted(self) -> None:
        """See :class:`Rule`."""
        self._step = None
        self.interrupted()

    def interrupted(self) -> None:
        """See :class:`Rule`."""
        self._last = None
        self._deaf = DEAF

    def read(self, at: float, said: Mapping[str, float]) -> None:
        """See :class:`Rule`."""
        if "step" in said:
            self._step = int(said["step"])
        if "total" in said:
            self._total = int(said["total"])

    def printed(self, at: float, node: str, rank: int | None, data: bytes) -> None:
        """See :class:`Rule`."""
        data = self._rest.get((node, rank), b"") + data
        whole, _, rest = data.rpartition(b"\n")
        self._rest[node, rank] = rest[-REST:]
        if not any(hint in whole for hint in _HINTS) or len(self._heard) >= STEPS:
            return
        if any(names_one(line[:LINE]) for line in whole.splitlines()):
            self._heard.append(at)

    def look(self, at: float, run: Run, pace: Pace) -> Iterator[Seen]:
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
        self.saves.extend(heard)
        for when in heard:
            self._take(when, step)
        if self._last is None:
            return
        self._measure(at, pace, step)
        if self._total is not None and step is not None and step >= self._total:
            return
        yield from self._overdue(at, pace, step, self._last)
        yield from self._slow(at, pace, step, self._last)

    def _take(self, at: float, step: int | None) -> None:
        last = self._last
        if last is not None and (at - last.last < ONE_S or (step is not None and step == last.step)):
            last.last = at
            return
        if last is not None:
            self._gaps.append(at - last.at)
            if step is not None and last.step is not None:
                self._step_gaps.append(step - last.step)
        self._last = _Save(at, step, at)

    def _measure(self, at: float, pace: Pace, step: int | None) -> None:
        """How long training paused for the last one, once a few steps are over since."""
        last = self._last
        if last is None or last.paused or last.step is None or step is None:
            return
        if step < last.step + 3 or at < last.at + DEAF:
            return
        usual = pace.usual()
        if not usual:
            return
        last.paused = True
        # A line takes up to two seconds until it is here.
        begin = last.step - 2 - min(200, int(2 / usual))
        steps = [found for number in range(begin, last.step + 4) if (found := pace.step(number)) is not None]
        spans = [found.typical_span for found in steps if any(one == one for one in found.spans)]
        if spans:
            self._pauses.append(max(0.0, max(spans) - usual))

    def _overdue(self, at: float, pace: Pace, step: int | None, last: _Save) -> Iterator[Seen]:
        gap = _alike(self._step_gaps, ALIKE)
        logs = NoticeStep(f"cockpit logs {quote(self.about.name)} --grep checkpoint", "what it said of them")
        before = f"the log named the last one at {clock(last.at)}"
        if gap and step is not None and last.step is not None:
            if step - last.step > OVERDUE * gap + 2:
                what = (
                    f"a checkpoint is overdue: {step - last.step:,} steps since the last, usually {gap:,.0f}"
                )
                yield Seen("overdue", what, at, None, (before,), steps=(logs,))
            return
        gap = _alike(self._gaps, ALIKE_S)
        moves = pace.last_at is not None and at - pace.last_at < ONE_S
        if gap and moves and at - last.at > OVERDUE * gap + ONE_S:
            what = f"a checkpoint is overdue: {span(at - last.at)} since the last, usually {span(gap)}"
            yield Seen("overdue", what, at, None, (before,), steps=(logs,))

    def _slow(self, at: float, pace: Pace, step: int | None, last: _Save) -> Iterator[Seen]:
        name = quote(self.about.name)
        steps = (NoticeStep(f"cockpit stacks {name}", "where it waits: a file system, most often"),)
        if len(self._pauses) < PAUSES:
            return
        going, most = at - last.at, max(self._pauses)
        if step == last.step and pace.exact and going > HANGS * most + HANGS_S:
            what = f"no step since the log named a checkpoint, at {clock(last.at)}"
            evidence = (f"after others, training went on within {span(most)}",)
            yield Seen("pause", what, last.at, None, evidence, "unsure", steps=steps)
        before, latest = list(self._pauses)[:-2], list(self._pauses)[-2:]
        usual = median(before) if len(before) >= PAUSES else 0.0
        if len(before) >= PAUSES and min(latest) > SLOWER * usual + SLOWER_S:
            what = f"checkpoints are slower than before: training paused {span(latest[-1])} for the last"
            evidence = (f"and {span(latest[0])} for the one before; usually {span(usual)}",)
            yield Seen("slower", what, last.at, None, evidence, steps=steps)

    def ended(self, of: str) -> str:
        """See :class:`Rule`."""
        if of == "overdue":
            return "there is a checkpoint again" if self._last is not None else ""
        return (
            "training goes on after the checkpoint" if of == "pause" else "checkpoints are as fast as before"
        )


def names_one(line: bytes) -> bool:
    """Whether a line says that a checkpoint is, or was, saved."""
    return bool(_NAMES.search(line) and _SAVES.search(line) and not _OTHERS.search(line))


def _alike(gaps: Sequence[float], share: float) -> float | None:
    """The usual gap; None: they are too few or too different."""
    if len(gaps) < GAPS:
        return None
    usual = median(gaps)
    return usual if usual > 0 and max(gaps) - min(gaps) <= share * usual + 2 else None
