"""Values made up from definitions: good ones, hostile ones, and whether a value is within its bounds."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import random
import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

from cockpit.base.events import RECORD, Fact, Recorded, RecordLine, RecordLines
from cockpit.base.gate import (
    Digits,
    FieldKind,
    Flag,
    ListOf,
    MapOf,
    Maybe,
    Number,
    Of,
    RowOf,
    Text,
    Whole,
    fields,
    plain,
)
from cockpit.base.record import is_followed
from cockpit.base.shared_fields import Address, LogName
from tests.hostile.patterns import matching

EVIL = (
    "\x1b]52;c;cm0gLXJm\x07",
    "\x1b[2J\x1b[H\x1b]0;title\x07",
    "\x1bPq\x1b\\",
    "\x9b31m\x85",
    "\ud800",
    "caf\udce9",
    "a\nb\r\tc",
    "a\0b",
    "\u202egnp.exe\u200b\u2028",
    "e" + "\u0301" * 200,
    "[@click=app.quit]gone[/]",
    "[/x]",
    "../../../../tmp/hostile",
    "/etc/passwd",
    "..",
    "",
    "$(touch /tmp/hostile)",
    "29500; touch /tmp/hostile #",
    "`touch /tmp/hostile`'\"",
    "-oProxyCommand=touch /tmp/hostile",
    "\U000e0041\ufeff\ufff9",
    "%s%n{0}{0.__class__}",
)
"""Texts that would do something if they were taken for anything but text."""

_NICE = (
    "a1",
    "ok",
    "bad",
    "run",
    "/a/b",
    "0" * 64,
    "writing",
    "finalising",
    "rank",
    "2.1.0",
    "R",
    "x.nsys-rep",
)
_ADDRESSES = ("10.0.0.1", "::1", "127.0.0.1", "fe80::1%eth0", "0.0.0.0")
_LOGS = (
    *("events.jsonl", "sizes.jsonl", "times.jsonl", "launcher.log"),
    *("rank-0.log", "rank-2.log", "rank-99999.log"),
)
_OTHERS: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    5,
    -1,
    -1.5,
    "",
    "5",
    "null",
    [],
    {},
    [[]],
    {"a": 1},
    [None],
)
_ROOM = 3 << 20
"""Characters of one made-up value: a frame must hold it."""


_SEEN = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
"""Format characters that are seen: they stand before numbers in Arabic, Syriac and Kaithi."""


class Raw:
    """JSON text that :func:`json.dumps` would not write."""

    def __init__(self, text: str) -> None:
        self.text = text


def dumped(value: Any) -> bytes:
    """JSON of a value with :class:`Raw` parts in it."""
    raws: list[str] = []

    def mark(raw: Any) -> str:
        raws.append(raw.text)
        return f"@raw{len(raws) - 1}@"

    text = json.dumps(value, separators=(",", ":"), default=mark)
    for number, raw in enumerate(raws):
        text = text.replace(f'"@raw{number}@"', raw)
    return text.encode()


def deep(rng: random.Random) -> Raw:
    """Lists or objects in one another, closed or not."""
    depth = rng.choice((20, 500, 2_000, 100_000))
    if rng.random() < 0.5:
        return Raw("[" * depth + "]" * depth)
    return Raw('{"a":' * depth + "1" + "}" * depth)


def odd_characters(text: str) -> list[str]:
    """Controls, bidi and invisible characters in a text for a terminal, escaped."""
    odd = {char for char in set(text) if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    return sorted(map(ascii, odd - _SEEN - {"\n"}))


# Good values


def good(kind: FieldKind, rng: random.Random) -> Any:
    """Some JSON value that a kind allows."""
    if isinstance(kind, Flag):
        return rng.random() < 0.5
    if isinstance(kind, Whole):
        edges = (kind.least, kind.least + 1, kind.least + 3, 70_000, kind.most)
        return rng.choice([edge for edge in edges if kind.least <= edge <= kind.most])
    if isinstance(kind, Number):
        return rng.choice((kind.least, kind.most, (kind.least + kind.most) / 2))
    if isinstance(kind, Text):
        return rng.choice([text for text in (*_NICE, *EVIL, *_like(kind, rng)) if _fits(kind, text)])
    if isinstance(kind, Maybe):
        return None if rng.random() < 0.2 else good(kind.kind, rng)
    if isinstance(kind, (ListOf, Recorded)):
        return [_element(kind, rng) for _ in range(rng.choice((0, 1, 1, 2, 5)))]
    if isinstance(kind, MapOf):
        return {str(good(kind.name, rng)): good(kind.value, rng) for _ in range(rng.choice((0, 1, 2, 5)))}
    if isinstance(kind, Digits):
        return str(good(kind.kind, rng))
    if isinstance(kind, Of):
        return good_object(kind.definition, rng)
    if isinstance(kind, RowOf):
        return list(good_object(kind.definition, rng, whole=True).values())
    if isinstance(kind, LogName):
        return rng.choice(_LOGS)
    if isinstance(kind, Address):
        return rng.choice(_ADDRESSES)
    raise AssertionError(f"no good value is known for {kind}")


def good_object(definition: type[Any], rng: random.Random, *, whole: bool = False) -> dict[str, Any]:
    """Some JSON object of a definition; fields that need not be there may not be."""
    found = fields(definition)
    return {name: good(kind, rng) for name, kind, needed in found if whole or needed or rng.random() < 0.8}


def good_line(rng: random.Random, ranks: tuple[int, ...] = (0, 1)) -> dict[str, Any]:
    """Some line of a run record."""
    kind = rng.choice(sorted(RECORD))
    line = {"t": rng.choice((0, 1.5, 1.7e9)), "e": kind, **good_object(RECORD[kind], rng)}
    if kind == "rank_exited":
        line |= {"code": 1, "signal": None}
    if "rank" in line and rng.random() < 0.7:
        line["rank"] = rng.choice(ranks)
    return line


def _element(kind: FieldKind, rng: random.Random) -> Any:
    return good_line(rng) if isinstance(kind, Recorded) else good(kind.kind, rng)  # type: ignore[attr-defined]


def _like(kind: Text, rng: random.Random) -> list[str]:
    """Texts that a kind's pattern matches."""
    return [matching(kind.pattern, rng) for _ in range(4)] if kind.pattern else []


