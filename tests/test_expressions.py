"""Our own regular expressions: whatever a log says, each takes time in proportion to it."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cockpit

SIZE = 8_000
"""Characters of a text. What looks at all that follows from every place takes tens of millions of steps."""

STEPS = 800
"""How often one place of a text may be looked at, roughly; bounds like ``{0,300}`` are fine."""

UNITS = (
    *("a", "A", "Aa", "aA ", " ", "\t", "\r", "0", "0.", "0 ", "0,", "0:", "0:0:", "1e", "0x", "/", "/a"),
    *("/.", "./", ".", "a.", "-", "a-", "_", "a_", "=", "a=", "x=1 ", ":", "a:", "::", "://", "a:0 ", "a, "),
    *("a ", "@", "a@", "\\", "'", '"', '\\"', "(", "a(", "[", "[a", "[0", "{", "<", "|", "%", "\x1b[", "é"),
    *("█", "a.py:1 "),
)

LINES = {"cockpit.node.recorder.ras_text._FORMS"}
"""Tables of expressions that are only used with ``fullmatch``."""

_USED = re.compile(r"\b(\w+)\.(search|match|fullmatch|finditer|findall|sub|subn|split)\b")
_FAR = {"search", "finditer", "findall", "sub", "subn", "split"}
"""Ways to use an expression that try every place of a text."""


@functools.cache
def uses() -> tuple[dict[tuple[str, str], set[str]], dict[str, set[str]]]:
    """How the names of expressions are used: by module and name, and by name alone."""
    here: dict[tuple[str, str], set[str]] = {}
    anywhere: dict[str, set[str]] = {}
    root = Path(cockpit.__file__).parent
    for path in root.rglob("*.py"):
        module = ".".join(["cockpit", *path.relative_to(root).with_suffix("").parts]).removesuffix(
            ".__init__"
        )
        for name, how in _USED.findall(path.read_text()):
            here.setdefault((module, name), set()).add(how)
            anywhere.setdefault(name, set()).add(how)
    return here, anywhere


def ours() -> dict[str, re.Pattern[Any]]:
    """Every compiled expression that a module of ours holds, by where it was found."""
    found: dict[re.Pattern[Any], str] = {}

    def look(value: Any, where: str, depth: int = 0) -> None:
        if isinstance(value, re.Pattern):
            found.setdefault(value, where)
        elif depth > 4:
            return
        elif isinstance(value, dict):
            for each in [*value, *value.values()]:
                look(each, where, depth + 1)
        elif isinstance(value, (list, tuple, set, frozenset)):
            for each in value:
                look(each, where, depth + 1)
        elif type(value).__module__.startswith("cockpit") or getattr(value, "__module__", "") == where[:-1]:
            for each in list(getattr(value, "__dict__", {}).values()):
                look(each, where, depth + 1)

    for module in pkgutil.walk_packages(cockpit.__path__, "cockpit."):
        if not module.name.endswith("__main__"):
            for name, value in list(vars(importlib.import_module(module.name)).items()):
                look(value, f"{module.name}.{name}")
    return {f"{where} {pattern.pattern!r:.60}": pattern for pattern, where in found.items()}


def is_anchored(where: str) -> bool:
    """Whether an expression is used at one place of a text alone, with ``match`` or ``fullmatch``."""
    here, anywhere = uses()
    module, _, name = where.partition(" ")[0].rpartition(".")
    if f"{module}.{name}" in LINES:
        return True
    used = here.get((module, name), set()) if name.startswith("_") else anywhere.get(name, set())
    return bool(used) and not used & _FAR


def reference() -> float:
    """CPU time that a text takes of which each place is looked at so often as may be."""
    pattern = re.compile("(?:a|b){0,%d}c" % STEPS)
    return min(seconds(pattern, "a" * SIZE, False) for _ in range(3))


def seconds(pattern: re.Pattern[Any], text: str, anchored: bool) -> float:
    """CPU time that looking through a text takes."""
    whole = text if isinstance(pattern.pattern, str) else text.encode()
    began = time.process_time()
    if anchored:
        pattern.match(whole)
        pattern.fullmatch(whole)
    else:
        for _ in pattern.finditer(whole):
            pass
    return time.process_time() - began


def texts(pattern: re.Pattern[Any]) -> Iterator[str]:
    """Texts that lead on: units, and words of the expression itself, many times."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode()
    words = re.findall(r"[A-Za-z][A-Za-z :./=-]{2,}", re.sub(r"\\[a-zA-Z]|\(\?P<\w+>", "#", source))[:12]
    for unit in [*UNITS, *words, "".join(words), "".join(words[:2])]:
        if unit:
            for end in ("", "!"):
                yield (unit * (SIZE // len(unit) + 1))[:SIZE] + end


@pytest.mark.slow
def test_our_own_take_time_in_proportion_to_the_text() -> None:
    every = ours()
    assert len(every) > 300
    most = reference()
    slow = []
    for where, pattern in every.items():
        anchored = is_anchored(where)
        for text in texts(pattern):
            # Again, if something else came between.
            if all(seconds(pattern, text, anchored) > most for _ in range(3)):
                slow.append(f"{where}: {text[:20]!r} …")
                break
    assert not slow


@pytest.mark.parametrize("bad", [r"\s*x", "(?:a|b)*c", r"\w+\s*=", "ab: [^x]{0,300}?ac [^x]{0,300}?ad"])
def test_the_test_finds_what_is_too_slow(bad: str) -> None:
    pattern, most = re.compile(bad), reference()
    assert any(seconds(pattern, text, False) > most for text in texts(pattern))
