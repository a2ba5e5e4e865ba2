"""What a number in a line of a training program is, by the words before it and the unit after it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from cockpit.core.logs.progress import wordings
from cockpit.core.logs.progress.wordings import Order

NEAR = 96
"""Bytes before a number that are searched for its name."""

_OPENING = b" \t'\"[({*`#"
_MADE_OF = re.compile(rb"\b(?:tensor|array|float\d*|np\.\w{1,12})\Z")
_CLOSING = b" \t'\"`*:=|>~-"
_IN_BRACKETS = re.compile(rb"[ _]?[(\[]([a-z]{1,12})[)\]]\Z")
_PART = re.compile(rb"[,;|{}\[\]()'\"<>:=\t!?#&*\\]|\s-\s|\s\s|--")
_BRACKETED = re.compile(rb"\(([^()]*)\)")
_LEARNING_RATE = re.compile(rb"learning[ _-]?rate")
_JOINT = re.compile(rb"[_/.\-@() ]+")
_SCALES = {b"k": 1e3, b"m": 1e6, b"g": 1e9, b"b": 1e9}
# The unit of the previous number may be there, too.
_UNITS = {unit for unit in (*wordings.TIMES, *wordings.UNITS, *wordings.LONG) if len(unit) > 1}
_BEFORE_LOSS = wordings.LOSS_BESIDE | wordings.LOSS_AFTER | _UNITS
_LETTERS = re.compile(rb"[a-z_]")


@dataclass(frozen=True)
class Name:
    """What the words before a number say about it.

    :param field: the field it is for; empty: no known field
    :param place: its place among other numbers for the same field
    :param factor: to seconds, for times
    :param free: words before the name, which say what the line is about
    :param aside: the number belongs to an evaluation, or the like
    :param told: something separates name and number, as in ``step: 3``
    :param words: the whole name, a space for each joint
    :param known: the part of it that is known
    """

    field: str = ""
    place: Order = Order.FIRST
    factor: float = 1.0
    free: bytes = b""
    aside: bool = False
    told: bool = False
    words: bytes = b""
    known: bytes = b""


@lru_cache(maxsize=4096)
def name_of(gap: bytes) -> Name:
    """What the end of a text before a number, in small letters, says about that number.

    :param gap: :data:`NEAR` bytes at most
    """
    text = _MADE_OF.sub(b"", gap.rstrip(_OPENING)).rstrip(_OPENING)
    name = text.rstrip(_CLOSING)
    index = gap[len(text) : len(text) + 1] == b"[" and name == text
    told = any(sign in text[len(name) :] for sign in b":=|>")
    factor, aside = 1.0, False
    bracket = _IN_BRACKETS.search(name)
    if bracket is not None:
        factor = wordings.TIMES.get(bracket[1], 1.0)
        aside = bracket[1] in wordings.ASIDE
        if aside or bracket[1] in wordings.TIMES or bracket[1] in wordings.GROUPS:
            name = name[: bracket.start()]
    start = max((found.end() for found in _PART.finditer(_BRACKETED.sub(rb"_\1_", name))), default=0)
    part = name[start:].strip()
    if not _LETTERS.search(part):
        return Name(free=gap)
    found = _field_of(part)
    if index and found.field not in ("step", "epoch", "total"):
        found = Name()
    return Name(
        found.field,
        found.place,
        found.factor * factor,
        name[:start] + b" " + found.free,
        aside or found.aside,
        told,
        _plain(part),
        found.known,
    )


def _plain(name: bytes) -> bytes:
    return _JOINT.sub(b" ", name).strip()


def _field_of(part: bytes) -> Name:
    """The field of a name whose first words may belong to the text before it."""
    special = _loss(part) or _lr(part)
    if special is not None:
        return special
    tokens = part.split()
    for start in range(len(tokens)):
        name = _plain(b" ".join(tokens[start:]))
        known, factor = _known(name)
        if known is None:
            continue
        before = _plain(b" ".join(tokens[:start])).split()
        if before and before[-1] in wordings.NOT_BEFORE and known[0] != "epoch":
            return Name()
        if before and known[0] == "time":
            return Name()
        aside = not wordings.ASIDE.isdisjoint(tokens[:start])
        return Name(known[0], known[1], factor, b" ".join(tokens[:start]), aside, known=name)
    return Name()


def _known(name: bytes) -> tuple[tuple[str, Order] | None, float]:
    """The field of a whole name, and the factor to seconds if a unit of time is part of it."""
    words = name.split()
    while words:
        whole = b" ".join(words)
        known = wordings.NAMES.get(whole)
        if known is not None and (known[0] != "time" or whole == name):
            return known, 1.0
        if words[0] in wordings.TIMES and words[1:] and all(word in wordings.STEPS for word in words[1:]):
            return ("step_s", Order.FIRST), wordings.TIMES[words[0]]
        if words[-1] in wordings.TIMES:
            known = wordings.NAMES.get(b" ".join(words[:-1]))
            if known is not None and known[0] == "step_s":
                return known, wordings.TIMES[words[-1]]
        if words[0] not in wordings.GROUPS:
            break
        words = words[1:]
    return None, 1.0


def _loss(part: bytes) -> Name | None:
    """Whether it is the name of the training loss; None: it names no loss."""
    tokens = part.split()
    for at, token in enumerate(tokens):
        words = _plain(token).replace(b"cross entropy", b"ce").split()
        named = next((number for number, word in enumerate(words) if word in wordings.LOSS), None)
        if named is None:
            continue
        joined = [*words[:named], *words[named + 1 :], *_plain(b" ".join(tokens[at + 1 :])).split()]
        near = _plain(b" ".join(tokens[:at])).split()[-2:]
        if any(
            not (word in wordings.LOSS or word in wordings.LOSS_BESIDE or word.isdigit()) for word in joined
        ):
            return Name()
        if not wordings.OTHER_LOSS.isdisjoint([*near, *joined]):
            return Name()
        if near and near[-1].isalpha() and near[-1] not in _BEFORE_LOSS:
            return Name()
        place = Order.FIRST if words == [b"loss"] and not joined and not near else Order.SECOND
        if words[named] == b"nll" or not wordings.LOSS_MEAN.isdisjoint([*near[-1:], *joined]):
            place = Order.LAST
        return Name("loss", place, free=b" ".join(tokens[:at]))
    return None


def _lr(part: bytes) -> Name | None:
    """Whether it is the name of a learning rate."""
    tokens = _LEARNING_RATE.sub(b"lr", part).split()
    for at, token in enumerate(tokens):
        joined = _plain(token).split()
        if b"lr" not in [word.rstrip(b"0123456789") for word in joined]:
            continue
        rest = [
            word.rstrip(b"0123456789") for word in [*joined, *_plain(b" ".join(tokens[at + 1 :])).split()]
        ]
        if not token.startswith(b"lr-") and any(word not in wordings.LR_BESIDE for word in rest if word):
            return Name()
        if at and tokens[at - 1] in wordings.NOT_BEFORE:
            return Name()
        return Name("lr", Order.FIRST if joined == [b"lr"] else Order.SECOND, free=b" ".join(tokens[:at]))
    return None


_RATE = re.compile(
    rb"\s?(?:(?P<scale>[kmg])\s?)?(?P<what>[a-z]+)?\s?(?:/|\bper )\s?(?:s|sec|second)s?\b(?!\s{0,2}[:=])"
)
_STEP = re.compile(
    rb"\s?(?P<time>[a-z]+)\s?(?:/|per )\s?(?:it|iter|iteration|step|batch|ba|update)s?\b(?!\s{0,2}[:=])"
)
_WORD = re.compile(rb"(?P<space>\s?)(?P<word>[a-z]+)")


@dataclass(frozen=True)
class Unit:
    """What the text after a number says about it.

    :param kind: the field it is for; "time"; "scaled" (a thousand, a million); "other"; empty: nothing
    :param rate_end: length of the unit if it is one of a speed (``s/step``), else 0
    """

    kind: str = ""
    factor: float = 1.0
    rate_end: int = 0


@lru_cache(maxsize=4096)
def unit_of(gap: bytes) -> Unit:
    """What the beginning of a text after a number, in small letters, says about that number."""
    if gap[:1] in (b"%", b"_") or (gap[:1] == b"." and gap[1:2].isalnum()):
        return Unit("other")
    rate = _RATE.match(gap)
    if rate is not None:
        kind = wordings.UNITS.get(rate["what"] or b"samples", "other")
        return Unit(kind, _SCALES.get(rate["scale"] or b"", 1.0), rate.end())
    step = _STEP.match(gap)
    if step is not None and step["time"] in wordings.TIMES:
        return Unit("step_s", wordings.TIMES[step["time"]], step.end())
    word = _WORD.match(gap)
    if word is None:
        return Unit()
    if word["word"] in wordings.TIMES:
        return Unit("time", wordings.TIMES[word["word"]])
    if not word["space"]:
        scale = _SCALES.get(word["word"])
        return Unit("scaled", scale) if scale else Unit(wordings.GLUED.get(word["word"], "other"))
    return Unit("other" if word["word"] in wordings.LONG else "")
