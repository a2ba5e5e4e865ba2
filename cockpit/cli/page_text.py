"""A page of the documentation, from Markdown to lines that fit a terminal."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby

_STARTS = re.compile(r"(#+ |[-*] |\d+\. |<!--)")
"""What a line begins with that does not continue the one before."""

_INDENT = "    "


def linked(text: str, pages: Collection[str], verbs: Collection[str]) -> str:
    """Without pictures; a link to a page is followed by the command that opens it, others are words alone."""

    def told(found: re.Match[str]) -> str:
        page = found[2].partition("#")[0].removesuffix(".md")
        if page not in pages:
            return found[1]
        return f"{found[1]} (cockpit help {page}{'.md' if page in verbs else ''})"

    text = re.sub(r"^!\[[^\]]*\]\([^)]*\)\n+", "", text, flags=re.MULTILINE)
    return re.sub(r"(?<!\!)\[([^\]]+)\]\(([^)\s]+)\)", told, text)


def blocks(text: str) -> Iterator[tuple[str, Iterator[str]]]:
    """Lines of one kind that follow each other: code, with its fences, table, text, or blank ones ("")."""
    code = False

    def kind(line: str) -> str:
        nonlocal code
        fence = line.lstrip().startswith("```")
        code ^= fence
        return (
            "code" if code or fence else "table" if line.startswith("|") else "text" if line.strip() else ""
        )

    return groupby(text.splitlines(), kind)


def fitted(text: str, width: int) -> Iterator[str]:
    """Lines of at most so many columns where words allow it; of code every line as it is.

    A table that is wider becomes its first column, with the others below.
    """
    for what, lines in blocks(text):
        if what == "table":
            yield from _table([_cells(line) for line in lines], width)
        elif what == "text":
            yield from _paragraphs(lines, width)
        else:
            yield from lines


def _paragraphs(lines: Iterator[str], width: int) -> Iterator[str]:
    joined: list[str] = []
    for line in lines:
        if joined and not _STARTS.match(line.lstrip()) and not joined[-1].startswith("#"):
            joined[-1] += f" {line.strip()}"
        else:
            joined.append(line)
    for one in joined:
        begun = re.match(r" *(?:[-*] |\d+\. )?", one)
        yield from _wrap(one, width, " " * len(begun[0]) if begun else "")


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def _table(rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    head, *rest = [*rows[:1], *rows[2:]]  # the second one is a rule
    widths = [max(len(row[at]) for row in [head, *rest] if at < len(row)) for at in range(len(head))]
    if sum(widths) + 2 * len(widths) - 2 <= width:
        for row in [head, ["-" * each for each in widths], *rest]:
            yield "  ".join(cell.ljust(each) for cell, each in zip(row, widths, strict=False)).rstrip()
        return
    for row in rest:
        yield from _wrap(row[0], width, _INDENT)
        for name, cell in zip(head[1:], row[1:], strict=False):
            said = f"{name}: " if len(head) > 2 and name else ""
            yield from _wrap(f"{_INDENT}{said}{cell}", width, _INDENT) if cell else ()


def _wrap(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [""]
