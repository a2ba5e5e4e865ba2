"""The first line: which run, its state, its progress, and how well it goes."""

from __future__ import annotations

from dataclasses import dataclass

from cockpit.core.logs.metrics import Metrics
from cockpit.core.logs.progress.rank import usual_step
from cockpit.core.pace.log_steps import run_step
from cockpit.core.pace.pace import Pace
from cockpit.core.run import watch_messages
from cockpit.core.run.model import Node, RankState, RunModel
from cockpit.core.run.slow_links import slow_from
from cockpit.core.run.summary import live_word, shown
from cockpit.core.text import one_line
from cockpit.core.time_text import span_text
from cockpit.tui.look.glyphs import UNICODE, Glyphs
from cockpit.tui.look.spark import sparkline
from cockpit.tui.look.units import number_text
from cockpit.tui.panes.bar import Bar
from cockpit.tui.panes.line import Part

AGES = 1e9
"""Seconds (three decades): a longer span is not real: a node may send any time."""


@dataclass(frozen=True)
class Head:
    """What the line says.

    :param began: when the run was started, unix seconds
    :param recorded: nothing is live: the clock stands where the run ended
    :param pace: the steps that ranks note themselves count more than what their logs say
    :param starting: none of its ranks has got to work yet
    """

    run: str
    model: RunModel
    metrics: Metrics
    began: float
    now: float
    recorded: bool = False
    pace: Pace | None = None
    starting: bool = False


