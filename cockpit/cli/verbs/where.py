"""``cockpit where``: every path in use."""

from __future__ import annotations

from cockpit import config, paths
from cockpit.cli.output import out_json, table
from cockpit.cli.parsing import Parser, add_flag
from cockpit.errors import Exit


def parser() -> Parser:
    """Its options."""
    made = Parser("where", "Print every path cockpit uses on this machine.")
    add_flag(made, "--json", "one JSON object")
    return made


def main(words: list[str]) -> int:
    """Print the paths."""
    args = parser().parse_args(words)
    found = {
        "settings": str(paths.config()),
        "settings of a project": f"{config.LOCAL} in the folder where cockpit is started",
        "own themes": str(paths.themes()),
        "runs": str(paths.runs()),
        "evidence of nodes": f"{paths.runs()}/<run>/evidence; on nodes evidence/ in the run folder",
        "stacks of other jobs": str(paths.stacks()),
        "opened bundles": str(paths.bundles()),
        "packages of runs' Pythons": str(paths.packages()),
        "measurements of nccl-tests": str(paths.measured()),
        "screenshots": str(paths.screenshots()),
        "last text copied in the app": str(paths.copied()),
        "secrets of printed plans": str(paths.plans()),
        "for the ssh program": str(paths.ssh()),
        "tracebacks": str(paths.errors()),
        "run folders on nodes": "$TMPDIR or /tmp, then cockpit-<uid>/<run>/<node> (--node-dir changes it)",
    }
    if args.json:
        out_json(found)
    else:
        table(list(found.items()))
    return Exit.OK
