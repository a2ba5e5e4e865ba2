"""The hostfile: DeepSpeed's grammar (0.19.8), and ranges like ``gpu[01-16] slots=8``, expanded.

Unlike DeepSpeed's own reader, this one reports all bad lines at once, and a missing file is an error:
DeepSpeed would silently train on this machine alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from ClusterShell.RangeSet import RangeSet, RangeSetException

from cockpit.errors import CockpitError, ManyErrors

MAX_HOSTS = 10_000
"""Hosts of one file, ranges expanded: more than this is treated as a typo."""
MAX_SLOTS = 4096
"""Slots of one host, for the same reason."""
_MAX_BYTES = 4 << 20

FORM = "write `NAME slots=N`, with ranges `NAME[01-16] slots=N`"

# DeepSpeed's expression: whatever follows the digits is ignored.
_LINE = re.compile(r"^(\S+)\s+slots=(\d+)")
# Also a folder name and an ssh argument: no leading "-" or ".", no "/", nothing a shell would interpret.
_USER = r"(?:[A-Za-z0-9_][A-Za-z0-9._-]*@)?"
_NAME = re.compile(
    rf"(?=.{{1,255}}\Z){_USER}(?:[A-Za-z0-9_][A-Za-z0-9._:-]*|\[[0-9A-Fa-f.]*:[0-9A-Fa-f.:]*\](?::[0-9]+)?)\Z"
)
_BRACKET = re.compile(r"\[([0-9,/-]+)\]")
_PIECE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?:/(\d{1,9}))?)?\Z")


@dataclass(frozen=True)
class Host:
    """A node and its slots in use.

    :param name: as written in the hostfile, ranges expanded: ``gpu01``, ``user@gpu01``, ``[::1]``
    :param slots: slot numbers, ascending; one rank each
    :param line: line of the hostfile, counted from 1
    """

    name: str
    slots: tuple[int, ...]
    line: int = 0


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
    return data.decode("utf-8-sig", "surrogateescape")


def lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a text file with their numbers, stripped, without blank lines and ``#`` comments."""
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = line.strip()
        if line and not line.startswith("#"):
            yield number, line


def read(path: str | Path) -> tuple[Host, ...]:
    """Read a hostfile; see :func:`parse`.

    :raises CockpitError: it cannot be read
    """
    return parse(read_text(path), str(path))


def parse(text: str, where: str = "hostfile") -> tuple[Host, ...]:
    """The hosts of a hostfile, in its order.

    :param where: what errors call the file
    :raises ManyErrors: every bad line, each as ``file:line: what; accepted form``
    """
    hosts: dict[str, Host] = {}
    errors: list[CockpitError] = []
    for number, line in lines(text):
        place = f"{where}:{number}"
        try:
            names, count = _entry(line)
            if len(hosts) + len(names) > MAX_HOSTS:
                raise CockpitError(f"more than {MAX_HOSTS} hosts", hint="check the ranges")
        except CockpitError as error:
            errors.append(CockpitError(error.what, where=place, hint=error.hint))
            continue
        for name in names:
            if name in hosts:
                what = f"host {name} is already in line {hosts[name].line}"
                errors.append(CockpitError(what, where=place, hint="keep one of the two"))
            else:
                hosts[name] = Host(name, tuple(range(count)), number)
    if not hosts and not errors:
        errors.append(CockpitError("no host in it", where=where, hint=FORM))
    if errors:
        raise ManyErrors(errors)
    return tuple(hosts.values())


def _entry(line: str) -> tuple[list[str], int]:
    match = _LINE.match(line)
    if match is None:
        raise CockpitError(f"bad entry {_shown(line)}", hint=FORM)
    digits = match[2].lstrip("0")
    if not digits:
        raise CockpitError("slots=0", hint="give it at least one slot, or take the line out")
    if len(digits) > 6 or int(digits) > MAX_SLOTS:
        raise CockpitError(f"more than {MAX_SLOTS} slots", hint=FORM)
    return expand(match[1]), int(digits)


def is_name(name: object) -> bool:
    """Whether it is a valid node name here: for ssh, for a file system and for a shell."""
    return isinstance(name, str) and _NAME.match(name) is not None


def expand(name: str) -> list[str]:
    """The names that ``gpu[01-03]`` or ``rack[1-2]n[01-16]`` stand for; ``[::1]`` stands for itself.

    :raises CockpitError: not a valid host name, a bad range, or too many names
    """
    parts = _BRACKET.split(name)
    choices: list[list[str]] = []
    total = 1
    for place, part in enumerate(parts):
        values = [part] if place % 2 == 0 else _range(part)
        total *= len(values)
        if total > MAX_HOSTS:
            raise CockpitError(f"{_shown(name)} is more than {MAX_HOSTS} hosts", hint="check the ranges")
        choices.append(values)
    names = ["".join(choice) for choice in product(*choices)]
    if not all(map(is_name, names)):
        hint = "a name has letters, digits and . _ - : @, and starts with a letter or digit"
        raise CockpitError(f"bad host name {_shown(name)}", hint=hint)
    return names


def _range(text: str) -> list[str]:
    hint = "ranges are like [01-16], [1,3,5-8] or [0-30/2]"
    total = 0
    # Counted before ClusterShell makes the set: it would fill the memory with [0-999999999].
    for piece in text.split(","):
        match = _PIECE.match(piece)
        if match is None:
            raise CockpitError(f"bad range [{_shown(text)}]", hint=hint)
        total += (int(match[2] or match[1]) - int(match[1])) // max(1, int(match[3] or 1)) + 1
        if total > MAX_HOSTS:
            raise CockpitError(f"range [{_shown(text)}] is more than {MAX_HOSTS} hosts", hint="check it")
    try:
        values = [str(value) for value in RangeSet(text)]
    except RangeSetException:
        raise CockpitError(f"bad range [{_shown(text)}]", hint=hint) from None
    if len(values) < total:
        raise CockpitError(f"range [{_shown(text)}] names a host twice", hint=hint)
    return values


def _shown(text: str) -> str:
    """A piece of the file for a message: short, and harmless on a terminal."""
    text = text if len(text) <= 80 else text[:77] + "..."
    return text if text.isprintable() else ascii(text)


def render(hosts: tuple[Host, ...]) -> str:
    """A hostfile for DeepSpeed with enough slots for the highest slot number of each host."""
    return "".join(f"{host.name} slots={host.slots[-1] + 1}\n" for host in hosts)
