"""``cockpit collect RUN [FILE…]``: fetch and verify reports and dumps, or named files, of all nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from cockpit.base.shell import join
from cockpit.cli.awaiting import telling
from cockpit.cli.output import StatusLine, out, out_json, say
from cockpit.cli.parsing import Parser, add_flag
from cockpit.cli.slurm_options import add_run, run_folder
from cockpit.engine.collect import Collected, collect
from cockpit.engine.links.pool import LinkPool
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.join import pool_for
from cockpit.errors import CockpitError, Exit
from cockpit.plans.profilers.registry import LAUNCHED, WARNING


def parser() -> Parser:
    """Its options."""
    made = Parser(
        "collect",
        "Fetch a run's profiler reports and NCCL dumps, or the named files, from all nodes at once, and "
        "verify them by sha256. If interrupted, run it again: it resumes where it stopped.",
        "FILE is a path on the nodes, or a pattern with * ? [ ] (quote it, so that your shell does not "
        "expand it), relative to the ranks' working directory. If a node lacks a file that another node has, "
        "that is reported but is not an error.\n"
        "Exit codes: 0 everything is here and verified, 3 something is missing (it says what).",
    )
    add_run(made)
    made.add_argument("files", metavar="FILE", nargs="*", help="files on the nodes to fetch instead")
    made.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="destination folder (default: the run's)"
    )
    add_flag(made, "--json", "one JSON object at the end")
    return made


def main(words: list[str]) -> int:
    """Fetch reports."""
    made = parser()
    args, more = made.parse_known_args(words)
    for word in more:
        if word.startswith("-"):
            made.refuse(word)
    args.files += more  # those after an option
    if args.slurm is not None and args.run is not None:  # the job names the run: these are files
        args.run, args.files = None, [args.run, *args.files]
    folder = run_folder(args.run, args.slurm)
    return asyncio.run(_fetch(folder, args.output, args.files, as_json=args.json))


async def _fetch(folder: RunFolder, target: Path | None, files: list[str], *, as_json: bool) -> Exit:
    async with pool_for(folder.manifest) as pool:
        return await fetch(folder, pool, target, files, as_json=as_json)


async def fetch(
    folder: RunFolder,
    pool: LinkPool,
    target: Path | None = None,
    files: Sequence[str] = (),
    *,
    as_json: bool = False,
) -> Exit:
    """Collect with progress on stderr and the outcome on stdout.

    :param files: what to fetch on the nodes; none: reports
    """
    progress = StatusLine()
    pool.roll.call(node.name for node in folder.manifest.nodes)

    def show(so_far: Collected) -> None:
        progress.show("" if pool.roll.awaited else _how_far(so_far))

    def lost(error: CockpitError) -> None:
        progress.clear()
        say(str(error))

    try:
        async with telling(lambda: pool.roll):
            where = target or folder.path / ("files" if files else "reports")
            collected = await collect(folder, pool, where, show, lost, words=files)
    finally:
        progress.clear()
    if as_json:
        fields = {**asdict(collected), "folder": str(collected.folder), "warning": WARNING}
        out_json({"event": "collected", **fields})
        return collected.exit_code()
    for report in collected.reports:
        name = report.path or report.name
        if report.state == "collected":
            path, size = collected.folder / report.file, report.size / 1e6
            more = f"; {report.why}" if report.why and report.path else ""
            out(f"{report.node}: {path}  {size:.1f} MB  sha256 verified{more}")
        elif report.state == "same":
            out(f"{report.node}: {name}: {report.why}")
        else:
            out(f"{report.node}: {name}: {report.state}: {report.why}")
    some = {report.node for report in collected.reports}
    for node, why in collected.missing.items():
        out(f"{node}: {why}" if files or node in some else f"{node}: no report: {why}")
    for node, words in collected.absent.items():
        if rest := [word for word in words if f"no such file: {word}" not in collected.missing.get(node, "")]:
            say(f"{node}: has no {', '.join(rest)}")
    for node, names in collected.passed_over.items():
        say(f"{node}: not fetched (not reports): {', '.join(map(repr, names))}")
    if any(report.name.endswith(LAUNCHED) for report in collected.reports) and not files:
        say(WARNING)
    if not collected.complete and (collected.reports or folder.manifest.profile or files):
        say(f"incomplete; to try again: cockpit collect {join([folder.name, *files])}")
    return collected.exit_code()


def _how_far(collected: Collected) -> str:
    """The files under way, and the total."""
    if not collected.reports:
        return ""
    total = sum(report.size for report in collected.reports)
    here = sum(min(report.here, report.size) for report in collected.reports)
    done = sum(report.state == "collected" for report in collected.reports)
    under_way = [
        f"{report.node} {100 * report.here // max(report.size, 1)} %"
        for report in collected.reports
        if report.state == "fetching"
    ]
    share = 100 * here // max(total, 1)
    what = "files" if any(report.path for report in collected.reports) else "reports"
    text = f"collect: {done}/{len(collected.reports)} {what}, {here / 1e6:.0f}/{total / 1e6:.0f} MB"
    return f"{text} ({share} %)  {', '.join(under_way[:4])}"
