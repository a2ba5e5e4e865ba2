"""How to read the lines of one shape: what each of their numbers is."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

_NUMBER = (
    rb"[-+]?(?:\d{1,3}(?:,\d{3})+(?![\d])(?:\.\d+)?|\d+\.?\d*(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?"
    rb"|(?:nan|inf(?:inity)?)(?:\.0)?(?![a-z_]))"
)
NUMBER = re.compile(rb"(?<![\w.])" + _NUMBER)
"""A number in small letters, also NaN and infinity; not a number inside a word."""
PARTS = re.compile(rb"(?<![\w.])(" + _NUMBER + rb")")
"""The same, for splitting a line."""

_MOST = 1e15


class Trust(Enum):
    """How far to trust a line by itself."""

    TOLD = "told"
    """Training, by its words."""
    BARE = "bare"
    """A bar without a word: training, or an evaluation in between."""
    HEADING = "heading"
    """A step or an epoch and nothing else: it belongs to the numbers in the lines below."""
    SPEED = "speed"
    """A speed without a loss: training, in a rank that has printed a loss."""
    ALONE = "alone"
    """Numbers without a step: training if below a heading, or if they change from line to line."""


@dataclass(frozen=True, eq=False)
class Plan:
    """How to read the lines of one shape.

    :param count: how many numbers such a line has
    :param places: the field, the index of its number, and the factor
    :param eta: the line says how long it will take
    :param label: the text right before the loss; empty: there is none
    :param plain: it is called a loss and nothing more
    :param epochs: the index of the number of epochs; -1: there is none
    """

    kind: Trust
    count: int
    places: tuple[tuple[str, int, float], ...]
    eta: bool = False
    label: bytes = b""
    plain: bool = False
    epochs: int = -1

    def read(self, line: bytes) -> dict[str, float]:
        """The numbers of a line of this shape, without the time left."""
        numbers = NUMBER.findall(line)
        said: dict[str, float] = {}
        if len(numbers) != self.count:
            return said  # the same shape, but other words
        for name, index, factor in self.places:
            value = _value(numbers[index]) * factor
            if name in ("loss", "lr"):
                said[name] = value
            elif not 0 <= value < _MOST:
                continue
            elif name == "rate":
                if value and "step_s" not in said:
                    said["step_s"] = 1 / value
            elif name not in ("step", "total") or value == int(value):
                said[name] = value
        if "total" in said and not said.get("step", math.inf) <= said["total"]:
            del said["total"]
        return said

    def epoch_count(self, line: bytes) -> int | None:
        """How many epochs there will be, according to a line that :meth:`read` has read; None: not said."""
        if self.epochs < 0:
            return None
        count = _value(NUMBER.findall(line)[self.epochs])
        return int(count) if 1 <= count < _MOST else None

    def losses(self, lines: Sequence[bytes]) -> list[float]:
        """The losses in lines of this shape, in order."""
        if not self.label:
            return []
        found = _after(self.label).findall(b"\n".join(lines))
        if len(found) != len(lines):
            return [said["loss"] for line in lines if "loss" in (said := self.read(line))]
        try:
            return list(map(float, found))
        except ValueError:
            return list(map(_value, found))


@lru_cache(maxsize=256)
def _after(label: bytes) -> re.Pattern[bytes]:
    """A pattern for the numbers after a label, however many blanks the label has."""
    blank = rb"[ \t]*"
    words = blank.join(re.escape(word) for word in label.split())
    return re.compile(words + (blank if label[-1:].isspace() else b"") + b"(" + _NUMBER + b")")


def _value(number: bytes) -> float:
    try:
        return float(number)
    except ValueError:  # 1,234 or nan.0
        plain = number.replace(b",", b"")
        return float(plain[:-2] if plain.endswith((b"n.0", b"f.0", b"y.0")) else plain)
