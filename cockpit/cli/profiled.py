"""What is printed of a profile, and the files that are made of it."""

from __future__ import annotations

import json
import shutil
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from cockpit.base.shell import quote
from cockpit.cli.output import out_json, out_lines, say, shows_unicode, to_file
from cockpit.core.profile import folded, perfetto, words
from cockpit.core.profile.collection import DONE, Collection, RankResult
from cockpit.core.profile.flame_page import flame_page
from cockpit.core.profile.reader import read
from cockpit.core.ranks import ranks_named
from cockpit.core.stacks.text import ascii_text
from cockpit.engine.collect import report_path
from cockpit.engine.files import open_regular
from cockpit.engine.profile.store import Store
from cockpit.engine.records.folder import RunFolder
from cockpit.errors import CockpitError, os_error

NAMED = 3
"""Ranks and frames that are printed, of those in which ranks differ."""


def tell(one: Collection, store: Store, folder: RunFolder | None, args: Namespace) -> None:
    """Print it, or write it to a file, as the options say.

    :param folder: of the run; None: cockpit did not start the job
    """
    reading = read(one)
    if args.json:
        out_json(_as_json(one, words.as_json(one, reading), store, folder))
    elif args.perfetto:
        _archive(one, reading.offsets, folder, args.perfetto)
    elif args.html or args.folded or args.speedscope:
        _of_stacks(one, args)
    elif args.md:
        out_lines(words.as_markdown(one, reading))
    else:
        width = max(60, min(100, shutil.get_terminal_size((100, 24)).columns))
        lines = [*words.as_lines(one, reading, width), *_stacks(one), *_where(one, store, folder)]
        out_lines(lines if shows_unicode() else map(ascii_text, lines))


def grouped(whys: Mapping[int, str]) -> Iterator[str]:
    """Ranks by the reason that they have in common: ``ranks 2-3: connection refused``."""
    by_why: dict[str, list[int]] = {}
    for rank, why in sorted(whys.items()):
        by_why.setdefault(why, []).append(rank)
    return (f"{ranks_named(ranks)}: {why}" for why, ranks in by_why.items())


def _samples(one: Collection) -> dict[int, folded.Samples]:
    results = one.results.items()
    return {rank: folded.parsed(result.folded) for rank, result in results if result.state == DONE}


def _differing(samples: Mapping[int, folded.Samples]) -> dict[int, list[folded.Differs]]:
    """The ranks that differ most from the others, and where."""
    return {rank: some[:NAMED] for rank, some in list(folded.odd_ranks(samples).items())[:NAMED]}


def _stacks(one: Collection) -> Iterator[str]:
    """What stacks say, as text."""
    if one.kind != "cpu" or not one.results:
        return
    samples = _samples(one)
    rates = sorted({result.rate for result in one.results.values() if result.rate})
    errors = sum(result.errors for result in one.results.values())
    if rates:
        span = "-".join(map(str, (rates[0], rates[-1])[: len(rates)]))
        yield f"{span} samples per second, {errors:,} failed"
    for rank, some in _differing(samples).items():
        for at in some:
            yield f"rank {rank}: {at.share:.0%} of its time in {at.frame}, others {at.others:.0%}"
    yield f"flame graph of all ranks: cockpit profile show {quote(one.run or 'RUN')} {one.number} --html FILE"


def _where(one: Collection, store: Store, folder: RunFolder | None) -> Iterator[str]:
    """Where traces are, and what makes one timeline of them."""
    files = {rank: result for rank, result in one.results.items() if result.file}
    if folder is not None and files:
        here = [rank for rank, result in files.items() if _here(result, folder) is not None]
        if here:
            path = _here(files[here[0]], folder)
            yield f"fetched: {ranks_named(here)}, in {path and path.parent.parent}"
        again = f"cockpit profile show {quote(folder.name)} {one.number}"
        fetch = "" if len(here) == len(files) else " --fetch"
        if one.kind == "torch":
            yield f"all ranks on one timeline: {again}{fetch} --perfetto FILE.tar"
    if folder is None:
        yield f"to show it again: cockpit profile show {quote(str(store.folder(one.number)))}"
    else:
        yield f"saved in {store.folder(one.number)}"


