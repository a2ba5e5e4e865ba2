"""What Detail says about a rank."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from statistics import median
from typing import Any

from cockpit.base.answers import EnvironAnswer
from cockpit.base.events import RankSample
from cockpit.base.record import rank_log
from cockpit.core.pace.log_steps import resumed
from cockpit.core.pace.pace import FRESH_STEPS, RankPace
from cockpit.core.pace.signs import Sign
from cockpit.core.pace.slow import LOOKED_AT, Slow
from cockpit.core.run.model import LIVE, Node, Rank, RankState
from cockpit.core.run.probes import probe_text
from cockpit.core.run.trends import LIMIT
from cockpit.core.time_text import span_text
from cockpit.core.variables import matter
from cockpit.tui.look.glyphs import state_name
from cockpit.tui.look.progress import about, behind_text
from cockpit.tui.look.units import clock_text, number_text
from cockpit.tui.pace.table import seconds
from cockpit.tui.panes.text_pane import Line, Piece, hanging
from cockpit.tui.run.detail_paper import (
    About,
    Paper,
    Part,
    command_lines,
    mapping,
    measured_ago,
    memory_used,
    more_lines,
    number,
    page_lines,
    safe,
    variable_lines,
)
from cockpit.tui.run.nccl_lines import nccl_lines
from cockpit.tui.run.stall import standing


def rank_lines(sight: About, node: Node, rank: Rank, paper: Paper) -> Iterator[Line]:
    local = node.ranks.index(rank.rank) if rank.rank in node.ranks else 0
    slow, late = _slow(sight, rank)
    rest = sight.part is Part.REST
    pid = f"  pid {safe(rank.pid)}" if rank.pid else ""
    said = "missing" if rank.rank in standing(sight.model)[0] else None if slow is None else "slow"
    state = Piece(f"  {paper.glyphs.of(rank)} {safe(rank.text, 500)}", state_name(rank))
    # That it runs is no news of a rank for which the others wait.
    plain = said == "missing" and rank.state is RankState.RUNNING
    yield from paper.flow(
        Piece(f"rank {rank.rank}", "title"),
        *([] if rest else [Piece(f"  {safe(node.name)}:{local}{pid}", "label")]),
        *([] if plain or rest else [state]),
        *([] if said is None or rest else [Piece(f"  {paper.glyphs.look} {said}", "pace-slow")]),
    )
    if not rest:
        yield from measured_ago(node, rank, sight.now, paper)
        yield from _work(sight, rank.rank, slow or late, paper)
        yield from _rank_measures(sight, node, rank, local, paper)
        yield from _pace(sight, rank, slow, late, paper)
        yield from _readings(sight, rank.rank, paper)
    if sight.part is Part.NOW:
        return
    if sight.more:
        yield Line()
        yield from _life(sight, node, rank, paper)
        yield from more_lines(sight, "process, environment, files", paper)
        return
    yield from _process(sight, node, rank, local, paper)
    yield from nccl_lines(sight, 1 << rank.rank, paper)
    yield from page_lines(sight, paper)
    yield from command_lines(sight, paper)
    yield from _environment(sight, rank, paper)


def _rank_measures(sight: About, node: Node, rank: Rank, local: int, paper: Paper) -> Iterator[Line]:
    sample, trends, sizes = rank.sample or RankSample(), sight.trends, sight.sizes
    points = trends.rank(rank.rank, "cpu_percent")
    value = _percent(sample.cpu_percent, points)
    yield from paper.measure("cpu", points, value, "running", high=max(100.0, *points, 0.0))
    points = trends.rank(rank.rank, "rss_bytes")
    size = sample.rss_bytes
    value = "" if size is None else _and_most(size, points, sizes.text)
    yield from paper.measure("rss", points, value, "spark", **_span_of(points))
    index = _gpu_of(sight, node, rank, local)
    if index is not None:
        gpu = node.gpus[index]
        points = trends.gpu(node.name, index, "utilisation_percent")
        yield from paper.measure("gpu", points, _percent(gpu.utilisation_percent, points), "spark", high=100)
        points = trends.gpu(node.name, index, "memory_bytes")
        yield from paper.measure(
            "vram", points, memory_used(gpu, sizes), "spark", high=gpu.memory_total_bytes
        )
    series = sight.metrics.series("step_s", rank.rank)
    steps = [value for _, value in series if number(value) is not None]
    if steps and (sight.pace is None or sight.pace.of(rank.rank).span is None):
        # Equal steps are drawn at half height, so that a slow one stands out.
        high = max(2 * median(steps), max(steps))
        value = _and_most(steps[-1], steps, span_text)
        yield from paper.measure("step", steps, value, "rank", high=high)


def _slow(sight: About, rank: Rank) -> tuple[Slow | None, Slow | None]:
    """That the rank is slow, or that its CPU enqueues late, while it runs."""
    pace = sight.pace if rank.state is RankState.RUNNING else None
    named = ((), ()) if pace is None else (pace.slow(), pace.late())
    slow, late = (next((one for one in some if one.rank == rank.rank), None) for some in named)
    return slow, late


def _work(sight: About, rank: int, slow: Slow | None, paper: Paper) -> Iterator[Line]:
    """What the rank is compared with the others by: its work in the last steps, else the whole steps."""
    if sight.pace is None or rank not in sight.pace.steps.place:
        return
    place = sight.pace.steps.place[rank]
    # Those since recorders were last asked would be whole steps among work, which are alike on all ranks.
    works = sight.pace.works
    judged = (step for step in sight.pace.steps.newest() if step.works or not works)
    newest = list(islice(judged, LIMIT // 2))
    steps = [step for step in reversed(newest) if not math.isnan(step.compared[0][place])]
    if not steps:
        return
    values, typical = steps[-1].compared
    points = [step.compared[0][place] for step in steps]
    name = "step" if not steps[-1].works else "queue" if sight.pace.lags else "work"
    pace = sight.pace.of(rank)
    usual = {"step": pace.span, "work": pace.work}.get(name)
    took = values[place]
    if usual is not None:  # as the map says it; the strip has each step
        took, typical = usual, median(step.compared[1] for step in steps[-LOOKED_AT:])
    value = f"{seconds(took)}  others {seconds(typical)}"
    # Equal steps are drawn at half height, so that a slow one stands out.
    high = max(2 * median(step.compared[1] for step in steps), *points)
    yield from paper.measure(name, points, value, "pace-slow" if slow else "rank", high=high)
    if name == "step" and (why := sight.pace.unworked.get(rank)):
        yield from paper.row("work", f"not known: {why}")


def _pace(sight: About, rank: Rank, slow: Slow | None, late: Slow | None, paper: Paper) -> Iterator[Line]:
    """How far the rank is."""
    pace = _pace_of(sight, rank)
    if pace.sign is not None and rank.state in LIVE:
        yield from _sign(pace.sign, sight.now, paper)
    if pace.step is None or pace.at is None or not _tells_step(pace):
        return  # what its log and its probe say of the step is below
    about = "~" if pace.estimated else ""
    phases = None if sight.pace is None else sight.pace.phases_of(rank.rank)
    source = "from its log" if pace.estimated else "from the probe"
    looked = _looked_ago(sight, rank, pace, phased=phases is not None)
    if looked and paper.width < len(f"Pace  {source}, {looked}"):
        source = source.split()[-1]
    yield from paper.heading("Pace", f"{source}, {looked}" if looked else source)
    age = f", {about}{span_text(max(0.0, sight.now - pace.at))} ago" if rank.state in LIVE else ""
    counted = sight.pace is not None and resumed(sight.pace, sight.metrics.latest.step)
    since = " since it started" if counted and not pace.estimated else ""
    yield from paper.row("last step", f"{about}{pace.step:,}{since}{age}")
    if pace.behind and rank.state in LIVE:
        text = f"{about}{pace.behind:,} step{'s' if pace.behind > 1 else ''} behind the front"
        yield from paper.row("behind", text, "warning" if pace.behind > 1 else "")
    elif pace.behind_s is not None and rank.sample is not None and rank.sample.progress is not None:
        yield from paper.row("behind", f"{seconds(pace.behind_s)} after the first")
    if sight.pace is not None and phases is not None:
        yield from paper.phases(phases, sight.pace.about)
    apart = slow or late
    more = ""
    if sight.pace is not None and apart is not None:
        first = sight.pace.apart_since(apart.rank)
        more = f"+{100 * apart.excess:.0f} % over the median rank since step {first:,}"
    if slow is not None:
        why = None if sight.pace is None else sight.pace.why(slow)
        if sight.pace is not None and why is not None:
            more += f": {why.text}"
        yield from paper.row("slow", more, "pace-slow")
        if pace.cost:
            yield from paper.row("costs", f"{seconds(pace.cost)} per step, while others wait only for it")
    if pace.lag is not None:
        yield from paper.row("enqueue lag", f"+{seconds(max(0.0, pace.lag))} after the median rank")
    if late is not None:
        yield from paper.row("enqueues late", more, "pace-slow")
        yield from paper.row("next", "a profile: NCCL's recorder does not say how long GPUs compute")


def _looked_ago(sight: About, rank: Rank, pace: RankPace, *, phased: bool) -> str:
    """How old the work and the phases are, where some steps have ended since the last one with any."""
    front = None if sight.pace is None else sight.pace.front
    if sight.pace is None or front is None or pace.work_at is None or rank.state not in LIVE:
        return ""
    if front[1] - pace.work_at <= FRESH_STEPS * (sight.pace.usual() or 0.0):
        return ""
    what = "enqueue lag" if sight.pace.lags else "work"
    return f"{what}{' and phases' if phased else ''} {span_text(max(0.0, sight.now - pace.work_at))} ago"


def _pace_of(sight: About, rank: Rank) -> RankPace:
    return RankPace() if sight.pace is None else sight.pace.of(rank.rank)


def _tells_step(pace: RankPace) -> bool:
    """Whether the last step, and how long ago it ended, is said of its pace."""
    return pace.step is not None and pace.at is not None and (not pace.estimated or pace.behind > 1)


def _sign(sign: Sign, now: float, paper: Paper) -> Iterator[Line]:
    """When a rank whose steps nobody tells went on last."""
    yield from paper.heading("Pace", "estimated: no steps seen yet")
    yield from paper.row("activity", about(sign, now))
    yield from paper.row("entered", "" if sign.collectives is None else f"{sign.collectives:,} collectives")
    behind = behind_text(sign)
    yield from paper.row("behind", behind and f"{behind} behind", "warning" if sign.behind > 1 else "")


def _gpu_of(sight: About, node: Node, rank: Rank, local: int) -> int | None:
    """The GPU that the rank's process is on; if the driver does not say, that of its slot."""
    for index, gpu in enumerate(node.gpus):
        if rank.pid and rank.pid in gpu.processes:
            return index
    slots = sight.plan.get("slots") or ()
    index = slots[local] if local < len(slots) else local
    return index if rank.state in LIVE and index < len(node.gpus) else None


