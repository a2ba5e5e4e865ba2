"""The rules by which failures are explained, listed."""

from __future__ import annotations

from cockpit.cli.output import out, out_json, table
from cockpit.core.rules.table import table as rules
from cockpit.errors import Exit
from cockpit.lang import word


def show(*, as_json: bool, lang: str) -> int:
    """Print them, with their sources."""
    rows = rules().rows
    if as_json:
        out_json([{"rule": row.id, "meaning": row.meaning(lang), "source": row.source} for row in rows])
    elif not rows:
        out("no rules")
    else:
        heads = tuple(word(head, lang) for head in ("RULE", "MEANING", "SOURCE"))
        table([heads, *((row.id, row.meaning(lang), row.source) for row in rows)])
    return Exit.OK
