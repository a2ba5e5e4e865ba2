"""Texts that match a pattern, odd ones wherever it lets them: for fields that take no other text."""

from __future__ import annotations

import random
import sys
from functools import lru_cache
from importlib import import_module
from typing import Any

_parser: Any = import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
_ODD = "x0 -./\x1b\u202e\u0301\ud800\n[%$;"
_CLASSES = {"CATEGORY_DIGIT": "0579", "CATEGORY_WORD": "aZ_9", "CATEGORY_SPACE": " \t\n"}
_MANY = 60


def matching(pattern: str, rng: random.Random) -> str:
    """Some text that a pattern matches as a whole; its assertions are not looked at."""
    return _text(_parsed(pattern), rng)


@lru_cache
def _parsed(pattern: str) -> Any:
    return _parser.parse(pattern)


def _text(parsed: Any, rng: random.Random) -> str:
    return "".join(_part(str(op), of, rng) for op, of in parsed)


def _part(op: str, of: Any, rng: random.Random) -> str:
    if op == "LITERAL":
        return chr(of)
    if op in ("ANY", "NOT_LITERAL"):
        return rng.choice([char for char in _ODD if ord(char) != of])
    if op == "IN":
        return _one_of([(str(kind), what) for kind, what in of], rng)
    if op == "BRANCH":
        return _text(rng.choice(of[1]), rng)
    if op == "SUBPATTERN":
        return _text(of[-1], rng)
    if op in ("MAX_REPEAT", "MIN_REPEAT"):
        least, most, what = of
        most = min(int(most), max(least, _MANY))
        return "".join(_text(what, rng) for _ in range(rng.choice((least, min(least + 1, most), most))))
    if op in ("ASSERT", "ASSERT_NOT", "AT"):
        return ""
    raise NotImplementedError(f"no text is known for {op} in a pattern")


def _one_of(kinds: list[tuple[str, Any]], rng: random.Random) -> str:
    if kinds[0][0] == "NEGATE":
        return rng.choice([char for char in _ODD if not any(_is(char, *kind) for kind in kinds[1:])])
    kind, what = rng.choice(kinds)
    if kind == "LITERAL":
        return chr(what)
    if kind == "RANGE":
        return chr(rng.randint(*what))
    return rng.choice(_CLASSES[str(what)])


def _is(char: str, kind: str, what: Any) -> bool:
    if kind == "LITERAL":
        return bool(ord(char) == what)
    if kind == "RANGE":
        return bool(what[0] <= ord(char) <= what[1])
    return str(char) in _CLASSES[str(what)]
