"""``cockpit doctor``: check nodes before a launch: differences and problems."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

from cockpit import config
from cockpit.cli import launch_options
from cockpit.cli.awaiting import telling
from cockpit.cli.output import StatusLine, out, out_json, out_lines, say, table
from cockpit.cli.parsing import Parser, add_flag, add_seconds, add_word, reach
from cockpit.core.doctor import memory
from cockpit.core.doctor.deep import Rehearsed, summary
from cockpit.core.doctor.deep import found as findings_of
from cockpit.core.doctor.diagnosis import checked, code, line, verdict, worst_first
from cockpit.core.finding import Finding
from cockpit.core.nccl.table import text_lines
from cockpit.core.rules.explanation import translated
from cockpit.core.text import counted, size
from cockpit.engine.deep import TIMEOUT_S as DEEP_S
from cockpit.engine.deep import Deep, rehearse
from cockpit.engine.doctor import STAND_IN, TIMEOUT_S, Wanted, examine
from cockpit.engine.launch.preflight import Diagnosis
from cockpit.engine.links.pool import PYTHONS, LinkPool
from cockpit.errors import CockpitError
from cockpit.plans.nodes.hostfile import read_text

EPILOG = """examples:
  cockpit doctor hostfile
  cockpit doctor -w 'gpu[01-04]' --python /opt/venv/bin/python
  cockpit doctor hostfile --params 70e9      also: which ZeRO stages fit such a model here
  cockpit doctor hostfile -- train.py        also compares the Python files beside train.py
  cockpit doctor hostfile --deep             also: test torch between all nodes, and its speed

