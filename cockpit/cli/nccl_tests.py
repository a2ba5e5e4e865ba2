"""What programs of nccl-tests measured in a run, in words: a line for each at its end, all in ``ps``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cockpit.core.nccl_tests.drawing import drawn, size_text
from cockpit.core.nccl_tests.findings import Result, compared, findings
from cockpit.core.run.model import RunModel
from cockpit.engine.nccl_results import results_here
from cockpit.engine.records.folder import RunFolder
from cockpit.tui.look.spark import sparkline

MOST = 4
"""Tables that are shown."""


def at_end(folder: RunFolder, model: RunModel) -> Iterator[str]:
    """Lines for the end of a run; those of a run that is not over are not known yet."""
    found = results_here(folder, model) if model.over else []
    for one in found[:MOST]:
        yield _head(one)
    wrong = findings(found)
    for each in wrong:
        yield f"{each.severity}: {each.what}"
    if found:
        yield f"all of it: cockpit ps {folder.name}"


def paragraphs(found: Sequence[Result]) -> Iterator[list[str]]:
    """Each table, drawn."""
    for one in found[:MOST]:
        yield [_head(one), *(f"  {line}" for line in drawn(one.table))]
    if len(found) > MOST:
        yield [f"and {len(found) - MOST} more tables of nccl-tests: cockpit ps RUN --json"]


def _head(result: Result) -> str:
    """``all_reduce_perf on gpu[01-02]: busbw ▁▁▃█ 238.86 GB/s at 1 GiB, 12 % below 2026-11-20``."""
    ranks = len(result.table.devices)
    who = f"{result.name} on {result.where}, {ranks} rank{'s' * (ranks != 1)}"
    peak = result.table.peak
    if peak is None:
        return f"{who}: nothing measured yet"
    values = [row.busbw for row in result.table.rows if row.busbw is not None]
    change = result.change
    bars = sparkline(values, min(len(values), 40))
    at = f"{who}: busbw {bars} {peak.busbw:g} GB/s at {size_text(peak.what.size)}"
    if change is None:
        return at
    there = "" if change.what == peak.what else f"at {size_text(change.what.size)} "
    return f"{at}, {there}{compared(change)}"


def as_json(found: Sequence[Result]) -> list[dict[str, Any]]:
    """For programs."""
    return [
        {**one.table.as_json(), "node": one.node, "file": one.path, "before": _before(one)} for one in found
    ]


def _before(result: Result) -> dict[str, Any] | None:
    change = result.change
    if change is None:
        return None
    size, before = change.what.size, change.before
    told = {"run": before.run, "t": before.t, "size": size, "busbw": change.was}
    return {**told, "change": round(change.by, 6)}
