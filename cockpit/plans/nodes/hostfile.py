"""The hostfile, and node sets like ``gpu[01-04]:8``, in it and after ``-w``.

A line with ``NAME slots=N`` in front is read as DeepSpeed (0.19.8) reads it, but what it drops without a
word is an error. Any other line is ``NAME`` or ``NAME:N`` (MPICH 4, Intel MPI), or these with ``slots=N``,
``cpu=N`` or ``count=N`` and a maximum (Open MPI 4), in any order. ``core.ranks`` expands ranges.

Unlike DeepSpeed's own reader, this one reports all bad lines at once, and a missing file is an error:
DeepSpeed would silently train on this machine alone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv6Address
from pathlib import Path

from cockpit.core.ranks import MAX_HOSTS, expand, piece_of, set_words
from cockpit.errors import CockpitError, ManyErrors

MAX_SLOTS = 4096
"""Slots of one host, for the same reason."""
_LOWEST_PORT = 1024
"""``NAME:N`` with an N from here on is read as a port, which belongs into ~/.ssh/config."""
_MAX_BYTES = 4 << 20

POD = "pod/"
"""In front of the name of a pod in a set, as ``kubectl get -o name`` prints it."""

STDIN = "-"
"""In place of a path: standard input."""

_A_LINE_EACH = "give each host a line of its own: `NAME slots=N`"
FORM = "write `NAME slots=N`, `NAME:N` or `NAME`, with ranges like `NAME[01-16]`"

# DeepSpeed's expression, which ignores whatever follows the digits; letters are no entry of their own.
_LINE = re.compile(r"^(\S+)\s+slots=(\d+)(?![^\s#]*[=,;:[])[^\s#]*")
_COUNTED = re.compile(r"(.*):([0-9]+)")
_COUNTS = {"slots", "cpu", "count"}
_MAXIMA = {f"{a}{dash}{b}" for one in _COUNTS for a, b in ((one, "max"), ("max", one)) for dash in "-_"}


@dataclass(frozen=True)
class Host:
    """A node and its slots in use.

    :param name: as written in the hostfile, ranges expanded: ``gpu01``, ``user@gpu01``, ``[::1]``
    :param slots: slot numbers, ascending; one rank each; none: open
    :param line: line of the hostfile, counted from 1; 0: it is in no file
    """

    name: str
    slots: tuple[int, ...] = ()
    line: int = 0

    @property
    def open(self) -> bool:
        """Whether nobody has said how many slots it has: its GPUs will."""
        return not self.slots


def read_text(path: str | Path, what: str = "hostfile") -> str:
    """The text of a small file; bytes that are not UTF-8 become surrogates.

    :raises CockpitError: missing, unreadable, a directory, or absurdly large
    """
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise CockpitError(f"no such {what}", where=str(path), hint="check the path") from None
    except IsADirectoryError:
        raise CockpitError(f"is a directory, not a {what}", where=str(path)) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise CockpitError(f"cannot read the {what}: {reason}", where=str(path)) from None
    if len(data) > _MAX_BYTES:
        raise CockpitError(f"too large for a {what}", where=str(path))
    return _decoded(data, str(path))


def _decoded(data: bytes, where: str) -> str:
    """:raises CockpitError: it is UTF-16, as an editor of Windows saves it"""
    # Without a mark in front, each character of ASCII has a zero beside it.
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or data[:2].count(0) == 1:
        raise CockpitError("is UTF-16 (Windows)", where=where, hint="save it as UTF-8")
    return data.decode("utf-8-sig", "surrogateescape")


def lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a text file with their numbers, stripped, without blank lines and ``#`` comments."""
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = line.strip()
        if line and not line.startswith("#"):
            yield number, line


def read(path: str | Path) -> tuple[Host, ...]:
    """Read a hostfile, or standard input if it is ``-``; see :func:`parse`.

    :raises CockpitError: it cannot be read
    """
    if str(path) != STDIN:
        return parse(read_text(path), str(path))
    try:
        data = sys.stdin.buffer.read(_MAX_BYTES + 1)
    except OSError as error:
        raise CockpitError(f"cannot read the list of nodes: {error.strerror}", where="stdin") from None
    if len(data) > _MAX_BYTES:
        raise CockpitError("too large for a list of nodes", where="stdin")
    return parse(_decoded(data, "stdin"), "stdin")


def read_set(text: str) -> tuple[Host, ...]:
    """The hosts of a set like ``gpu[01-04]:8,big1``, in its order; ``:N`` is the number of slots.

    Pods are written ``pod/NAME[:CONTAINER][:N]``, and called ``NAME[:CONTAINER]``: a slash is in no name.

    :raises CockpitError: there is none
    :raises ManyErrors: every bad word
    """
    if not text.strip():
        raise CockpitError("no nodes given", where="-w", hint="write names, with ranges like gpu[01-16]")
    return _hosts(((f"-w {piece_of(word)}", 0, word) for word in set_words(text)), _named, "-w")