def _fits(kind: Text, text: str) -> bool:
    return len(text) <= kind.most and (not kind.pattern or bool(re.fullmatch(kind.pattern, text, re.DOTALL)))


# Places in a value, by definition


@dataclasses.dataclass
class Place:
    """Where a value of a kind is; ``holder[key]`` is the value."""

    holder: Any
    key: Any
    kind: FieldKind

    @property
    def missing(self) -> bool:
        """Whether there is no value: it may be left out."""
        return isinstance(self.holder, dict) and self.key not in self.holder

    def put(self, value: Any) -> None:
        """Another value in its place."""
        self.holder[self.key] = value

    def drop(self) -> None:
        """Nothing in its place."""
        if not self.missing:
            del self.holder[self.key]


def places(holder: Any, key: Any, kind: FieldKind) -> Iterator[Place]:
    """The place of a value, and of every value in it; of long lists the first few."""
    yield Place(holder, key, kind)
    value = holder[key]
    if isinstance(kind, Maybe):
        yield from list(places(holder, key, kind.kind))[1:] if value is not None else ()
    elif isinstance(kind, ListOf):
        for number in range(min(3, len(value))):
            yield from places(value, number, kind.kind)
    elif isinstance(kind, Recorded):
        for line in value[:6]:
            if line.get("e") in RECORD:
                yield from _inside(line, RECORD[line["e"]])
    elif isinstance(kind, MapOf):
        for name in list(value)[:3]:
            yield from places(value, name, kind.value)
    elif isinstance(kind, RowOf):
        for number, (_, each, _) in enumerate(fields(kind.definition)):
            yield from places(value, number, each)
    elif isinstance(kind, Of):
        yield from _inside(value, kind.definition)


def _inside(value: dict[str, Any], definition: type[Any]) -> Iterator[Place]:
    for name, kind, _ in fields(definition):
        if name in value:
            yield from places(value, name, kind)
        else:
            yield Place(value, name, kind)


# Hostile values


def other_type(place: Place, rng: random.Random) -> Any:
    """A value of another JSON type than the one in a place."""
    now = type(None if place.missing else place.holder[place.key])
    # A copy: what is put into it later must not be in all others, or in itself.
    return copy.deepcopy(rng.choice([other for other in _OTHERS if type(other) is not now]))


