"""What Detail says about a node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from cockpit.base.events import NodeSample
from cockpit.core.masks import mask_of
from cockpit.core.ranks import ranks_named, ranks_text
from cockpit.core.run.model import Node
from cockpit.core.time_text import span_text
from cockpit.engine.records.manifest import NodeEntry
from cockpit.tui.look.glyphs import state_name
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
    page_lines,
    safe,
    variable_lines,
)
from cockpit.tui.run.nccl_lines import nccl_lines


def node_lines(sight: About, node: Node, paper: Paper) -> Iterator[Line]:
    states = Counter(
        (paper.glyphs.of(rank), rank.text, state_name(rank)) for rank in sight.model.on(node.name)
    )
    about = [
        Piece(f"  {ranks_named(node.ranks) if node.ranks else 'no ranks'}", "label"),
        *(Piece(f"  {sign} {n} {safe(text, 200)}", role) for (sign, text, role), n in states.most_common()),
    ]
    rest = sight.part is Part.REST
    yield from paper.flow(Piece(safe(node.name), "title"), *([] if rest else about))
    if not rest:
        yield from measured_ago(node, None, sight.now, paper)
        yield from _node_measures(sight, node, paper)
        yield from _gpus(sight, node, paper)
        yield from _link(sight, node, paper)
        yield from _survivors(node, paper)
        yield from _remarks(node, paper)
    if sight.part is Part.NOW:
        return
    if sight.more:
        yield Line()
        yield from more_lines(sight, "what was found on it, environment, files", paper)
        return
    yield from nccl_lines(sight, mask_of(node.ranks), paper)
    yield from page_lines(sight, paper)
    yield from _found(sight.entry, paper)
    yield from _reports(sight, node, paper)
    yield from command_lines(sight, paper)
    given = mapping(sight.plan.get("env"))
    if given:
        yield from paper.heading("Environment", "set by the launch")
        for name, value in sorted(given.items()):
            yield from variable_lines(name, value, paper)


def _node_measures(sight: About, node: Node, paper: Paper) -> Iterator[Line]:
    sample, trends = node.sample or NodeSample(), sight.trends
    points = trends.node(node.name, "load")
    value = "" if sample.load is None else f"{sample.load:,.1f}"
    cores = sample.cores
    of = "" if cores is None else f" on {cores:,.0f} cores"
    high = max(float(cores or 1), *points, 0.0)
    yield from paper.measure("load", points, value and value + of, "running", high=high)
    points = trends.node(node.name, "memory_bytes")
    yield from paper.measure(
        "mem", points, memory_used(sample, sight.sizes), "spark", high=sample.memory_total_bytes
    )
    free = sample.disk_free_bytes
    if free is not None:
        role = "error" if free < 1 << 30 else ""
        yield Line(
            (Piece("disk  ", "label"), Piece(f"{sight.sizes.text(free)} free for the run's files", role))
        )


def _gpus(sight: About, node: Node, paper: Paper) -> Iterator[Line]:
    if not node.gpus:
        return
    yield from paper.heading("GPUs")
    yield Line.of(f"gpu  {'busy':>5}  {'memory':>14}  name", "label")
    for index, gpu in enumerate(node.gpus):
        busy = gpu.utilisation_percent
        share = "?" if busy is None else f"{busy:.0f} %"
        head = f"{index:>3}  {share:>5}  {memory_used(gpu, sight.sizes) or '?':>14}  "
        yield from hanging((Piece(head),), safe(gpu.name), paper.width, "label")


def _link(sight: About, node: Node, paper: Paper) -> Iterator[Line]:
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


def _found(entry: NodeEntry, paper: Paper) -> Iterator[Line]:
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

    profilers = dict.fromkeys(each.tool for each in PROFILERS.values())
    for name in ("torch", "deepspeed", *profilers, "numactl"):
        yield from paper.row(name, safe(facts[name]) if facts.get(name) else "")
    yield from paper.row("run folder", safe(entry.dir, 4000))


def _survivors(node: Node, paper: Paper) -> Iterator[Line]:
    if not node.survivors:
        return
    yield from paper.heading("Survivors", "no signal ended them")
    for process in node.survivors:
        text = f"{safe(process.name)}  pid {process.pid}  state {safe(process.state)}"
        yield from paper.text(text, "error")


def _remarks(node: Node, paper: Paper) -> Iterator[Line]:
    if not node.remarks:
        return
    yield from paper.heading("Notes")
    for note in node.remarks:
        yield from hanging((Piece("- ", "label"),), safe(note, 1000), paper.width)


def _reports(sight: About, node: Node, paper: Paper) -> Iterator[Line]:
    if not node.reports:
        return
    yield from paper.heading("Reports")
    for report in node.reports.values():
        words = [safe(report.name or "none"), safe(report.state)]
        yield from paper.text("  ".join([*words, sight.sizes.text(report.size)] if report.size else words))
        if report.text:
            yield from hanging((Piece("  "),), safe(report.text, 1000), paper.width, "label")
