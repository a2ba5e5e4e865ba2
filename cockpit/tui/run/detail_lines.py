"""What Detail says about a node or a rank, as lines for a pane of some width."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice
from statistics import median
from typing import Any

from cockpit.base.answers import EnvironAnswer
from cockpit.base.events import GpuSample, NodeSample, RankSample
from cockpit.base.record import rank_log
from cockpit.core.logs.folding import Source
from cockpit.core.logs.metrics import Metrics
from cockpit.core.logs.trackers import Tracker
from cockpit.core.pace.log_steps import resumed
from cockpit.core.pace.pace import Pace, RankPace
from cockpit.core.pace.signs import Sign
from cockpit.core.pace.slow import Slow
from cockpit.core.ranks import ranks_named, ranks_text
from cockpit.core.run.model import LIVE, Node, Rank, RankState, RunModel
from cockpit.core.run.probes import probe_text
from cockpit.core.run.trends import LIMIT, Trends
from cockpit.core.text import one_line
from cockpit.engine.records.folder import NodeEntry
from cockpit.plans.words import render_word
from cockpit.tui.look.glyphs import ASCII, UNICODE, state_name
from cockpit.tui.look.progress import about, behind_text
from cockpit.tui.look.spark import sparkline
from cockpit.tui.look.units import clock_text, number_text, part_text, size_text, span_text
from cockpit.tui.pace.table import seconds
from cockpit.tui.panes.text_pane import Line, Piece, fold, hanging
from cockpit.tui.run.stall import standing

STALE_S = 5.0
"""Measurements older than this show their age: they arrive once a second."""

LABEL = 11
"""Columns for the names of values."""

_VALUES = 24
_BLANK = Line()


class Part(Enum):
    """What a pane shows of a detail: a tab beside a pane that shows some of it shows the rest."""

    ALL = auto()
    NOW = auto()
    """What changes: state, measurements, pace, training, link, what went wrong."""
    REST = auto()
    """What stays: process, command, environment, what was found on the node."""


@dataclass(frozen=True)
class About:
    """Everything a detail is made of.

    :param rank: None: the detail is the node's
    :param entry: the node in the run's manifest
    :param plan: what was planned for the node (``plan_json``); empty if unknown
    :param environ: the answer of the verb ``environ`` for the rank; why there is none; None: not here yet
    :param now: unix seconds
    :param pages: pages about the run, and whose log names them
    :param log: where the rank's log is on its node, in words; empty: in the run folder
    :param part: which of it is shown
    """

    node: str
    rank: int | None
    model: RunModel
    trends: Trends
    metrics: Metrics
    entry: NodeEntry
    plan: Mapping[str, Any]
    environ: EnvironAnswer | str | None
    now: float
    log: str = ""
    pace: Pace | None = None
    pages: Sequence[tuple[Source, Tracker]] = ()
    part: Part = Part.ALL


def detail_lines(sight: About, width: int, ascii_only: bool = False) -> list[Line]:
    """The lines of a detail."""
    node = sight.model.nodes.get(sight.node)
    if node is None:
        return [Line.of("nothing is selected", "label")]
    paper = _Paper(width, ascii_only)
    if sight.rank is None:
        return list(_node(sight, node, paper))
    rank = sight.model.ranks.get(sight.rank)
    if rank is None:
        return [Line.of(f"no rank {sight.rank} in this run", "label")]
    return list(_rank(sight, node, rank, paper))


class _Paper:
    """Lays out lines for a width."""

    def __init__(self, width: int, ascii_only: bool) -> None:
        self.width = width
        self._ascii = ascii_only
        self.glyphs = ASCII if ascii_only else UNICODE
        self._spark = max(0, min(LIMIT // 2, width - 6 - _VALUES))

    def heading(self, text: str, aside: str = "") -> Iterator[Line]:
        yield _BLANK
        yield from self.flow(Piece(text, "title"), Piece(f"  {aside}" if aside else "", "label"))

    def row(self, label: str, text: str, role: str = "") -> Iterator[Line]:
        """A value after its name; nothing if there is no value."""
        if text:
            yield from hanging((Piece(f"{label:<{LABEL}}", "label"),), text, self.width, role)

    def text(self, text: str, role: str = "") -> Iterator[Line]:
        yield from hanging((), text, self.width, role)

    def flow(self, *pieces: Piece) -> Iterator[Line]:
        """Pieces side by side, on further lines if they do not fit."""
        line: list[Piece] = []
        used = 0
        for piece in pieces:
            if used and used + len(piece.text) > self.width:
                yield Line(tuple(line))
                piece = Piece(piece.text.lstrip(), piece.role)
                line, used = [], 0
            for number, part in enumerate(fold(piece.text, self.width)):
                if number:
                    yield Line(tuple(line))
                    line, used = [], 0
                line.append(Piece(part, piece.role))
                used += len(part)
        yield Line(tuple(line))

    def measure(
        self,
        label: str,
        points: Sequence[float],
        value: str,
        role: str,
        *,
        low: float | None = 0.0,
        high: float | None = None,
    ) -> Iterator[Line]:
        """A sparkline between the name of a measurement and its newest value."""
        if not value:
            return
        pieces = [Piece(f"{label:<6}", "label")]
        if self._spark >= 8:
            pieces += [Piece(sparkline(points, self._spark, low, high, self._ascii), role), Piece("  ")]
        yield Line((*pieces, Piece(value)))


# A rank


def _rank(sight: About, node: Node, rank: Rank, paper: _Paper) -> Iterator[Line]:
    local = node.ranks.index(rank.rank) if rank.rank in node.ranks else 0
    slow, late = _slow(sight, rank)
    pid = f"  pid {safe(rank.pid)}" if rank.pid else ""
    said = "missing" if rank.rank in standing(sight.model)[0] else None if slow is None else "slow"
    state = Piece(f"  {paper.glyphs.of(rank)} {safe(rank.text, 500)}", state_name(rank))
    # That it runs is no news of a rank for which the others wait.
    plain = said == "missing" and rank.state is RankState.RUNNING
    yield from paper.flow(
        Piece(f"rank {rank.rank}", "title"),
        Piece(f"  {safe(node.name)}:{local}{pid}", "label"),
        *([] if plain else [state]),
        *([] if said is None else [Piece(f"  {paper.glyphs.look} {said}", "pace-slow")]),
    )
    if sight.part is not Part.REST:
        yield from _age(node, rank, sight.now, paper)
        yield from _work(sight, rank.rank, slow or late, paper)
        yield from _rank_measures(sight, node, rank, local, paper)
        yield from _pace(sight, rank, slow, late, paper)
        yield from _readings(sight, rank.rank, paper)
    if sight.part is Part.NOW:
        return
    yield from _process(sight, node, rank, local, paper)
    yield from _pages(sight, paper)
    yield from _command(sight, paper)
    yield from _environment(sight, rank, paper)


def _age(node: Node, rank: Rank | None, now: float, paper: _Paper) -> Iterator[Line]:
    """How old the measurements are, if that needs saying."""
    if node.sampled_at is None:
        note = node.unmeasured
        if note or node.launched:
            yield from paper.text(safe(note) or "not measured yet", "warning" if note else "label")
        return
    if rank is not None and rank.state not in LIVE:
        if rank.sample:
            yield from paper.text("last measured before it ended", "label")
        return
    age = now - node.sampled_at
    if age > STALE_S:
        yield from paper.text(f"measured {span_text(age)} ago", "label" if node.over else "warning")


def _rank_measures(sight: About, node: Node, rank: Rank, local: int, paper: _Paper) -> Iterator[Line]:
    sample, trends = rank.sample or RankSample(), sight.trends
    points = trends.rank(rank.rank, "cpu_percent")
    value = _percent(sample.cpu_percent, points)
    yield from paper.measure("cpu", points, value, "running", high=max(100.0, *points, 0.0))
    points = trends.rank(rank.rank, "rss_bytes")
    size = sample.rss_bytes
    value = "" if size is None else size_text(size) + _most(points, size_text)
    yield from paper.measure("rss", points, value, "spark", **_span_of(points))
    index = _gpu_of(sight, node, rank, local)
    if index is not None:
        gpu = node.gpus[index]
        points = trends.gpu(node.name, index, "utilisation_percent")
        yield from paper.measure("gpu", points, _percent(gpu.utilisation_percent, points), "spark", high=100)
        points = trends.gpu(node.name, index, "memory_bytes")
        yield from paper.measure("vram", points, _used(gpu), "spark", high=gpu.memory_total_bytes)
    series = sight.metrics.series("step_s", rank.rank)
    steps = [value for _, value in series if number(value) is not None]
    if steps and (sight.pace is None or sight.pace.of(rank.rank).span is None):
        # Equal steps are drawn at half height, so that a slow one stands out.
        high = max(2 * median(steps), max(steps))
        value = span_text(steps[-1]) + _most(steps, span_text)
        yield from paper.measure("step", steps, value, "rank", high=high)


def _slow(sight: About, rank: Rank) -> tuple[Slow | None, Slow | None]:
    """That the rank is slow, or that its CPU enqueues late, while it runs."""
    pace = sight.pace if rank.state is RankState.RUNNING else None
    named = ((), ()) if pace is None else (pace.slow(), pace.late())
    slow, late = (next((one for one in some if one.rank == rank.rank), None) for some in named)
    return slow, late


def _work(sight: About, rank: int, slow: Slow | None, paper: _Paper) -> Iterator[Line]:
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
    value = f"{seconds(values[place])}  others {seconds(typical)}"
    # Equal steps are drawn at half height, so that a slow one stands out.
    high = max(2 * median(step.compared[1] for step in steps), *points)
    yield from paper.measure(name, points, value, "pace-slow" if slow else "rank", high=high)
    if name == "step" and (why := sight.pace.unworked.get(rank)):
        yield from paper.row("work", f"not known: {why}")


def _pace(sight: About, rank: Rank, slow: Slow | None, late: Slow | None, paper: _Paper) -> Iterator[Line]:
    """How far the rank is."""
    pace = RankPace() if sight.pace is None else sight.pace.of(rank.rank)
    if pace.sign is not None and rank.state in LIVE:
        yield from _sign(pace.sign, sight.now, paper)
    if pace.step is None or pace.at is None or (pace.estimated and pace.behind < 2):
        return  # what its log says of the step is below
    about = "~" if pace.estimated else ""
    yield from paper.heading("Pace", "as its log says" if pace.estimated else "as it reports")
    age = f", {about}{span_text(max(0.0, sight.now - pace.at))} ago" if rank.state in LIVE else ""
    counted = sight.pace is not None and resumed(sight.pace, sight.metrics.latest.step)
    since = " since it started" if counted and not pace.estimated else ""
    yield from paper.row("last step", f"{about}{pace.step:,}{since}{age}")
    if pace.behind and rank.state in LIVE:
        text = f"{about}{pace.behind:,} step{'s' if pace.behind > 1 else ''} behind the front"
        yield from paper.row("behind", text, "warning" if pace.behind > 1 else "")
    elif pace.behind_s is not None and rank.sample is not None and rank.sample.progress is not None:
        yield from paper.row("behind", f"{seconds(pace.behind_s)} after the first")
    apart = slow or late
    more = ""
    if sight.pace is not None and apart is not None:
        first = sight.pace.apart_since(apart.rank)
        more = f"+{100 * apart.excess:.0f} % over the median rank since step {first:,}"
    if slow is not None:
        yield from paper.row("slow", more, "pace-slow")
        if pace.cost:
            yield from paper.row("costs", f"{seconds(pace.cost)} per step, while others wait only for it")
    if pace.lag is not None:
        yield from paper.row("enqueue lag", f"+{seconds(max(0.0, pace.lag))} after the median rank")
    if late is not None:
        yield from paper.row("enqueues late", more, "pace-slow")
        yield from paper.row("next", "a profile: NCCL's recorder does not say how long GPUs compute")


def _sign(sign: Sign, now: float, paper: _Paper) -> Iterator[Line]:
    """When a rank whose steps nobody tells went on last."""
    yield from paper.heading("Pace", "estimated: no step of it is known")
    yield from paper.row("went on", about(sign, now))
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
    return "" if value is None else f"{value:,.0f} %" + _most(points, lambda most: f"{most:,.0f} %")


def _most(points: Sequence[float], text: Any) -> str:
    return f"  max {text(max(points))}" if len(points) > 1 else ""


def _used(of: NodeSample | GpuSample) -> str:
    used, total = of.memory_bytes, of.memory_total_bytes
    if used is None:
        return ""
    return part_text(used, total) if total else size_text(used)


def _process(sight: About, node: Node, rank: Rank, local: int, paper: _Paper) -> Iterator[Line]:
    yield from paper.heading("Process")
    yield from paper.row("local rank", f"{local} on {safe(node.name)}")
    if rank.started_at is not None:
        started = rank.started_at - node.offset_s
        ran = (sight.model.ended_at(rank) if rank.ended_at is not None else sight.now) - started
        word = "ran for" if rank.ended_at is not None else "runs for"
        yield from paper.row("started", f"{clock_text(started, 8)}, {word} {span_text(max(0.0, ran))}")
    if rank.ended_at is not None:
        text = f"{clock_text(sight.model.ended_at(rank))}, {safe(rank.text, 500)}"
        yield from paper.row("ended", text, state_name(rank))
    sample = rank.sample or RankSample()
    for name, count in (("threads", sample.threads), ("children", sample.children)):
        yield from paper.row(name, "" if count is None else f"{count:,}")
    if rank.attempt or rank.max_restarts:
        yield from paper.row("attempt", f"{rank.attempt + 1} of {rank.max_restarts + 1}")
    yield from paper.row("probe", safe(probe_text(node, rank), 1000))
    log = sight.log or f"{node.name}:{sight.entry.dir}/{rank_log(rank.rank)}"
    yield from paper.row("its log", safe(log, 4000))


def _readings(sight: About, rank: int, paper: _Paper) -> Iterator[Line]:
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
    age = "" if progress is None else f", ended {span_text(max(0.0, progress.age_s))} ago"
    took = reading.step_s if progress is None or progress.step_s is None else progress.step_s
    left = sight.metrics.time_left_of(rank, sight.now) if live else None
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
        said = "as its log says" if progress is None else "as its log and its probe say"
        yield from paper.heading("Training", said)
        for label, text in rows:
            yield from paper.row(label, text)


def _pages(sight: About, paper: _Paper) -> Iterator[Line]:
    """Where else the run can be watched."""
    if not sight.pages:
        return
    yield from paper.heading("Pages", "named in its logs")
    for (node, rank), page in sight.pages:
        whose = f"the launcher on {safe(node)}" if rank is None else f"rank {rank} on {safe(node)}"
        yield from paper.text(f"{page.name}: {page.url}")
        yield from paper.text(f"  in the log of {whose}", "label")


def _plain(value: float | None, unit: str = "") -> str:
    return "" if value is None else number_text(value) + unit


# A node


def _node(sight: About, node: Node, paper: _Paper) -> Iterator[Line]:
    states = Counter(
        (paper.glyphs.of(rank), rank.text, state_name(rank)) for rank in sight.model.on(node.name)
    )
    yield from paper.flow(
        Piece(safe(node.name), "title"),
        Piece(f"  {ranks_named(node.ranks) if node.ranks else 'no ranks'}", "label"),
        *(Piece(f"  {sign} {n} {safe(text, 200)}", role) for (sign, text, role), n in states.most_common()),
    )
    if sight.part is not Part.REST:
        yield from _age(node, None, sight.now, paper)
        yield from _node_measures(sight, node, paper)
        yield from _gpus(node, paper)
        yield from _link(sight, node, paper)
        yield from _survivors(node, paper)
        yield from _remarks(node, paper)
    if sight.part is Part.NOW:
        return
    yield from _pages(sight, paper)
    yield from _found(sight.entry, paper)
    yield from _reports(node, paper)
    yield from _command(sight, paper)
    given = mapping(sight.plan.get("env"))
    if given:
        yield from paper.heading("Environment", "set by the launch")
        for name, value in sorted(given.items()):
            yield from _variable(name, value, paper)


def _node_measures(sight: About, node: Node, paper: _Paper) -> Iterator[Line]:
    sample, trends = node.sample or NodeSample(), sight.trends
    points = trends.node(node.name, "load")
    value = "" if sample.load is None else f"{sample.load:,.1f}"
    cores = sample.cores
    of = "" if cores is None else f" on {cores:,.0f} cores"
    high = max(float(cores or 1), *points, 0.0)
    yield from paper.measure("load", points, value and value + of, "running", high=high)
    points = trends.node(node.name, "memory_bytes")
    yield from paper.measure("mem", points, _used(sample), "spark", high=sample.memory_total_bytes)
    free = sample.disk_free_bytes
    if free is not None:
        role = "error" if free < 1 << 30 else ""
        yield Line((Piece("disk  ", "label"), Piece(f"{size_text(free)} free for the run's files", role)))


def _gpus(node: Node, paper: _Paper) -> Iterator[Line]:
    if not node.gpus:
        return
    yield from paper.heading("GPUs")
    yield Line.of(f"gpu  {'busy':>5}  {'memory':>14}  name", "label")
    for index, gpu in enumerate(node.gpus):
        busy = gpu.utilisation_percent
        share = "?" if busy is None else f"{busy:.0f} %"
        head = f"{index:>3}  {share:>5}  {_used(gpu) or '?':>14}  "
        yield from hanging((Piece(head),), safe(gpu.name), paper.width, "label")


def _link(sight: About, node: Node, paper: _Paper) -> Iterator[Line]:
    yield from paper.heading("Link")
    if node.lost:
        yield from paper.row("node", f"lost: {safe(node.lost)}", "error")
    elif node.ended:
        output = "all its output is here" if node.complete else "the rest of its output is being fetched"
        yield from paper.row("node", f"ended, {output}")
    if node.link:
        since = f" for {span_text(max(0.0, sight.now - node.link_since))}" if node.link_since else ""
        why = f": {safe(node.link_why)}" if node.link_why else ""
        role = f"link-{node.link}" if node.link in ("ok", "stale", "gone") else ""
        yield from paper.row("state", f"{node.link}{since}{why}", role)
    if node.rtt_s is not None:
        yield from paper.row("round trip", span_text(node.rtt_s))
        error = span_text(node.rtt_s / 2)
        way = "ahead of" if node.offset_s >= 0 else "behind"
        yield from paper.row("clock", f"{span_text(abs(node.offset_s))} {way} ours, give or take {error}")
    if node.launcher_ended:
        by = node.launcher_signal
        how = f"exited {node.launcher_code}" if by is None else f"killed by signal {by}"
        yield from paper.row("launcher", safe(how))
    if node.stage:
        yield from paper.row("stopping", safe(node.stage), "warning")


def _found(entry: NodeEntry, paper: _Paper) -> Iterator[Line]:
    """What the node reported before the launch."""
    facts = mapping(entry.facts)
    yield from paper.heading("Node")
    yield from paper.row("host", f"{safe(entry.host or entry.name)}, reached by {safe(entry.transport)}")
    cores = facts.get("cores")
    if isinstance(cores, list) and cores:
        # Folding is slow: do it for a node's cores, not for anything it may send.
        plain = len(cores) <= 4096 and all(isinstance(core, int) and 0 <= core < 1 << 20 for core in cores)
        yield from paper.row("cores", f"{len(cores):,}" + (f" ({ranks_text(cores)})" if plain else ""))
    version = f" ({safe(facts.get('python_version'))})" if facts.get("python_version") else ""
    yield from paper.row("python", safe(facts["python"]) + version if facts.get("python") else "")
    from cockpit.plans.profilers.registry import PROFILERS  # not for the first screen

    for name in ("torch", "deepspeed", *PROFILERS, "numactl"):
        yield from paper.row(name, safe(facts[name]) if facts.get(name) else "")
    yield from paper.row("run folder", safe(entry.dir, 4000))


def _survivors(node: Node, paper: _Paper) -> Iterator[Line]:
    if not node.survivors:
        return
    yield from paper.heading("Survivors", "no signal ended them")
    for process in node.survivors:
        text = f"{safe(process.name)}  pid {process.pid}  state {safe(process.state)}"
        yield from paper.text(text, "error")


def _remarks(node: Node, paper: _Paper) -> Iterator[Line]:
    if not node.remarks:
        return
    yield from paper.heading("Notes")
    for note in node.remarks:
        yield from hanging((Piece("- ", "label"),), safe(note, 1000), paper.width)


def _reports(node: Node, paper: _Paper) -> Iterator[Line]:
    if not node.reports:
        return
    yield from paper.heading("Reports")
    for report in node.reports.values():
        words = [safe(report.name or "none"), safe(report.state)]
        yield from paper.text("  ".join([*words, size_text(report.size)] if report.size else words))
        if report.text:
            yield from hanging((Piece("  "),), safe(report.text, 1000), paper.width, "label")


# Both


def _command(sight: About, paper: _Paper) -> Iterator[Line]:
    argv = sight.plan.get("argv") or ()
    text = str(sight.plan.get("text") or "") or " ".join(map(render_word, argv))
    if not text:
        return
    whose = f"that starts the ranks of {safe(sight.node)}"
    elsewhere = not sight.model.nodes[sight.node].ranks
    yield from paper.heading("Command", "that started the ranks elsewhere" if elsewhere else whose)
    yield from paper.row("in", safe(sight.plan.get("cwd") or "", 1000))
    setup = str(sight.plan.get("setup") or "").strip()
    for number_of, line in enumerate(setup.splitlines()):
        yield from paper.row("" if number_of else "after", safe(line, 1000))
    for line in text.splitlines():
        yield from paper.text(safe(line, 20_000))


def _environment(sight: About, rank: Rank, paper: _Paper) -> Iterator[Line]:
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
        text = f"asking {sight.node}"
    else:
        text = f"no link to {sight.node} to ask for it"
    yield from paper.text(safe(text, 1000), "label")


def _variables(got: Mapping[str, Any], given: Mapping[str, Any], paper: _Paper) -> Iterator[Line]:
    for name, value in sorted(got.items(), key=lambda item: str(item[0])):
        yield from _variable(name, value, paper)
        wanted = given.get(name)
        # The values of secrets are known neither here nor on the node.
        known = not any("(secret" in str(each) for each in (wanted, value))
        if wanted is not None and wanted != value and known:
            yield from hanging((Piece("  the launch set "),), safe(wanted, 4000), paper.width, "warning")
    for name in sorted(set(given) - set(got)):
        yield from paper.text(f"{safe(name)} was set by the launch but is missing", "warning")


def _variable(name: object, value: object, paper: _Paper) -> Iterator[Line]:
    head = safe(name, 200)
    pieces = fold(f"{head}={safe(value, 8000)}", max(8, paper.width - 2))
    known = len(head)
    for at, piece in enumerate(pieces):
        cut = min(len(piece), known)
        known -= cut
        indent = 2 if at else 0
        yield Line(
            (Piece(" " * indent), Piece(piece[:cut], "spark"), Piece(piece[cut:])), indent, joins=at > 0
        )


# What a node sent may be anything


def safe(value: object, limit: int = 300) -> str:
    """A value that a node sent, as one line of harmless text; None is ``?``."""
    return one_line("?" if value is None else str(value), limit=limit)


def number(value: object) -> float | None:
    """A value that a node sent, if it is a number one can calculate with."""
    if isinstance(value, (int, float)) and abs(value) < 1e30 and not math.isnan(value):
        return float(value)
    return None


def mapping(value: object) -> Mapping[str, Any]:
    """A value that a node sent, if it has fields; else none."""
    return value if isinstance(value, Mapping) else {}