def huge(place: Place, rng: random.Random) -> Any:
    """Too much for a place: one more than is allowed, or far more."""
    kind = place.kind
    while isinstance(kind, (Maybe, Digits)):
        kind = kind.kind
    if isinstance(kind, (Whole, Number)):
        over: list[Any] = [kind.most + 1, kind.least - 1, 10**400, -(10**400), Raw("1e400"), Raw("-1e400")]
        return rng.choice([*over, Raw("NaN"), Raw("9" * 5000), Raw("0." + "9" * 50_000), 1 << 63])
    if isinstance(kind, Text):
        return rng.choice("x\x1b\u202e\ud800") * rng.choice((kind.most + 1, 2 * kind.most + 1, 300_000))
    if isinstance(kind, (ListOf, Recorded)):
        one = json.dumps(_element(kind, rng))
        many = min(rng.choice((kind.most + 1, 4 * kind.most)), _ROOM // (len(one) + 1))
        return Raw("[" + ",".join([one] * many) + "]")
    if isinstance(kind, MapOf):
        name, one = str(good(kind.name, rng)), json.dumps(good(kind.value, rng))
        many = min(kind.most + 1, _ROOM // (len(one) + len(name) + 12))
        return Raw("{" + ",".join(f"{json.dumps(name + str(n))}:{one}" for n in range(many)) + "}")
    if isinstance(kind, (Of, RowOf)):
        return {f"x{number}": number for number in range(50_000)}
    return Raw("9" * 4000)


def evil(place: Place, rng: random.Random) -> Any:
    """A hostile text for a place; where it holds a text, one that passes its rule if there is any."""
    kind = place.kind
    while isinstance(kind, Maybe):
        kind = kind.kind
    if isinstance(kind, Recorded):
        before = [] if place.missing else list(place.holder[place.key])
        return before + [{"t": 1.7e9, "e": "note", "text": text} for text in EVIL]
    if isinstance(kind, Text) and rng.random() < 0.7:
        fits = [text for text in (*EVIL, *_like(kind, rng)) if _fits(kind, text)]
        if fits:
            return rng.choice(fits)
    return rng.choice(EVIL)


# Whether a value is within its bounds


def wrong(definition: type[Any], value: Any) -> str:
    """What is wrong with an object that the gate let through; empty: nothing.

    Told from the definitions alone: not a line of this is the gate's.
    """
    if type(value) is not definition:
        return f"{type(value).__name__} in place of {definition.__name__}"
    for name, kind, _ in fields(definition):
        if not holds(kind, getattr(value, name)):
            return f"{definition.__name__}.{name} is {str(plain(getattr(value, name)))[:80]!r}"
    return ""


def wrong_fact(fact: Fact) -> str:
    """As :func:`wrong`, of a line of a run record."""
    return wrong(type(fact), fact) if fact.kind in RECORD else f"a {type(fact).__name__}"


def holds(kind: FieldKind, value: Any) -> bool:
    """Whether a checked value is one that a kind allows."""
    check = next(_HOLDS[each] for each in type(kind).__mro__ if each in _HOLDS)
    return check(kind, value)


def _number(kind: Any, value: Any) -> bool:
    return type(value) is float and math.isfinite(value) and bool(kind.least <= value <= kind.most)


def _whole(kind: Any, value: Any) -> bool:
    return type(value) is int and bool(kind.least <= value <= kind.most)


def _text(kind: Any, value: Any) -> bool:
    if type(value) is not str or len(value) > kind.most + bool(kind.cut):
        return False
    return not kind.pattern or bool(re.fullmatch(kind.pattern, value, re.DOTALL))


def _list(kind: Any, value: Any) -> bool:
    return type(value) is tuple and len(value) <= kind.most and all(holds(kind.kind, each) for each in value)


def _map(kind: Any, value: Any) -> bool:
    if type(value) is not dict or len(value) > kind.most:
        return False
    return all(holds(kind.name, name) and holds(kind.value, each) for name, each in value.items())


def _lines(kind: Any, value: Any) -> bool:
    if type(value) is not RecordLines or type(value.bad) is not int or len(value.lines) > kind.most:
        return False
    return all(isinstance(line, RecordLine) and not wrong_fact(line.fact) for line in value.lines)


def _address(_: Any, value: Any) -> bool:
    return type(value) is str and bool(re.fullmatch(r"[0-9A-Za-z.:%_-]{1,100}", value))


_HOLDS: dict[type[FieldKind], Callable[[Any, Any], bool]] = {
    Flag: lambda _, value: type(value) is bool,
    Whole: _whole,
    Number: _number,
    Text: _text,
    Maybe: lambda kind, value: value is None or holds(kind.kind, value),
    ListOf: _list,
    MapOf: _map,
    Digits: lambda kind, value: holds(kind.kind, value),
    Of: lambda kind, value: not wrong(kind.definition, value),
    RowOf: lambda kind, value: not wrong(kind.definition, value),
    Recorded: _lines,
    LogName: lambda _, value: type(value) is str and is_followed(value),
    Address: _address,
}
