"""Text snapshots of screens whose picture is the point, each at one size: ``make snapshots`` draws them anew.

Run as a program, it writes a page that shows each one that was changed, as committed beside as it is now.
"""

from __future__ import annotations

import os
import subprocess
import sys
from html import escape
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SNAPSHOTS = "tests/tui/snapshots"
LARGE, SMALL = (140, 45), (80, 24)

PICTURES = {
    "running": LARGE,
    "failed": SMALL,
    "stalled": LARGE,
    "ranks": LARGE,
    "detail": LARGE,
    "events": LARGE,
    "commands": SMALL,
    "help": LARGE,
    "told-as-one": SMALL,
    "one-by-one": LARGE,
    "connecting": SMALL,
    "host-keys": SMALL,
    "login-code": SMALL,
    "cannot-start": SMALL,
    "stop-question": SMALL,
    "foreign-detail": LARGE,
    "foreign-leave": SMALL,
    "phases": LARGE,
    "pace-phases": LARGE,
    "pace": LARGE,
    "pace-4": SMALL,
    "pace-1024": LARGE,
    "pace-ranks": LARGE,
    "pace-signs": SMALL,
    "stacks-4": SMALL,
    "stacks-64": LARGE,
    "stacks-1024": LARGE,
    "stacks-healthy": LARGE,
    "stacks-stopped": LARGE,
    "stacks-missing": LARGE,
    "stacks-denied": SMALL,
    "stacks-taking": LARGE,
    "stacks-rank": LARGE,
    "stacks-locals": LARGE,
    "stacks-children": LARGE,
    "stacks-diff": LARGE,
    "profile-64": LARGE,
    "profile-64-narrow": SMALL,
    "profile-4": SMALL,
    "profile-4-wide": LARGE,
    "profile-healthy": LARGE,
    "profile-begins": SMALL,
    "profile-goes-on": LARGE,
    "profile-goes-on-4": SMALL,
    "profile-refused": SMALL,
    "profile-cancelled": SMALL,
    "profile-cpu": LARGE,
    "profile-cpu-4": SMALL,
    "profile-operations-4": SMALL,
    "profile-collectives-4": SMALL,
    "profile-files-4": SMALL,
    "profile-ascii": SMALL,
    "profile-form": SMALL,
    "profile-form-refused": SMALL,
    "profile-form-over": SMALL,
    "doctor-sick": LARGE,
    "doctor-waiting": SMALL,
}
"""Scenes, and the size at which each is kept; of the others, tests name the words that matter."""


STYLE = """body { font-family: sans-serif; } table { border-spacing: 1em 0; } td { vertical-align: top; }
pre { font-size: 11px; line-height: 1.25; background: #f4f4f4; padding: .5em; margin: 0; }
mark { background: #ffd54d; }"""


def file_of(name: str) -> Path:
    """Where the snapshot of a scene is."""
    width, height = PICTURES[name]
    return ROOT / SNAPSHOTS / f"{name}-{width}x{height}.txt"


def as_designed(name: str, shown: str) -> None:
    """Compare a screen with its snapshot; with COCKPIT_SNAPSHOTS=write it becomes that."""
    path = file_of(name)
    if os.environ.get("COCKPIT_SNAPSHOTS") == "write":
        path.write_text(shown)
    assert shown == path.read_text()


def marked(lines: list[str], others: list[str]) -> str:
    """Lines as HTML; those that the other side has not at the same place stand out."""
    pairs = list(zip_longest(lines, others, fillvalue=None))[: len(lines)]
    shown = (escape(line or "") for line, _ in pairs)
    return "\n".join(
        f"<mark>{text or ' '}</mark>" if line != other else text
        for text, (line, other) in zip(shown, pairs, strict=True)
    )


def page(old: dict[str, str], new: dict[str, str]) -> str:
    """The page of what differs between snapshots by name."""
    rows = []
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name, ""), new.get(name, "")
        if before != after:
            left, right = before.splitlines(), after.splitlines()
            cells = (marked(left, right), marked(right, left))
            rows.append(f"<tr><th colspan=2>{escape(name)}</th></tr><tr>")
            rows += [f"<td><pre>{cell}</pre></td>" for cell in cells]
            rows.append("</tr>")
    head = f"<!doctype html><meta charset=utf-8><title>Snapshots: old, new</title><style>{STYLE}</style>"
    return f"{head}\n<table>{''.join(rows)}</table>\n"


def committed() -> dict[str, str]:
    """The snapshots of the last commit, by name."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    names = git("ls-tree", "--name-only", "HEAD", f"{SNAPSHOTS}/").splitlines()
    return {Path(name).name: git("show", f"HEAD:{name}") for name in names}


def main() -> int:
    """Write the page and say where it is."""
    old = committed()
    new = {path.name: path.read_text() for path in (ROOT / SNAPSHOTS).glob("*.txt")}
    changed = sum(old.get(name) != new.get(name) for name in old.keys() | new.keys())
    if not changed:
        print("no snapshot differs from the last commit")
        return 0
    file = ROOT / "build" / "snapshots.html"
    file.parent.mkdir(exist_ok=True)
    file.write_text(page(old, new))
    print(f"{changed} snapshots differ from the last commit; old beside new: {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