def _span_of(points: Sequence[float]) -> dict[str, float]:
    """Bounds that show growth but not noise: at least a tenth of the value from bottom to top."""
    return {"low": min(points), "high": max(max(points), 1.1 * min(points))} if points else {}


def _percent(value: float | None, points: Sequence[float]) -> str:
    return "" if value is None else _and_most(value, points, "{:,.0f} %".format)


def _and_most(value: float, points: Sequence[float], text: Callable[[float], str]) -> str:
    """A value, and the most it has been, unless they read the same."""
    said = text(value)
    most = text(max(points)) if len(points) > 1 else said
    return said if most == said else f"{said}  max {most}"


def _life(sight: About, node: Node, rank: Rank, paper: Paper) -> Iterator[Line]:
    """From when to when the process ran."""
    if rank.started_at is not None:
        started = rank.started_at - node.offset_s
        ran = (sight.model.ended_at(rank) if rank.ended_at is not None else sight.now) - started
        word = "ran for" if rank.ended_at is not None else "runs for"
        yield from paper.row("started", f"{clock_text(started, 8)}, {word} {span_text(max(0.0, ran))}")
    if rank.ended_at is not None:
        text = f"{clock_text(sight.model.ended_at(rank))}, {safe(rank.text, 500)}"
        yield from paper.row("ended", text, state_name(rank))