def _here(result: RankResult, folder: RunFolder | None) -> Path | None:
    """Where the trace of a rank is, if it was fetched."""
    path = report_path(folder, result.node, result.file) if folder is not None and result.file else None
    return path if path is not None and path.is_file() else None


def _of_stacks(one: Collection, args: Namespace) -> None:
    samples = _samples(one)
    if one.kind != "cpu":
        hint = f"to take one: cockpit profile {quote(one.run or 'HOSTFILE')} --kind cpu"
        raise CockpitError("has no stacks: only --kind cpu does", where=f"profile {one.number}", hint=hint)
    if not samples:
        raise CockpitError("has no samples", where=f"profile {one.number}")
    title = f"profile {one.number} of {one.run or 'a job'}"
    if args.html:
        facts = f"{one.seconds or 0.0:g} s of {ranks_named(samples)}, by py-spy"
        to_file(args.html, flame_page(samples, title, facts, _differing(samples)))
    if args.folded:
        to_file(args.folded, folded.to_folded(samples))
    if args.speedscope:
        to_file(args.speedscope, json.dumps(folded.to_speedscope(samples, title)) + "\n")


def _archive(one: Collection, offsets: Mapping[str, float], folder: RunFolder | None, target: str) -> None:
    """All traces that are here as one archive for Perfetto.

    :param offsets: how far each node's clock is ahead of ours
    """
    if one.kind != "torch":
        hint = "to write its stacks: --html, --folded or --speedscope FILE"
        raise CockpitError("has no traces: only --kind torch does", where=f"profile {one.number}", hint=hint)
    absent = [rank for rank, result in one.results.items() if result.file and _here(result, folder) is None]
    if absent and folder is not None and len(absent) < sum(bool(each.file) for each in one.results.values()):
        say(f"not fetched: {ranks_named(absent)}; to fetch them too: --fetch")
    with ExitStack() as opened:
        traces = []
        for rank, result in sorted(one.results.items()):
            path = _here(result, folder)
            if path is None:
                continue
            try:
                file = opened.enter_context(open(open_regular(path), "rb"))
            except OSError as error:
                raise os_error("cannot be read", path, error) from None
            traces.append(perfetto.RankTrace(rank, result.node, file, offsets.get(result.node, 0.0)))
        if not traces:
            fetch = "to fetch them: --fetch" if absent and folder is not None else ""
            raise CockpitError("its traces are not here", where=f"profile {one.number}", hint=fetch)
        try:
            with open(target, "wb") as archive:
                total = perfetto.write(traces, archive)
        except perfetto.TraceError as error:
            Path(target).unlink(missing_ok=True)
            raise CockpitError(str(error)) from None
        except OSError as error:
            raise os_error("cannot be written", target, error) from None
    say(f"written: {target}; open it at {words.VIEWER}")
    if large := perfetto.warning(total):
        say(large)


def _as_json(one: Collection, told: dict[str, Any], store: Store, folder: RunFolder | None) -> dict[str, Any]:
    return {
        "event": "profile",
        **told,
        "first": one.first,
        "cancelled": one.cancelled,
        "folder": str(store.folder(one.number)),
        "taken": {
            str(rank): {
                "node": result.node,
                "state": result.state,
                "why": result.why,
                "began": result.began,
                "file": result.file,
                "here": str(_here(result, folder) or "") or None,
                "size": result.size,
                "sha256": result.sha256,
                "rate": result.rate,
                "samples": result.samples,
                "errors": result.errors,
            }
            for rank, result in sorted(one.results.items())
        },
        "differ": {
            str(rank): [
                {"frame": at.frame, "share": round(at.share, 4), "others": round(at.others, 4)} for at in some
            ]
            for rank, some in (_differing(_samples(one)) if one.kind == "cpu" else {}).items()
        },
    }
