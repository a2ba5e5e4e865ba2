"""The hostfile: DeepSpeed's grammar (0.19.8), and node sets in it; ``core.ranks`` expands these.

Unlike DeepSpeed's own reader, this one reports all bad lines at once, and a missing file is an error:
DeepSpeed would silently train on this machine alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cockpit.core.ranks import MAX_HOSTS, expand, piece_of
from cockpit.errors import CockpitError, ManyErrors

MAX_SLOTS = 4096
"""Slots of one host, for the same reason."""
_MAX_BYTES = 4 << 20

FORM = "write `NAME slots=N`, with ranges `NAME[01-16] slots=N`"

# DeepSpeed's expression: whatever follows the digits is ignored.
_LINE = re.compile(r"^(\S+)\s+slots=(\d+)")


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
        raise CockpitError(f"bad entry {piece_of(line)}", hint=FORM)
    digits = match[2].lstrip("0")
    if not digits:
        raise CockpitError("slots=0", hint="give it at least one slot, or take the line out")
    if len(digits) > 6 or int(digits) > MAX_SLOTS:
        raise CockpitError(f"more than {MAX_SLOTS} slots", hint=FORM)
    return expand(match[1]), int(digits)


def render(hosts: tuple[Host, ...]) -> str:
    """A hostfile for DeepSpeed with enough slots for the highest slot number of each host."""
    return "".join(f"{host.name} slots={host.slots[-1] + 1}\n" for host in hosts)
