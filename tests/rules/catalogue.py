"""The failure catalogue: which of its ids is known by which rules."""

from __future__ import annotations

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
SECTIONS = {"P": 16, "L": 25, "R": 17, "H": 30, "Z": 9, "S": 9, "N": 13, "Q": 7, "G": 10}
IDS = tuple(f"{letter}{number:02}" for letter, most in SECTIONS.items() for number in range(1, most + 1))
"""Every id: a failure that people met, see ``SECTIONS`` for how many of each letter there are."""


def catalogue() -> dict[str, list[str] | str]:
    """Of each id the rules that know it, or ``check: where``, or ``no: why``."""
    told: dict[str, list[str] | str] = tomllib.loads((HERE / "catalogue.toml").read_text(encoding="utf-8"))
    return told