def _process(sight: About, node: Node, rank: Rank, local: int, paper: Paper) -> Iterator[Line]:
    yield from paper.heading("Process")
    yield from paper.row("local rank", f"{local} on {safe(node.name)}")
    yield from _life(sight, node, rank, paper)
    sample = rank.sample or RankSample()
    for name, count in (("threads", sample.threads), ("children", sample.children)):
        yield from paper.row(name, "" if count is None else f"{count:,}")
    if rank.attempt or rank.max_restarts:
        yield from paper.row("attempt", f"{rank.attempt + 1} of {rank.max_restarts + 1}")
    yield from paper.row("probe", safe(probe_text(node, rank), 1000))
    log = sight.log or f"{node.name}:{sight.entry.dir}/{rank_log(rank.rank)}"
    yield from paper.row("log", safe(log, 4000))


def _readings(sight: About, rank: int, paper: Paper) -> Iterator[Line]:
    """What the rank's own log and its probe say about the training."""
    reading = sight.metrics.latest_of(rank)
    state = sight.model.ranks[rank]
    live = state.state in LIVE
    progress = state.sample.progress if live and state.sample else None
    # A count of optimizer steps begins anew in a process that goes on from a checkpoint.
    counted = progress is not None and (progress.source == "deepspeed" or reading.step is None)
    number_now = progress.step if progress is not None and counted else reading.step
    step = "" if number_now is None else f"{number_now:,}"
    total = f" of {reading.total:,}" if step and reading.total is not None else ""
    age = ""
    if progress is not None and not _tells_step(_pace_of(sight, state)):
        measured = sight.model.nodes[state.node].sampled_at
        since = progress.age_s + (0.0 if measured is None else sight.now - measured)
        age = f", ended {span_text(max(0.0, since))} ago"
    took = reading.step_s if progress is None or progress.step_s is None else progress.step_s
    goes_on = live and sight.model.may_finish and not sight.model.watch.stalled
    left = sight.metrics.time_left_of(rank, sight.now) if goes_on else None
    rows = [
        ("step", step + total + age),
        ("epoch", _plain(reading.epoch)),
        ("loss", _plain(reading.loss)),
        ("lr", _plain(reading.lr)),
        ("samples", _plain(reading.samples_s, " a second")),
        ("tokens", _plain(reading.tokens_s, " a second")),
        ("time left", "" if left is None else span_text(left)),
        ("step time", "" if (step_s := number(took)) is None else span_text(step_s)),
    ]
    if any(text for _, text in rows):
        said = "from its log" if progress is None else "from its log and its probe"
        yield from paper.heading("Training", said)
        for label, text in rows:
            yield from paper.row(label, text)


