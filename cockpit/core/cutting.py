"""Texts that are too long for their place, cut where the least is lost.

A path says most at its ends, a command at its beginning and end: the middle goes. A sentence is read from
its beginning: its end goes, but the middle of a long path in it first. Lines of logs are not cut here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

from cockpit.core.text import clip, columns

SIGN = "…"

LEAST = 16
"""Columns that a path in a sentence keeps; with fewer it would say no more than the sentence's end."""

_SETS = re.compile(r"\w+=")
_BETWEEN_WORDS = re.compile(r"[\s'\"`(),;=]+")


def cut_middle(text: str, width: int, sign: str = SIGN) -> str:
    """A path, name or command in at most this many columns: ``/scratch/ada/…/epoch-12/optim.pt``.

    The head of a path is whole directories; if none fits, the end gets all the columns.

    :param text: without controls
    :param sign: one column, stands for what is left out
    """
    if columns(text) <= width:
        return text
    if width < 1:
        return ""
    room = width - columns(sign)
    head = _beginning(text, room // 3)
    tail = _end(text, room - columns(head))
    directory = tail.find("/")
    if 0 < directory <= len(tail) // 2:
        tail = tail[directory:]
        head = _beginning(text, room - columns(tail))
    return head + sign + tail


def cut_command(text: str, width: int, sign: str = SIGN) -> str:
    """A command in at most this many columns: its program and its script keep their names.

    ``bash …/train.sh --epochs 3``. The script is the first of Python, else a module, else the first of a
    shell.

    :param text: without controls
    """
    cut = cut_middle(text, width, sign)
    words = list(re.finditer(r"\S+", text))
    program = next((word for word in words if not _SETS.match(word[0])), None)
    if cut == text or program is None:
        return cut
    after = words[words.index(program) :]
    modules = [word for before, word in pairwise(after) if before[0] == "-m"]
    found = [*filter(_ends(".py"), after), *modules, *filter(_ends(".sh"), after)]
    script = found[0] if found else None
    name = _name((script or program)[0])
    runs = _name(program[0])
    if script is None or script == program:
        heads = [name if text.startswith(name) else f"{sign}{name}"]
    else:
        between = text[program.end() : script.end()].strip(" '\"")
        gap = " " if between == name else f" {sign}/" if between == script[0].strip("'\"") else f" {sign} "
        heads = [f"{runs}{gap}{name}", f"{sign}{name}"]
    rest = text[(script or program).end() :]
    for head in heads:
        room = width - columns(head)
        if columns(rest) <= room:
            return head + rest
        if room >= columns(sign) + 1:
            return f"{head} {cut_middle(rest.lstrip(), room - 1, sign)}"
        if room >= 0:
            return head
    return cut


def _ends(suffix: str) -> Callable[[re.Match[str]], bool]:
    return lambda word: word[0].strip("'\"").endswith(suffix) and not word[0].startswith("-")


def _name(word: str) -> str:
    """The last part of the path of a program, without quotes."""
    return word.strip("'\"").rsplit("/", 1)[-1]


def cut_sentence(text: str, width: int) -> str:
    """A sentence in at most this many columns: its longest path gives way first, then its end.

    :param text: without controls
    """
    over = columns(text) - width
    if over <= 0:
        return text
    path = max((word for word in _BETWEEN_WORDS.split(text) if "/" in word), key=columns, default="")
    if columns(path) - over >= LEAST:
        return text.replace(path, cut_middle(path, columns(path) - over), 1)
    return clip(text, width - columns(SIGN)) + SIGN if width > 0 else ""


def _beginning(text: str, width: int) -> str:
    head = clip(text, width)
    return head[: head.rfind("/") + 1] if "/" in text and " " not in text else head


def _end(text: str, width: int) -> str:
    """The end of a text that fits into this many columns."""
    return clip(text[::-1], width)[::-1]