Takes the options of `cockpit run` (--help-all) and checks the nodes for such a run. Without --deep, nothing
is started.
Exit codes: 0 fit, 1 warnings, 3 unfit.
"""

_NO_TORCH = ("unreachable", "refused", "no_torch", "no_deepspeed")
"""Findings that say why torch cannot start on a node."""

EVIDENCE = 8
"""Lines of evidence below a finding."""


def main(words: list[str]) -> int:
    """Look at all nodes at once, and say what a launch would stumble over."""
    made = parser()
    launch = launch_options.parse(made, words, stand_in=STAND_IN)
    args, lang = launch.args, config.load().language
    model = Model.of(args.params, args.ds_config)
    scheduler = args.slurm is not None
    wanted = Wanted(launch.job, args.launcher, args.node_dir, scheduler, timeout_s=args.timeout)
    limit_s = DEEP_S if args.deep_timeout is None else args.deep_timeout
    deep = Deep(args.iface, limit_s) if args.deep else None
    if deep is None and args.iface:
        made.error("--iface needs --deep")
    if deep is None and args.nccl_debug:
        made.error("--nccl-debug needs --deep")
    if deep is None and args.deep_timeout is not None:
        made.error("--deep-timeout needs --deep")
    began = time.monotonic()
    found, done = asyncio.run(_examine(args, wanted, deep))
    if done is not None:
        # That the port cannot be reached is known better by now.
        seen = [each for each in found.findings if each.id != "unreached" or done.dropped is None]
        found = replace(found, findings=worst_first((*seen, *findings_of(_news(done, seen)))))
    rows: tuple[memory.Need, ...] = ()
    if model is not None:
        there = memory.have(found.looks, [len(host.slots) for host in wanted.job.hosts])
        rows = memory.needs(model.params, there.nodes, there.gpus)
        lacking = memory.short(rows, there, model.stage, model.offload)
        found = replace(found, findings=(*found.findings, *([lacking] if lacking else [])))
    found = replace(found, findings=tuple(translated(each, lang) for each in found.findings))
    if args.json:
        needs = [{**asdict(row), "fits": there.fits(row)} for row in rows]
        told = {"memory": needs} if rows else {}
        out_json({**as_json(found), **told, **({"deep": done.as_json()} if done else {})})
    else:
        if rows:
            _print_memory(rows, there, args.params)
        if done is not None and (lines := summary(done)):
            out_lines([*lines, *(text_lines(done.nccl()) if args.nccl_debug else ()), ""])
        _print(found, time.monotonic() - began)
    return int(code(found.findings))


def parser() -> Parser:
    made = launch_options.parser(
        "doctor",
        "Check all nodes at once: differences between them, and anything that would break a launch.",
        "--deep --params --json",
    )
    made.usage = "cockpit doctor HOSTFILE|-w NODES [options of run] [-- SCRIPT [ARGS…]]"
    made.epilog = EPILOG
    made.set_defaults(launcher="")
    add_flag(made, "--json", "JSON")
    add_word(made, "--params", "N", "check whether a model of N parameters fits: 70e9, 7b, 350M")
    add_word(made, "--ds-config", "FILE", "with --params: check the ZeRO setup of FILE")
    add_seconds(
        made,
        "--timeout",
        TIMEOUT_S,
        f"give up on the remaining nodes after S seconds without progress on any (default: {TIMEOUT_S:g})",
    )
    group = made.add_argument_group("torch test")
    add_flag(
        group,
        "--deep",
        "test torch.distributed between all nodes where nothing runs (gloo, NCCL on free GPUs); if it "
        "fails, find the node or link",
    )
    add_word(group, "--iface", "NAME", "with --deep: the network interface that ranks must use")
    add_seconds(group, "--deep-timeout", None, f"with --deep: time limit in seconds (default: {DEEP_S:g})")
    add_word(
        made,
        "--node-dir",
        "DIR",
        "check this parent of run folders on the nodes (default: their $TMPDIR or /tmp)",
    )
    return made


def _news(done: Rehearsed, seen: Sequence[Finding]) -> Rehearsed:
    """The same, without the nodes of which it was said already why torch cannot start there."""
    known = {node for one in seen if one.id in _NO_TORCH for node in one.nodes}
    return replace(done, broken={node: why for node, why in done.broken.items() if node not in known})


@dataclass(frozen=True)
class Model:
    """What is to be trained.

    :param stage: of ZeRO; None: not chosen
    """

    params: int
    stage: int | None = None
    offload: str = ""

    @classmethod
    def of(cls, params: str, config: str) -> Model | None:
        """From the options.

        :raises CockpitError: they make no sense
        """
        if not params:
            if config:
                hint = "give that too: --params 7b"
                raise CockpitError("does not say how many parameters the model has", where=config, hint=hint)
            return None
        number = memory.parameters(params)
        if not config:
            return cls(number)
        try:
            return cls(number, *memory.zero_of(json.loads(read_text(config, "DeepSpeed configuration"))))
        except (ValueError, RecursionError):
            raise CockpitError(
                "is not JSON", where=config, hint="check it: python -m json.tool FILE"
            ) from None
        except CockpitError as error:
            raise CockpitError(error.what, where=error.where or config, hint=error.hint) from None


def _print_memory(rows: Sequence[memory.Need], there: memory.Have, params: str) -> None:
    place = f"{counted(there.nodes, 'node')} x {counted(there.gpus, 'rank')}"
    out(f"model states for {params} parameters on {place} (DeepSpeed's estimate, without activations):")
    words = {True: "yes", False: "no", None: "?"}
    head = ("ZERO", "OFFLOAD", "A GPU NEEDS", "HAS", "A NODE NEEDS", "HAS", "FITS")
    has = memory.told(there.gpu_bytes), memory.told(there.node_bytes)
    lines = [
        (str(row.stage), row.offload or "-", size(row.gpu_bytes), has[0], size(row.node_bytes), has[1])
        for row in rows
    ]
    table([head, *((*line, words[there.fits(row)]) for line, row in zip(lines, rows, strict=True))])
    out()


async def _examine(
    args: argparse.Namespace, wanted: Wanted, deep: Deep | None
) -> tuple[Diagnosis, Rehearsed | None]:
    pythons = [*([wanted.job.python] if wanted.job.python else []), *PYTHONS]
    async with LinkPool(pythons, reach(args)) as pool:
        async with telling(lambda: pool.roll, failures=False):
            found = await examine(pool, wanted)
        if deep is None:
            return found, None
        progress = StatusLine()
        try:
            return found, await rehearse(pool, found.looks, wanted, deep, partial(_say_progress, progress))
        finally:
            progress.clear()


def _say_progress(progress: StatusLine, text: str) -> None:
    if progress.on:
        progress.show(text)
    else:
        say(text)


def as_json(found: Diagnosis) -> dict[str, object]:
    """The diagnosis for programs."""
    return {
        "verdict": verdict(found.looks, found.findings),
        "nodes": list(found.looks.nodes),
        "findings": [each.as_json() for each in found.findings],
    }


def _print(found: Diagnosis, took_s: float) -> None:
    for each in found.findings:
        out(f"{each.severity}: {line(each)}")
        for text in _below(each):
            out(f"    {text}")
    if found.findings:
        out()
    if looked := checked(found.looks):
        out(looked)
    out(f"{verdict(found.looks, found.findings)} ({took_s:.1f} s)")


def _below(found: Finding) -> list[str]:
    evidence = list(found.evidence[:EVIDENCE])
    if len(found.evidence) > EVIDENCE:
        evidence.append(f"… {len(found.evidence) - EVIDENCE} more")
    steps = [f"→ {step.text}" for step in found.steps]
    return [*filter(None, (found.detail, found.meaning)), *evidence, *steps]