def parse(text: str, where: str = "hostfile") -> tuple[Host, ...]:
    """The hosts of a hostfile, in its order.

    :param where: what errors call the file
    :raises ManyErrors: every bad line, each as ``file:line: what; accepted form``
    """
    return _hosts(((f"{where}:{number}", number, line) for number, line in lines(text)), _entry, where)


def _hosts(
    pieces: Iterable[tuple[str, int, str]], named: Callable[[str], tuple[list[str], int]], where: str
) -> tuple[Host, ...]:
    """The hosts of all pieces, each a place for errors, a line number and a text that ``named`` reads."""
    hosts: dict[str, Host] = {}
    plain: dict[str, str] = {}
    errors: list[CockpitError] = []
    for place, number, text in pieces:
        try:
            names, count = named(text)
        except CockpitError as error:
            errors.append(CockpitError(error.what, where=place, hint=error.hint))
            continue
        if len(hosts) + len(names) > MAX_HOSTS:
            errors.append(CockpitError(f"more than {MAX_HOSTS} hosts", where=place, hint="check the ranges"))
            break  # expanding what follows could take for ever
        for name in names:
            # Names of machines have no case, but names of users do.
            user, at, host = name.rpartition("@")
            first = plain.setdefault(user + at + host.lower(), name)
            if first in hosts:
                what = f"is already in line {hosts[first].line}" if number else "is named twice"
                what += "" if first == name else f", as {first}"
                # A list as PBS and Open MPI know it: a line for each slot.
                listed = number and not count and hosts[first].open
                hint = "name each once: uniq LIST | cockpit run - …" if listed else "keep one of the two"
                errors.append(CockpitError(f"host {name} {what}", where=place, hint=hint))
            else:
                hosts[name] = Host(name, tuple(range(count)), number)
    if not hosts and not errors:
        errors.append(CockpitError("contains no host", where=where, hint=FORM))
    if errors:
        raise ManyErrors(errors)
    return tuple(hosts.values())


def _entry(line: str) -> tuple[list[str], int]:
    """The names of a line and their number of slots; 0: it does not say."""
    match = _LINE.match(line)
    if match is not None:
        names, count = expand(match[1]), _slots(match[2])
        settings = line[match.end() :].partition("#")[0].split()
    else:
        # MPI's files have comments behind names, too.
        name, *settings = re.split(r"\s#", line)[0].split()
        names, count = _counted(name)
    limited = False
    for setting in settings:
        key, _, value = setting.partition("=")
        known = key in _COUNTS or key in _MAXIMA
        if not known or not (value.isascii() and value.isdigit()):
            foreign = not known and value
            what = f"{piece_of(key)}= is not supported here" if foreign else f"bad entry {piece_of(line)}"
            raise CockpitError(what, hint=_A_LINE_EACH if match and not foreign else FORM)
        if key in _MAXIMA:
            limited = True
        elif count:
            raise CockpitError("two numbers of slots", hint="keep one of the two")
        else:
            count = _slots(value)
    if limited and not count:
        raise CockpitError("a maximum, but no number of slots", hint=FORM)
    return names, count


def _named(word: str) -> tuple[list[str], int]:
    """The same as :func:`_counted`, of hosts or pods."""
    if not word.startswith(POD):
        return _counted(word)
    name, *more = word.removeprefix(POD).split(":")
    count = _slots(more.pop()) if more and more[-1].isascii() and more[-1].isdigit() else 0
    if len(more) > 1:
        raise CockpitError(f"bad pod {piece_of(word)}", hint=f"write `{POD}NAME[:CONTAINER][:SLOTS]`")
    return expand(":".join((name, *more))), count


def _counted(word: str) -> tuple[list[str], int]:
    """The names of ``NAME[:N]`` and their number of slots; 0: it does not say."""
    name, count = word, 0
    match = _COUNTED.fullmatch(word)
    if match is not None and (":" not in match[1] or match[1].endswith("]")):
        name, count = match[1], _slots(match[2])
    colons = ":" in re.sub(r"\[[^]]*\]", "", name) and not _is_ipv6(name.rpartition("@")[2])
    if colons or count >= _LOWEST_PORT:
        hint = "a port is written `NAME:PORT slots=N` in a hostfile, or in ~/.ssh/config"
        raise CockpitError(f"no number of slots after the colon: {piece_of(word)}", hint=hint)
    return expand(name), count


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


def _slots(text: str) -> int:
    digits = text.lstrip("0")
    if not digits:
        raise CockpitError("slots=0", hint="give it at least one slot, or leave it out")
    if len(digits) > 6 or int(digits) > MAX_SLOTS:
        raise CockpitError(f"more than {MAX_SLOTS} slots", hint="slots are ranks: usually one per GPU")
    return int(digits)


def render(hosts: tuple[Host, ...]) -> str:
    """A hostfile for DeepSpeed with enough slots for the highest slot number of each host."""
    return "".join(f"{host.name} slots={host.slots[-1] + 1}\n" for host in hosts)