def _plain(value: float | None, unit: str = "") -> str:
    return "" if value is None else number_text(value) + unit


def _environment(sight: About, rank: Rank, paper: Paper) -> Iterator[Line]:
    environ = sight.environ
    if isinstance(environ, EnvironAnswer):
        got = environ.environ
        yield from paper.heading("Environment", f"{len(got):,} variables its process was started with")
        yield from _variables(got, mapping(sight.plan.get("env")), paper)
        if environ.left_out:
            yield from paper.text(
                f"{environ.left_out:,} more are left out: too much for one answer", "warning"
            )
        return
    yield from paper.heading("Environment")
    if environ:
        text = environ
    elif rank.state in (RankState.WAITING, RankState.STARTING):
        text = "its process has not started yet"
    elif sight.model.nodes[sight.node].link == "ok":
        text = f"reading from {sight.node} …"
    else:
        text = f"no link to {sight.node} to ask for it"
    yield from paper.text(safe(text, 1000), "label")


def _variables(got: Mapping[str, Any], given: Mapping[str, Any], paper: Paper) -> Iterator[Line]:
    """Those of the training first: what the launch set, and what the libraries of a training read."""

    def order(name: str) -> tuple[bool, str]:
        return name not in given and not matter(name), name

    for name in sorted(got, key=order):
        value = got[name]
        yield from variable_lines(name, value, paper)
        wanted = given.get(name)
        # The values of secrets are known neither here nor on the node.
        known = not any("(secret" in str(each) for each in (wanted, value))
        if wanted is not None and wanted != value and known:
            yield from hanging((Piece("  the launch set "),), safe(wanted, 4000), paper.width, "warning")
    for name in sorted(set(given) - set(got)):
        yield from paper.text(f"{safe(name)} was set by the launch but is missing", "warning")
