"""``cockpit doctor``: what differs between nodes, and what is wrong with them, before a launch."""

from __future__ import annotations

import argparse
import asyncio
import time

from cockpit.cli import launch_options
from cockpit.cli.awaiting import telling
from cockpit.cli.output import out, out_json
from cockpit.cli.parsing import Parser, reach
from cockpit.core.doctor.diagnosis import code, line, verdict
from cockpit.core.finding import Finding
from cockpit.engine.doctor import Wanted, examine
from cockpit.engine.launch.preflight import Diagnosis
from cockpit.engine.links.pool import PYTHONS, LinkPool

EPILOG = """examples:
  cockpit doctor hostfile
  cockpit doctor -w 'gpu[01-04]' --python /opt/venv/bin/python
  cockpit doctor hostfile -- train.py        also compares the Python files beside train.py

Takes the options of `cockpit run`, and looks at the nodes as such a run would find them. Nothing is started.
Exit code: 0 fit, 1 warnings, 3 unfit.
"""

EVIDENCE = 8
"""Lines of evidence below a finding."""


def main(words: list[str]) -> int:
    """Look at all nodes at once, and say what a launch would stumble over."""
    made = _parser()
    launch = launch_options.parse(made, words, stand_in=("doctor",))
    args = launch.args
    wanted = Wanted(launch.job, args.launcher, args.node_dir, args.slurm is not None)
    began = time.monotonic()
    found = asyncio.run(_examine(args, wanted))
    if args.json:
        out_json(as_json(found))
    else:
        _print(found, time.monotonic() - began)
    return int(code(found.findings))


def _parser() -> Parser:
    made = launch_options.parser(
        "doctor",
        "Look at all nodes at once: what differs between them, and what a launch would stumble over.",
    )
    made.usage = "cockpit doctor HOSTFILE|-w NODES [options of run] [-- SCRIPT [ARGS…]]"
    made.epilog = EPILOG
    made.set_defaults(launcher="")
    made.add_argument("--json", action="store_true", help="JSON")
    made.add_argument("--node-dir", metavar="DIR", default="", help="as given to run")
    return made


async def _examine(args: argparse.Namespace, wanted: Wanted) -> Diagnosis:
    pythons = [*([wanted.job.python] if wanted.job.python else []), *PYTHONS]
    async with LinkPool(pythons, reach(args)) as pool, telling(lambda: pool.roll, failures=False):
        return await examine(pool, wanted)


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
    out(f"{verdict(found.looks, found.findings)} ({took_s:.1f} s)")


def _below(found: Finding) -> list[str]:
    evidence = list(found.evidence[:EVIDENCE])
    if len(found.evidence) > EVIDENCE:
        evidence.append(f"… {len(found.evidence) - EVIDENCE} more")
    steps = [f"→ {step.text}" for step in found.steps]
    return [*([found.detail] if found.detail else []), *evidence, *steps]
