"""When a person is called, and what they are told: a rank failed, the run stands still, it is over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from cockpit.base import secret
from cockpit.base.shell import quote
from cockpit.core.finding import Finding
from cockpit.core.run.failure import blamed
from cockpit.core.run.model import RunModel
from cockpit.core.run.summary import first_text, state_text, summary
from cockpit.core.run.watch_messages import stuck
from cockpit.core.text import one_line

FORMAT = 1
"""Of the JSON; it gets higher where a field changes its meaning."""

KINDS = {
    "stall": "the run has stalled, and a rank or a place is named",
    "failure": "a rank failed first, and the others still run",
    "end": "the run is over",
    "left": "a cockpit with --headless left it, and the run continues",
}
"""What a call may be about."""

STALL_EVERY_S = 600.0
"""Minimum seconds between two calls about a stalled run; a call held back is sent if the stall lasts."""

CAUSE_S = 1.5
"""Seconds from a failure to its call: the last lines of the rank arrive, and often the run is over then."""

LINES, LINE = 8, 300
"""Lines of a call, and characters of a line."""


@dataclass(frozen=True)
class Call:
    """One call; all its text is harmless for a terminal, and without secrets.

    :param kind: see :data:`KINDS`
    :param at: when it was made, unix seconds
    :param title: a few words
    :param lines: sentences, what matters most first
    :param state: of the run, in a few words
    :param alive: ranks that run
    :param ranks: all of them
    :param exit: the exit code of the run; None: it is not over
    :param watched_by: the cockpit that goes on watching; empty: none does
    :param stuck: how sure it is that a stalled run does not go on by itself: ``sure`` or ``likely``
    """

    kind: str
    run: str
    at: float
    title: str
    lines: tuple[str, ...]
    state: str
    alive: int
    ranks: int
    finding: Finding | None = None
    exit: int | None = None
    watched_by: str = ""
    stuck: str = ""

    def as_json(self) -> dict[str, Any]:
        """The call for programs."""
        return {
            "format": FORMAT,
            "kind": self.kind,
            "run": self.run,
            "at": round(self.at, 3),
            "title": self.title,
            "text": "\n".join(self.lines),
            "state": self.state,
            "ranks": {"alive": self.alive, "total": self.ranks},
            "exit": self.exit,
            "finding": None if self.finding is None else self.finding.as_json(),
            "stuck": self.stuck,
            "watched_by": self.watched_by,
            "attach": f"cockpit attach {quote(self.run)}",
        }


class Calls:
    """Decides when to call about one run.

    :param since: what happened before is no news: unix seconds
    :param watched_by: who watches, in words
    :param known: values that are secrets wherever they are
    """

    def __init__(self, run: str, since: float, watched_by: str, known: Iterable[str] = ()) -> None:
        self._run = run
        self._since = since
        self._watched_by = watched_by
        self._known = tuple(known)
        self._failed_at: float | None = None
        self._told: set[str] = set()
        self._stalled_at: float | None = None
        self._stall: tuple[str, int] | None = None

    def joined(self, model: RunModel) -> None:
        """The run as it was before anything new: nobody is called about that."""
        if model.over:
            self._told |= {"failure", "end"}
        if model.first_failure() is not None:
            self._told.add("failure")

    def due(
        self, now: float, model: RunModel, cause: Callable[[], Finding | None], stall: Finding | None = None
    ) -> Iterator[Call]:
        """The calls that are to be made now.

        :param now: unix seconds
        :param cause: reads the log of the rank that failed first
        :param stall: what is known about why the run stands still; None: it does not
        """
        if model.over:
            if "end" not in self._told:
                self._told.add("end")
                if not self._old(model):
                    yield self._end(now, model, cause())
            return
        if self._failure_due(now, model):
            yield self._failure(now, model, cause())
        elif stall is not None and self._stall_due(now, stall):
            yield self._stalled(now, model, stall)

    def left(self, now: float, model: RunModel) -> Call:
        """The call of a cockpit that leaves while nobody is there to see it."""
        lines = (
            "this cockpit has left: unless another one watches the run, nobody is called",
            f"to watch it again: cockpit attach {quote(self._run)} --headless",
        )
        return self._made("left", now, model, "this cockpit no longer watches it", lines, None, watched=False)

    def _old(self, model: RunModel) -> bool:
        """Whether it was over before this cockpit came."""
        ends = [model.ended_at(rank) for rank in model.ranks.values() if rank.ended_at]
        return bool(ends) and max(ends) < self._since

    def _failure_due(self, now: float, model: RunModel) -> bool:
        first = None if "failure" in self._told else model.first_failure()
        if first is None:
            return False
        if first.ended_at and model.ended_at(first) < self._since:
            self._told.add("failure")
            return False
        if self._failed_at is None:
            self._failed_at = now
        if now < self._failed_at + CAUSE_S:
            return False
        self._told.add("failure")
        return True

    def _stall_due(self, now: float, stall: Finding) -> bool:
        """Whether it is another stall than that of the last call, or it is time to say so again."""
        about = stall.id, stall.ranks
        if self._stalled_at is not None and (about == self._stall or now < self._stalled_at + STALL_EVERY_S):
            return False
        self._stall, self._stalled_at = about, now
        return True

    def goes_on(self) -> None:
        """Steps go on: a stall after this is another one."""
        self._stall = None

    def _failure(self, now: float, model: RunModel, found: Finding | None) -> Call:
        first = blamed(model, found)
        lines = [] if first is None else [f"first to fail: {first_text(model, found)}"]
        if found is not None:
            lines += [found.detail, f"at {found.where}" if found.where else "", found.meaning]
        alive = model.alive()
        lines.append(
            f"{alive} of {len(model.ranks)} ranks are still running"
            if alive
            else "no rank is running any more"
        )
        if found is not None:
            lines += [step.text for step in found.steps[:1]]
        title = "a rank failed" if found is None else found.what
        return self._made("failure", now, model, title, lines, found)

    def _end(self, now: float, model: RunModel, found: Finding | None) -> Call:
        lines = summary(model, self._run)
        if found is not None:
            lines = [line for line in lines if line not in found.detail]
            lines[1:1] = [found.detail, f"at {found.where}" if found.where else ""]
        code = int(model.exit_code())
        return self._made("end", now, model, state_text(model), lines, found, watched=False, code=code)

    def _stalled(self, now: float, model: RunModel, found: Finding) -> Call:
        watch = model.watch
        lines = [
            found.what,
            f"at {found.where}" if found.where else "",
            found.detail,
            *found.evidence[:2],
            f"who: {found.certainty}" + (f"; stuck: {watch.stuck}, {stuck(watch)}" if watch.stuck else ""),
            *(step.in_shell(f"cockpit stacks {quote(self._run)}") for step in found.steps[:1]),
        ]
        return replace(
            self._made("stall", now, model, f"stalled: {found.what}", lines, found), stuck=watch.stuck
        )

    def _made(
        self,
        kind: str,
        now: float,
        model: RunModel,
        title: str,
        lines: Iterable[str],
        found: Finding | None,
        *,
        watched: bool = True,
        code: int | None = None,
    ) -> Call:
        by = self._watched_by if watched else ""
        said = [self._harmless(line) for line in lines if line][:LINES]
        if by:
            said.append(f"still watched by {by}")
        return Call(
            kind,
            self._run,
            now,
            self._harmless(f"{self._run}: {title}"),
            tuple(said),
            self._harmless(state_text(model)),
            model.alive(),
            len(model.ranks),
            None if found is None else self._cut(found),
            code,
            by,
        )

    def _harmless(self, text: str) -> str:
        return one_line(secret.without(text[: 4 * LINE], self._known), limit=LINE)

    def _cut(self, found: Finding) -> Finding:
        return replace(
            found,
            what=self._harmless(found.what),
            where=self._harmless(found.where),
            detail=self._harmless(found.detail),
            meaning=self._harmless(found.meaning),
            evidence=tuple(map(self._harmless, found.evidence[:LINES])),
            certainty=self._harmless(found.certainty),
            steps=tuple(
                replace(step, command=self._harmless(step.command), reason=self._harmless(step.reason))
                for step in found.steps[:LINES]
            ),
            nodes=tuple(map(one_line, found.nodes)),
        )
