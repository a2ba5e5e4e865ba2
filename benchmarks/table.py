"""Figures as ratios with their spread, and the page they are kept on. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True)
class Figure:
    """One thing measured on both sides, round by round."""

    what: str
    ours: Sequence[float]
    theirs: Sequence[float]
    unit: str = "s"
    aim: float | None = None
    """What the median ratio should keep to; None where nothing is promised."""
    at_least: bool = False
    """Whether the aim is a lower bound (rates) or an upper one (costs)."""
    missing: str = ""
    """What it would take, shown where the aim is missed."""

    @property
    def ratios(self) -> list[float]:
        """Ours against theirs in each round: both sides of a round met the same machine."""
        return [ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)]

    @property
    def met(self) -> bool | None:
        """Whether the aim is met; None without one."""
        if self.aim is None:
            return None
        ratio = median(self.ratios)
        return ratio >= self.aim if self.at_least else ratio <= self.aim


@dataclass(frozen=True)
class Level:
    """One thing measured on our side only, against a fixed aim; an upper bound."""

    what: str
    values: Sequence[float]
    unit: str
    aim: float | None = None
    missing: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the aim is met; None without one."""
        return None if self.aim is None else median(self.values) <= self.aim


@dataclass(frozen=True)
class Result:
    """What one benchmark found."""

    name: str
    title: str
    sides: dict[str, str]
    """The command of each side."""
    figures: Sequence[Figure] = ()
    levels: Sequence[Level] = ()
    notes: Sequence[str] = field(default_factory=list)


def render(result: Result, when: str) -> str:
    """A section of the page, in Markdown."""
    lines = [f"## {result.name}: {result.title}", "", f"Measured on {when}.", ""]
    lines += [f"- {side}: `{command}`" for side, command in result.sides.items()]
    if result.figures:
        lines += [
            "",
            "| | cockpit | other | ratio: median (min … max) | rounds | aim | |",
            "|---|" + "---|" * 6,
        ]
        lines += [_figure(figure) for figure in result.figures]
    if result.levels:
        lines += ["", "| | median (min … max) | aim | |", "|---|---|---|---|"]
        lines += [_level(level) for level in result.levels]
    every: list[Figure | Level] = [*result.figures, *result.levels]
    missed: dict[str, list[str]] = {}
    for each in every:
        if each.met is False and each.missing:
            missed.setdefault(each.missing, []).append(each.what)
    notes = [*(f"Missed ({'; '.join(what)}): {text}" for text, what in missed.items()), *result.notes]
    lines += ["", *(f"- {note}" for note in notes)] if notes else []
    return "\n".join(lines) + "\n"


def page(old: str, head: str, sections: dict[str, str]) -> str:
    """The page with these sections new and the others of ``old`` kept, in order of their names' first use."""
    kept = {
        found.group(1): found.group(0).strip() + "\n"
        for found in re.finditer(r"^## (\w+):.*?(?=^## |\Z)", old, re.MULTILINE | re.DOTALL)
    }
    return "\n".join([head.strip() + "\n", *{**kept, **sections}.values()])


def recorded(page: str, name: str, what: str) -> str:
    """What the page has of one figure of a benchmark, without its spread; empty: nothing."""
    section = re.search(rf"^## {name}:.*?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    row = re.search(
        rf"^\| {re.escape(what)} \|.*?\*\*(.+?)\*\*", section.group() if section else "", re.MULTILINE
    )
    return row.group(1) if row else ""


def compared(results: Sequence[Result], page: str) -> str:
    """Each figure of some benchmarks beside what the page has of it, as a table."""
    rows = []
    for result in results:
        for figure in result.figures:
            aim = "–" if figure.aim is None else f"{'≥' if figure.at_least else '≤'} {number(figure.aim)}"
            rows.append((result.name, figure.what, number(median(figure.ratios)), aim, figure.met))
        for level in result.levels:
            aim = "–" if level.aim is None else f"≤ {number(level.aim)} {level.unit}"
            now = f"{number(median(level.values))} {level.unit}"
            rows.append((result.name, level.what, now, aim, level.met))
    lines = [_row("", "", "now", "recorded", "aim", ""), "|---|---|---|---|---|---|"]
    lines += [
        _row(name, what, f"**{now}**", recorded(page, name, what) or "–", aim, verdict(met))
        for name, what, now, aim, met in rows
    ]
    return "\n".join(lines) + "\n"


def _figure(figure: Figure) -> str:
    ratios = figure.ratios
    sign = "≥" if figure.at_least else "≤"
    return _row(
        figure.what,
        f"{number(median(figure.ours))} {figure.unit}",
        f"{number(median(figure.theirs))} {figure.unit}",
        f"**{number(median(ratios))}** ({number(min(ratios))} … {number(max(ratios))})",
        str(len(ratios)),
        "–" if figure.aim is None else f"{sign} {number(figure.aim)}",
        verdict(figure.met),
    )


def _level(level: Level) -> str:
    low, high = min(level.values), max(level.values)
    spread = f" ({number(low)} … {number(high)})" if len(level.values) > 1 else ""
    return _row(
        level.what,
        f"**{number(median(level.values))} {level.unit}**{spread}",
        "–" if level.aim is None else f"≤ {number(level.aim)} {level.unit}",
        verdict(level.met),
    )


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def verdict(met: bool | None) -> str:
    """``met``, ``missed`` or nothing."""
    return {True: "met", False: "missed", None: ""}[met]


def number(value: float) -> str:
    """Three significant digits, never in powers of ten; below 1, three decimals at most."""
    if abs(value) >= 1:
        return f"{value:.{max(0, 2 - int(math.log10(abs(value))))}f}"
    return f"{value:.3f}".rstrip("0").rstrip(".") or "0"
