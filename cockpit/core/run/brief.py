"""What is known of one run in one line: a row of ``cockpit ps``, of the home screen, of the index of runs."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from cockpit.base import gate
from cockpit.base.gate import Definition, ListOf, Number, Text, bound, maybe
from cockpit.core.time_text import clock, span_text

_LINE = Text(1 << 20)
_SECONDS = Number(0, 1e9)
_SAID = Text(2000, cut=True)

GOES_ON = ("starting", "running", "ending", "stalled")
"""Words for a run that continues."""

NOT_STARTED, DAMAGED = "not started", "damaged"
"""Words for one of which no rank was started, and for one whose folder cannot be read."""

RECENT_S = 120.0
"""A step that ended longer ago says nothing of the pace now."""


class Brief(Definition):
    """What is known of a run; all texts of it are harmless for a terminal but names, command and program.

    :param began, ended: unix seconds on our clock; ``ended`` is None: it goes on, or that is not known
    :param seen: when anything of it was last written here, unix seconds
    :param asked: when its nodes answered, unix seconds; None: this is as recorded here
    :param word: its state in one word: one of :data:`GOES_ON`, ``failed``, ``stopped``, ``ended``,
        ``job over``, ``lost``, ``unknown`` (see :func:`cockpit.core.run.summary.outcome`), ``not started`` or
        ``damaged``
    :param state: the same in a few words, as ``ps`` prints it
    :param cause: why it is so: the verdict, what ended it; empty: there is nothing to say
    :param standing: that it makes no step, in words (:func:`cockpit.core.run.watch_messages.standing`)
    :param since: of a stalled run, when its last step ended, unix seconds
    :param code: the exit code of a cockpit that watched it to its end; None: it goes on
    :param step: the last one known; ``step_t``, when it ended; ``step_s``, seconds it took;
        ``step_estimated``, whether a log alone tells it
    :param total: how many steps there will be, as its log says
    :param loss: the last that its log says
    :param unreachable: nodes that were asked and did not answer
    :param running: how many ranks do
    :param command: as it was typed; ``program``: what it runs
    :param foreign: others started it; ``job``: the SLURM job that it is in, empty: in none, or not known
    :param recorded: it goes on as far as is known, and others may have written its folder: nobody is asked
    :param starting: whether no rank has got to work yet, as far as is known
    :param over: nothing of it is left; ``complete``: and all its output is here; ``well``: all ranks exited 0
        and nobody stopped it
    :param restart: how often SLURM had started its job anew; ``again``: the run that a person started once
        more by it, empty: none; ``settings``: a digest of what else it was started with
    """

    run: str = bound(Text(255))
    began: float = bound(gate.TIME)
    word: str = bound(Text(40))
    state: str = bound(_SAID)
    ended: float | None = maybe(gate.TIME)
    seen: float = bound(gate.TIME, 0.0)
    asked: float | None = maybe(gate.TIME)
    cause: str = bound(_SAID, "")
    standing: str = bound(_SAID, "")
    since: float | None = maybe(gate.TIME)
    code: int | None = maybe(gate.Whole(0, 255))
    step: int | None = maybe(gate.Whole(0, 1 << 53))
    step_t: float | None = maybe(gate.TIME)
    step_s: float | None = maybe(_SECONDS)
    step_estimated: bool = bound(gate.FLAG, False)
    total: int | None = maybe(gate.Whole(0, 1 << 53))
    loss: float | None = maybe(Number(-1e300, 1e300))
    nodes: Sequence[str] = bound(ListOf(gate.NODE_NAME, 1 << 16), ())
    unreachable: Sequence[str] = bound(ListOf(gate.NODE_NAME, 1 << 16), ())
    ranks: int = bound(gate.Whole(0, gate.RANK_LIMIT), 0)
    running: int = bound(gate.Whole(0, gate.RANK_LIMIT), 0)
    command: Sequence[str] = bound(ListOf(_LINE, 1 << 16), ())
    program: Sequence[str] = bound(ListOf(_LINE, 1 << 16), ())
    cwd: str = bound(Text(4096), "")
    launcher: str = bound(gate.WORD, "")
    foreign: bool = bound(gate.FLAG, False)
    job: str = bound(gate.WORD, "")
    recorded: bool = bound(gate.FLAG, False)
    starting: bool = bound(gate.FLAG, False)
    over: bool = bound(gate.FLAG, False)
    complete: bool = bound(gate.FLAG, False)
    well: bool = bound(gate.FLAG, False)
    restart: int = bound(gate.COUNT, 0)
    again: str = bound(Text(64, f"({gate.RUN_NAME_RULE})?"), "")
    settings: str = bound(Text(16, "[0-9a-f]*"), "")

    @property
    def open(self) -> bool:
        """Whether its nodes could tell more than is known here."""
        return not (self.over or self.recorded or self.word == DAMAGED)

    @property
    def timeless(self) -> bool:
        """Whether the same would be said of it at another time, as long as its files stay as they are."""
        return self.over or not (self.standing or self.starting or self.since)

    @property
    def lasted_s(self) -> float | None:
        """Seconds from its start to its end; None: it goes on, or that is not known."""
        return None if self.ended is None else max(0.0, self.ended - self.began)

    @property
    def order(self) -> tuple[int, float]:
        """Its place among runs: what needs a person first, then what goes on, then the newest."""
        if self.word == "stalled" or (self.word == "failed" and not self.over and self.running):
            return 0, -self.began
        return (1 if self.word in GOES_ON else 2), -self.began

    def how(self, now: float) -> str:
        """In one line how it is, or how it ended: verdict, cause, pace, or how long it took and its loss.

        :param now: unix seconds
        """
        if self.word == "ended":
            return ", ".join(filter(None, (self._took("in"), self._loss())))
        if self.word == "stopped":
            return ", ".join(filter(None, (self.cause, self._took("after"))))
        if self.cause:
            return self.cause
        if self.word in ("lost", "unknown"):
            return _last_seen(self.seen)
        if self.standing or self.foreign:
            whose = f"{self.ranks:,} ranks of {self.launcher}, not started by cockpit"
            return self.standing or whose
        return ", ".join(filter(None, (*self._pace(now), self._loss())))

    def finds(self, word: str) -> bool:
        """Whether a word in small letters is in its name, nodes, state, cause or command."""
        places = (self.run, self.word, self.state, self.cause, self.job, " ".join(self.program))
        return any(word in text.lower() for text in (*places, *self.nodes))

    def _took(self, after: str) -> str:
        return "" if self.lasted_s is None else f"{after} {span_text(self.lasted_s)}"

    def _loss(self) -> str:
        return "" if self.loss is None else f"loss {self.loss:.4g}"

    def _pace(self, now: float) -> list[str]:
        """``0.37 s/step``, ``eta 07:11``; nothing of a pace that is not that of now."""
        if not self.step_s or self.step is None or self.step_t is None:
            return []
        if now - self.step_t > max(RECENT_S, 10 * self.step_s):
            return []
        told = [f"{self.step_s:.3g} s/step"]
        if self.total is not None and self.total > self.step:
            end = self.step_t + (self.total - self.step) * self.step_s
            days = math.floor((end - now) / 86400)
            told.append(time.strftime("eta %H:%M" if days < 1 else "eta %d %b %H:%M", time.localtime(end)))
        return told


def _last_seen(at: float) -> str:
    """``last seen 22:41``, or with its day."""
    if not at:
        return ""
    return f"last seen {clock(at, time.time(), '%H:%M')}"
