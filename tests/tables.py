"""What of the docs is drawn from the code (``make docs``): tables, advice on troubles, manual pages."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from cockpit.base import gate
from cockpit.base.answers import Nothing
from cockpit.base.events import OWN, RECORD
from cockpit.base.verbs import VERBS
from cockpit.core.rules.table import AREAS
from cockpit.engine.links.link import REPLIES
from cockpit.tui.commands import EVERY, GROUPS, shown
from tests import json_schemas, manpages, troubles

ROOT = Path(__file__).resolve().parent.parent

MARKS = ("<!-- drawn by `make docs` -->", "<!-- until here -->")
"""What stands around a drawn part."""

HEADINGS = {"Stacks": "Stacks, after `s`", "Doctor": "Doctor, after `D`", "Profile": "Profile, after `P`"}
"""Of groups of keys, if they say more than those in the app."""


PACKAGES = (
    "base",
    "base/stacks",
    "base/progress",
    "base/recorder",
    "base/profile",
    "core",
    "core/run",
    "core/run/notices",
    "core/doctor",
    "core/calls",
    "core/pace",
    "core/rules",
    "core/rules/rows",
    "core/watch",
    "core/logs",
    "core/logs/progress",
    "core/explain",
    "core/report",
    "core/compare",
    "core/replay",
    "core/nccl",
    "core/nccl_tests",
    "core/stacks",
    "core/stacks/rules",
    "core/recorder",
    "core/profile",
    "node",
    "node/run",
    "node/probe",
    "node/stacks",
    "node/evidence",
    "node/recorder",
    "node/profile",
    "node/jobs",
    "node/measure",
    "node/checkup",
    "kube",
    "plans",
    "plans/nodes",
    "plans/launchers",
    "plans/profilers",
    "transport",
    "engine",
    "engine/links",
    "engine/calls",
    "engine/launch",
    "engine/records",
    "engine/clean",
    "engine/run",
    "engine/logs",
    "engine/explain",
    "engine/report",
    "engine/compare",
    "engine/replay",
    "engine/stacks",
    "engine/profile",
    "cli",
    "cli/verbs",
    "tui",
    "tui/look",
    "tui/panes",
    "tui/run",
    "tui/pace",
    "tui/logs",
    "tui/stacks",
    "tui/home",
    "tui/profile",
    "tui/compare",
    "demo",
)
"""Every package, in the order in which to read them."""


def package_table() -> str:
    """The map of the packages in Markdown: what each says it is for."""
    lines = ["| package | what is in it |", "|---|---|"]
    for name in PACKAGES:
        tree = ast.parse((ROOT / "cockpit" / name / "__init__.py").read_text())
        first = (ast.get_docstring(tree) or "").split("\n\n")[0]
        text = " ".join(first.replace("``", "`").split())
        lines.append(f"| `{name}` | {text} |")
    return "\n".join(lines) + "\n"


def key_table() -> str:
    """All keys, group by group."""
    lines = []
    group = ""
    for command in sorted(EVERY, key=lambda command: GROUPS.index(command.group)):
        if command.group != group:
            group = command.group
            lines += [
                "",
                f"**{HEADINGS.get(group, group)}**",
                "",
                "| key | what it does | name in `[keys]` |",
                "|---|---|---|",
            ]
        keys = " ".join(f"`{shown(key)}`" for key in command.keys)
        text = f"{command.title}. {command.help}" if command.help else command.title
        if command.replayed is not None:
            there = " ".join(f"`{shown(key)}`" for key in command.replayed.split(","))
            text = f"{text.removesuffix('.')}. In a replay: {there}"
        lines.append(f"| {keys} | {text} | `{command.id}` |")
    return "\n".join(lines).strip() + "\n"


def event_table(kinds: Mapping[str, type[Any]]) -> str:
    """Kinds of events with their fields in Markdown."""
    lines = ["| kind | fields | meaning |", "|---|---|---|"]
    for kind, fact in kinds.items():
        lines.append(f"| `{kind}` | {_names(fact)} | {_doc(fact)} |")
    return "\n".join(lines) + "\n"


def verb_table() -> str:
    """The verbs of the agent in Markdown."""
    lines = ["| verb | asks | answers |", "|---|---|---|"]
    for verb, asks in VERBS.items():
        reply = REPLIES[asks]
        names = _names(asks)
        items = "" if reply.item is Nothing else f"items: {_doc(reply.item)}"
        answer = "" if reply.answer is Nothing else _doc(reply.answer)
        asked = f"{_doc(asks)}: {names}" if names else _doc(asks)
        lines.append(f"| `{verb}` | {asked} | {'; then '.join(filter(None, (items, answer)))} |")
    return "\n".join(lines) + "\n"


def _names(definition: type[Any]) -> str:
    names = " ".join(name for name, _, _ in gate.fields(definition))
    return f"`{names}`" if names else ""


def _doc(definition: type[Any]) -> str:
    return " ".join((definition.__doc__ or "").split())


def rule_table(chinese: bool = False) -> str:
    """All rules by area: id, meaning and what to type, source."""
    lines = []
    heads = ("规则", "含义", "接下来", "来源") if chinese else ("rule", "meaning", "next", "source")
    for area, titles in AREAS.items():
        rows = import_module(f"cockpit.core.rules.rows.{area}").ROWS
        if not rows:
            continue
        lines += ["", f"## {titles[chinese]}", "", f"| {' | '.join(heads)} |", "|---|---|---|---|"]
        for row in rows:
            nexts = [(one.command, one.zh if chinese else one.reason) for one in row.next]
            told = "<br>".join(f"`{command}`: {why}" if command else why for command, why in nexts)
            cells = f"`{row.id}`", row.zh if chinese else row.means, told, row.source
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines).strip() + "\n"


DRAWN: dict[str, list[Callable[[], str]]] = {
    "docs/keys.md": [key_table],
    "docs/contributing.md": [package_table],
    "docs/failures.md": [rule_table],
    "docs/zh/failures.md": [partial(rule_table, chinese=True)],
    "docs/protocol.md": [partial(event_table, RECORD), partial(event_table, OWN), verb_table],
}
"""Which file has which tables, in their order."""

TROUBLES = {"docs/troubleshooting.md": "; ", "docs/zh/troubleshooting.md": "；"}
"""Where messages have what they say to do beside them, and what stands between that and other advice."""


def renewed(text: str, tables: Sequence[str]) -> str:
    """A page with its drawn parts replaced.

    :raises ValueError: it has more or fewer such parts than there are tables
    """
    begin, end = MARKS
    pattern = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(text)) != len(tables):
        raise ValueError(f"not {len(tables)} parts between {begin} and {end}")
    rest = iter(tables)
    return pattern.sub(lambda _: f"{begin}\n{next(rest)}{end}", text)


def main() -> None:
    """Write every table, manual page and schema."""
    manpages.write()
    json_schemas.write()
    for name, tables in DRAWN.items():
        path = ROOT / name
        path.write_text(renewed(path.read_text(), [table() for table in tables]))
        print(path)
    for name, between in TROUBLES.items():
        path = ROOT / name
        path.write_text(troubles.advised(path.read_text(), between))
        print(path)


if __name__ == "__main__":
    main()
