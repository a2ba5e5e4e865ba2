"""The tables of keys in the docs, drawn from the app's own list of commands: ``make docs``."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from cockpit.tui.commands import BY_ID, key_table, shown

ROOT = Path(__file__).resolve().parent.parent

MARKS = ("<!-- drawn by `make docs` -->", "<!-- until here -->")
"""What stands around a drawn part."""

FIRST_KEYS = (
    "help",
    "palette",
    "open",
    "back",
    "nodes",
    "log",
    "detail",
    "events",
    "commands",
    "mark",
    "stacks",
    "filter",
    "next_match",
    "next_error",
    "failed_log",
    "follow",
    "zoom",
    "freeze",
    "copy",
    "copy_command",
    "stop",
    "keep",
    "leave",
)
"""The commands that a newcomer needs, in the order of the README."""


def short_table() -> str:
    """The keys of the README in Markdown."""
    lines = ["| key | what it does |", "|---|---|"]
    for name in FIRST_KEYS:
        keys = " ".join(f"`{shown(key)}`" for key in BY_ID[name].keys)
        lines.append(f"| {keys} | {BY_ID[name].title} |")
    return "\n".join(lines) + "\n"


DRAWN: dict[str, Callable[[], str]] = {"README.md": short_table, "docs/keys.md": key_table}
"""Which file has which table."""


def renewed(text: str, table: str) -> str:
    """A page with its drawn part replaced.

    :raises ValueError: it has no such part, or several
    """
    begin, end = MARKS
    pattern = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"not exactly one part between {begin} and {end}")
    return pattern.sub(lambda _: f"{begin}\n{table}{end}", text)


def main() -> None:
    """Write every table anew."""
    for name, table in DRAWN.items():
        path = ROOT / name
        path.write_text(renewed(path.read_text(), table()))
        print(path)


if __name__ == "__main__":
    main()
