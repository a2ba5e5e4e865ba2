"""Two command lines word by word: which arguments differ, and whether both are the same command."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from cockpit.base.shell import join, quote

_OPTION = re.compile(r"--?[A-Za-z_][^=]*\Z")
_NAMED = re.compile(r"(--?[A-Za-z_][^=]*|[+~]*[A-Za-z_][\w.@/-]*)=", re.DOTALL)
"""``--lr=0.1``, and ``optimizer.lr=0.1`` as Hydra has it."""


class Change(NamedTuple):
    """An argument that differs.

    :param name: the option, or which word it is
    :param before: its value in the first command; empty: it has none; None: it is not there
    :param after: the same in the second one
    """

    name: str
    before: str | None
    after: str | None


class Started(NamedTuple):
    """What tells whether two runs are of the same command."""

    launcher: str
    cwd: str
    program: tuple[str, ...]


@dataclass
class Arguments:
    """A command line taken apart.

    :param words: those that belong to no option, in order
    :param options: the values of each option, each time that it is given
    """

    words: list[str] = field(default_factory=list)
    options: dict[str, list[list[str]]] = field(default_factory=dict)

    @classmethod
    def of(cls, line: Sequence[str]) -> Arguments:
        """Whether an option takes a value is not known: words up to the next option are its values."""
        found = cls()
        open_values: list[str] | None = None
        for place, word in enumerate(line):
            if word == "--":
                found.words += line[place + 1 :]
                break
            if (named := _NAMED.match(word)) is not None:
                found.options.setdefault(named[1], []).append([word[named.end() :]])
                open_values = None
            elif _OPTION.match(word):
                open_values = []
                found.options.setdefault(word, []).append(open_values)
            else:
                (found.words if open_values is None else open_values).append(word)
        return found

    def value(self, name: str) -> str | None:
        """The value of an option as one would type it; empty: it has none; None: it is not given."""
        given = self.options.get(name)
        return None if given is None else ", ".join(filter(None, map(join, given)))


def same_command(one: Started, other: Started) -> bool:
    """Whether two runs are of the same command: launcher, folder and words, whatever the options are."""
    if one[:2] != other[:2]:
        return False
    return one.program == other.program or _words_of(one.program) == _words_of(other.program)


@lru_cache(1024)
def _words_of(program: tuple[str, ...]) -> Sequence[str]:
    """Its words that belong to no option; lists of many runs ask again and again."""
    return tuple(Arguments.of(program).words)


def changes(before: Sequence[str], after: Sequence[str], word: str = "word") -> list[Change]:
    """What differs between two command lines; options by name, whatever their order.

    :param word: what a word that belongs to no option is called
    """
    one, other = Arguments.of(before), Arguments.of(after)
    found = _words(one.words, other.words, word)
    names = dict.fromkeys([*other.options, *one.options])
    pairs = ((name, one.value(name), other.value(name)) for name in names)
    return [*found, *(Change(name, was, now) for name, was, now in pairs if was != now)]


def _words(before: Sequence[str], after: Sequence[str], word: str) -> list[Change]:
    """Words one by one if only some were exchanged; else what is between those that are the same."""
    first = next((at for at, (was, now) in enumerate(zip(before, after, strict=False)) if was != now), None)
    if first is None:
        first = min(len(before), len(after))
        if len(before) == len(after):
            return []
    same = 0
    while same < min(len(before), len(after)) - first and before[-1 - same] == after[-1 - same]:
        same += 1
    was, now = before[first : len(before) - same], after[first : len(after) - same]
    if len(was) == len(now):
        pairs = enumerate(zip(was, now, strict=True), first + 1)
        return [
            Change(f"{word} {at}", quote(one), quote(other)) for at, (one, other) in pairs if one != other
        ]
    return [Change(f"{word} {first + 1}", join(was) or None, join(now) or None)]
