"""Every source of nodes: to add one, add it here; and which of its nodes are meant.

``--include`` and ``--exclude`` take DeepSpeed's ``NAME[:S[,S]]@NAME…`` (0.19.8), and ranges in NAME.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from cockpit.core.ranks import expand
from cockpit.errors import CockpitError, ManyErrors, near
from cockpit.plans.nodes import hostfile, slurm
from cockpit.plans.nodes.hostfile import MAX_SLOTS, Host

FORM = "write `NAME[:SLOT[,SLOT]]`, several joined by `@`, ranges as `gpu[01-04]`"


def apply(hosts: Sequence[Host], include: str = "", exclude: str = "") -> tuple[Host, ...]:
    """The hosts and slots that are left, in hostfile order; an empty text filters nothing.

    As in DeepSpeed, several entries for one host are merged, and one that names slots wins over one that
    names the whole host. A host whose own name has ``@`` or ``:`` can be named too.

    :raises CockpitError: both given, or nothing left
    :raises ManyErrors: every unknown host, unknown slot and bad entry
    """
    if include and exclude:
        raise CockpitError("--include and --exclude cannot be used together", hint="use one of the two")
    if not include and not exclude:
        return tuple(hosts)
    option = "--include" if include else "--exclude"
    chosen = _choose(hosts, include or exclude, option)
    kept = []
    for host in hosts:
        named = chosen.get(host.name)
        if named is None:
            kept += [] if include else [host]
        elif include:
            kept.append(replace(host, slots=tuple(sorted(named)) or host.slots))
        elif named and (slots := tuple(slot for slot in host.slots if slot not in named)):
            kept.append(replace(host, slots=slots))
    if not kept:
        raise CockpitError("leaves no host", where=f"{option} {include or exclude}", hint="name others")
    return tuple(kept)


def _choose(hosts: Sequence[Host], text: str, option: str) -> dict[str, set[int]]:
    """The slots named for each named host; an empty set: the whole host."""
    known = {host.name: host for host in hosts}
    chosen: dict[str, set[int]] = {}
    errors: list[CockpitError] = []
    for entry in _entries(text, known):
        try:
            name, slots = _entry(entry, known)
            for one in [name] if name in known else expand(name):
                _check(one, slots, known)
                if option == "--exclude" and slots and known[one].open:
                    hint = f"say how many: --slots 8, or {one}:8 with -w"
                    raise CockpitError(f"host {one} has no number of slots to exclude from", hint=hint)
                chosen.setdefault(one, set()).update(slots)
        except CockpitError as error:
            errors.append(CockpitError(error.what, where=f"{option} {entry}", hint=error.hint))
    if errors:
        raise ManyErrors(errors)
    return chosen


def _entries(text: str, known: dict[str, Host]) -> Iterator[str]:
    """Split at ``@``, but not inside a known name like ``user@gpu01``."""
    pieces = text.split("@")
    while pieces:
        piece = pieces.pop(0)
        if pieces and piece not in known and any(name.startswith(f"{piece}@") for name in known):
            piece = f"{piece}@{pieces.pop(0)}"
        yield piece


def _entry(entry: str, known: dict[str, Host]) -> tuple[str, set[int]]:
    if entry in known or ":" not in entry:
        return entry, set()
    name, _, slots = entry.rpartition(":")
    words = slots.split(",")
    if not all(word.isascii() and word.isdigit() and len(word) < 7 for word in words):
        raise CockpitError(f"bad slots {slots!r}", hint=FORM)
    return name, set(map(int, words))


def _check(name: str, slots: set[int], known: dict[str, Host]) -> None:
    host = known.get(name)
    if host is None:
        meant = near(name, known)
        hint = f"did you mean {meant}?" if meant else FORM
        raise CockpitError(f"no host {name} among the nodes", hint=hint)
    unknown = sorted(slots - set(host.slots or range(MAX_SLOTS)))
    if unknown:
        has = f"it has slots {host.slots[0]}-{host.slots[-1]}" if host.slots else FORM
        raise CockpitError(f"host {name} has no slot {unknown[0]}", hint=has)


NodeSource = Callable[..., tuple[Host, ...]]
"""Nodes with their slots, in order, from one word, and what follows it; it raises CockpitError for what it
cannot read."""


def _read_pods(word: str, *where: str) -> tuple[Host, ...]:
    from cockpit.plans.nodes import pods  # only who has pods waits for it

    return pods.read(word, *where)


SOURCES: dict[str, NodeSource] = {"-w": hostfile.read_set, "--slurm": slurm.read, "--k8s": _read_pods}
"""By the option in front of that word; none: a file, or ``-``."""

DEFAULT = "/job/hostfile"
"""Where DeepSpeed (0.19.8) looks if nobody names a hostfile; images of job platforms write it."""


def nodes_from(
    words: Sequence[str], include: str = "", exclude: str = "", slots: int = 0
) -> tuple[Host, ...]:
    """The nodes that a person names.

    :param words: a source's option, if it has one, and its words
    :param include: only these, as with ``--include``; exclude: all but these
    :param slots: of each node whose source does not say; 0: such nodes stay open
    :raises CockpitError: no nodes, or no such
    """
    option, *rest = words
    hosts = SOURCES[option](*rest) if option in SOURCES else hostfile.read(option)
    if slots and not any(host.open for host in hosts):
        what, hint = "every node already has its number of slots", "leave it out, or take slots= out there"
        raise CockpitError(what, where=f"--slots {slots}", hint=hint)
    return apply(filled(hosts, slots), include, exclude)


def filled(hosts: Sequence[Host], slots: int) -> tuple[Host, ...]:
    """The hosts with this many slots for each that is open; 0: as they are."""
    return tuple(replace(host, slots=tuple(range(slots))) if host.open else host for host in hosts)
