"""Numbers for people, each with its unit."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache

_GIGA = 3


@dataclass(frozen=True)
class Sizes:
    """Texts of bytes, in units that are powers of one number."""

    base: int
    units: tuple[str, ...]

    def text(self, size: float) -> str:
        """Bytes: ``31.2 GiB``, ``512 MiB``."""
        unit = self._unit(size)
        return f"{_rounded(size / self.base**unit)} {self.units[unit]}"

    def part(self, part: float, whole: float) -> str:
        """Part and total in bytes, in one unit: ``79.1/80.0 GiB``, ``412/1,008 GiB``."""
        unit = min(self._unit(whole), _GIGA)
        return f"{_rounded(part / self.base**unit)}/{_rounded(whole / self.base**unit)} {self.units[unit]}"

    def _unit(self, size: float) -> int:
        unit = 0
        while abs(size) >= 1000 and unit < len(self.units) - 1:
            size /= self.base
            unit += 1
        return unit


BINARY = Sizes(1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))
DECIMAL = Sizes(1000, ("B", "kB", "MB", "GB", "TB", "PB"))
SIZES = {"binary": BINARY, "decimal": DECIMAL}
"""By the name that settings have for them."""


def _rounded(number: float) -> str:
    return f"{number:,.1f}" if 0.05 <= abs(number) < 99.95 else f"{number:,.0f}"


def number_text(number: float) -> str:
    """A plain number to four significant digits, a small one to three: ``41,200``, ``2.341``, ``9.2e-05``."""
    if number and (abs(number) >= 1e7 or abs(number) < 0.01):
        return f"{number:.3g}"
    digits = 0 if abs(number) >= 1000 else 1 if abs(number) >= 100 else 2 if abs(number) >= 10 else 4
    text = f"{number:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def short_text(number: float) -> str:
    """A large number to three digits: ``3.05 M``, ``42.4 k``; a smaller one as it is, ``812.5``."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size <= abs(number) < 1e15:
            scaled = number / (size if unit != "k" else 1000)
            return f"{scaled:#.3g}".rstrip(".") + f" {unit}"
    return number_text(number)


def clock_text(at: float, columns: int = 12) -> str:
    """A time of day: ``12:04:36.771``, or only its first columns.

    What is not a time (nodes may say anything) is dashes.
    """
    try:
        second = int(at)
        return f"{_second(second)}.{int(at % 1 * 1000):03d}"[:columns]
    except (OverflowError, ValueError, OSError):
        return "--:--:--.---"[:columns]


@lru_cache(maxsize=4096)
def _second(at: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


def day_text(at: float) -> str:
    """The day of a time, ``Saturday 21 November 2026``; empty for what is not a time."""
    try:
        return _day(int(at // 900))
    except (OverflowError, ValueError, OSError):
        return ""


@lru_cache(maxsize=256)
def _day(quarter: int) -> str:
    """The day of a quarter of an hour counted since 1970: no time zone is offset by less."""
    return time.strftime("%A %d %B %Y", time.localtime(quarter * 900))