class TopBar(Bar):
    """One line; draws what :meth:`show` was last given."""

    def __init__(self, *, glyphs: Glyphs = UNICODE, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs

    def show(self, head: Head) -> None:
        """Draw this."""
        self.tell(self.parts(head))

    def parts(self, head: Head) -> list[Part]:
        """The parts of the line, from left to right."""
        model = head.model
        ended = model.over and bool(model.job_end) and model.first_failure() is None
        how = {"recorded": head.recorded, "starting": head.starting}
        sign, state, style = state_of(model, glyphs=self._glyphs, **how)
        end = _ended_at(model) if model.over or head.recorded else None
        still = _still(head, self._glyphs.running)
        elapsed = (head.now if end is None else end) - head.began
        if not 0 <= elapsed < AGES:
            elapsed = max(0.0, head.now - head.began)
        alive, total = model.alive(), len(model.ranks)
        # Ranks that were told to stop have not failed.
        well = "bad" if model.first_failure() else "good" if alive == total else "strong"
        slowest = self._slowest(head)
        short = Part(((f"{sign} job ended", style),), 0)
        name = (one_line(head.run), "strong")
        parts = [
            Part((("cockpit ", "name"), name), 1, Part((name,), 1)),
            still or Part(((f"{sign} {state}", style),), 0, short if ended else None),
            Part(((elapsed_text(elapsed), "dim"),), 7),
            *self._progress(head, slow=bool(slowest)),
            *slowest,
            # That all are there says less than how far they are.
            Part((("ranks ", "dim"), (f"{alive}/{total}", well)), 6 if alive == total else 2),
        ]
        link = _slowest(model, head.now)
        return [*parts, link] if link and not head.recorded else parts

    def _progress(self, head: Head, *, slow: bool) -> list[Part]:
        latest = head.metrics.latest
        parts = []
        step, step_s = _front(head)
        if step is not None:
            total = (f"/{latest.total:,}", "dim") if latest.total else ("", "")
            parts.append(Part((("step ", "dim"), (f"{step:,}", "strong"), total), 3))
        stands = head.model.watch.stalled
        left = head.metrics.time_left(head.now) if _goes_on(head) and not stands else None
        if left is not None and left < AGES:
            parts.append(Part((("ETA ", "dim"), (span_text(left), "")), 5))
        if latest.loss is not None:
            values = [value for _, value in head.metrics.series("loss")]
            loss = ("loss ", "dim"), (number_text(latest.loss), "strong")
            spark = (f" {sparkline(values, 9, ascii_only=self._glyphs.ascii)}", "spark")
            parts.append(Part((*loss, spark), 5, Part(loss, 5)) if len(values) > 1 else Part(loss, 5))
        if step_s is not None and 0 <= step_s < AGES:
            # Beside the rank that makes steps long, how long they are says more than the rest.
            parts.append(Part(((f"{_step_text(step_s)}/step", ""),), 4 if slow else 7))
        return parts

    def _slowest(self, head: Head) -> list[Part]:
        """The rank that slows the others most, and how many more there are."""
        # Of a run that stands still it is known who holds it up now.
        if head.pace is None or not _goes_on(head) or head.model.watch.stalled:
            return []
        does, found = (" enqueues", head.pace.late()) if head.pace.lags else ("", head.pace.slow())
        if not found:
            return []
        more = f", {len(found) - 1:,} more" if len(found) > 1 else ""
        by = f"+{100 * found[0].excess:.0f} %{more}"
        short = f"{found[0].rank} enq. {by}" if does else f"{len(found):,} slow" if more else ""
        less = Part(((f"{self._glyphs.look} {short}", "warn"),), 1) if short else None
        said = f"{self._glyphs.look} rank {found[0].rank}{does} {by}"
        plain = Part(((said, "warn"),), 1, less)
        why = None if does else head.pace.why(found[0])
        return [plain if why is None else Part(((f"{said}: {why.text}", "warn"),), 5, plain)]


def _still(head: Head, sign: str) -> Part | None:
    """That the run stands still, or that no step has come for a while; None if neither."""
    if not _goes_on(head) or not head.model.alive():
        return None
    watch = head.model.watch
    words = watch_messages.head(watch, watch.for_s(head.now))
    if not words:
        return None
    if watch.stalled:
        return Part(((f"{sign} {words}", "warn"),), 0)
    return Part(((words, "dim"),), 0)


def _front(head: Head) -> tuple[float | None, float | None]:
    """The furthest step and what one usually takes: as ranks note them, else as their logs say."""
    latest, front = head.metrics.latest, head.pace and head.pace.front
    if head.pace is None or not front or not head.pace.exact:
        return latest.step, usual_step(head.metrics.series("step_s"))
    return run_step(head.pace, latest.step), head.pace.usual()


def _step_text(seconds: float) -> str:
    """``2.96 s``: steps are compared to a hundredth."""
    return f"{seconds:.2f} s" if 0.9995 <= seconds < 59.995 else span_text(seconds)


def _goes_on(head: Head) -> bool:
    """Whether the run may reach its last step."""
    return not head.recorded and head.model.may_finish


def state_of(
    model: RunModel, *, recorded: bool = False, starting: bool = False, glyphs: Glyphs = UNICODE
) -> tuple[str, str, str]:
    """Sign, word and style of a run's state as a whole."""
    nodes = list(model.nodes.values())
    failed = any(rank.failed for rank in model.ranks.values())
    if model.over:
        if model.job_end and model.first_failure() is None:
            return glyphs.killed, shown(model.job_end), "bad" if failed else "warn"
        if any(node.lost for node in nodes):
            return glyphs.lost, "lost", "bad"
        if model.asked_to_stop and model.first_failure() is None:
            return glyphs.killed, "stopped", "warn"
        if failed:
            return glyphs.failed, "failed", "bad"
        if any(rank.state is RankState.GONE for rank in model.ranks.values()):
            return glyphs.lost, "ended", "warn"  # how, nobody told us
        return glyphs.done, "ended", "good"
    if recorded:
        return glyphs.lost, "recorded", "warn"
    stages = {node.stage for node in nodes if not node.over}
    if "finalising" in stages:
        return glyphs.starting, "finalising", "warn"
    if model.asked_to_stop or stages & {"term", "kill", "sweep"}:
        return glyphs.starting, "stopping", "warn"
    if model.first_failure() is not None:
        return glyphs.failed, "failed", "bad"
    if nodes and all(node.link == "gone" for node in nodes if not node.over):
        return glyphs.lost, "no link", "bad"
    word = live_word(model, starting=starting)
    return (glyphs.running, word, "good") if word == "running" else (glyphs.starting, word, "starting")


def elapsed_text(seconds: float) -> str:
    """``00:12:41``; with days in front if there are any."""
    whole = int(seconds)
    days = f"{whole // 86400}d " if whole >= 86400 else ""
    return f"{days}{whole // 3600 % 24:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def _ended_at(model: RunModel) -> float | None:
    times = [model.ended_at(rank) for rank in model.ranks.values() if rank.ended_at]
    return max(times, default=None)


def _slowest(model: RunModel, now: float) -> Part | None:
    """The worst link, if it stands out: a lost one, else the slowest."""
    nodes = [node for node in model.nodes.values() if not node.done and not node.ended]
    lost = [node for node in nodes if node.link in ("stale", "gone")]
    if lost:
        worst = min(lost, key=lambda node: node.link_since)
        age = f" {span_text(max(0.0, now - worst.link_since))}" if worst.link_since else ""
        more = f" +{len(lost) - 1}" if len(lost) > 1 else ""
        return _link(worst, f"{worst.link}{age}{more}", "bad" if worst.link == "gone" else "warn")
    slowest = max(nodes, key=lambda node: node.rtt_s or 0.0, default=None)
    if slowest is None or (slowest.rtt_s or 0.0) < slow_from(model):
        return None
    return _link(slowest, span_text(slowest.rtt_s or 0.0), "warn")


def _link(node: Node, text: str, style: str) -> Part:
    return Part((("link ", "dim"), (f"{one_line(node.name)} {text}", style)), 1)
