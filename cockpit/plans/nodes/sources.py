"""Every source of nodes: to add one, add it here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from cockpit.errors import CockpitError
from cockpit.plans.nodes import filters, hostfile, slurm
from cockpit.plans.nodes.hostfile import Host

NodeSource = Callable[[str], tuple[Host, ...]]
"""Nodes with their slots, in order, from one word; it raises CockpitError for what it cannot read."""

SOURCES: dict[str, NodeSource] = {"": hostfile.read, "-w": hostfile.read_set, "--slurm": slurm.read}
"""By the option in front of that word; none: a file, or ``-``."""

DEFAULT = "/job/hostfile"
"""Where DeepSpeed (0.19.8) looks if nobody names a hostfile; images of job platforms write it."""


def nodes_from(
    words: Sequence[str], include: str = "", exclude: str = "", slots: int = 0
) -> tuple[Host, ...]:
    """The nodes that a person names.

    :param words: a source's option, if it has one, and its word
    :param include: only these, as with ``--include``; exclude: all but these
    :param slots: of each node whose source does not say; 0: such nodes stay open
    :raises CockpitError: no nodes, or no such
    """
    *option, word = words
    hosts = SOURCES["".join(option)](word)
    if slots and not any(host.open for host in hosts):
        what, hint = "every node has its number of slots already", "leave it out, or take slots= out there"
        raise CockpitError(what, where=f"--slots {slots}", hint=hint)
    return filters.apply(filled(hosts, slots), include, exclude)


def filled(hosts: Sequence[Host], slots: int) -> tuple[Host, ...]:
    """The hosts with this many slots for each that is open; 0: as they are."""
    return tuple(replace(host, slots=tuple(range(slots))) if host.open else host for host in hosts)
