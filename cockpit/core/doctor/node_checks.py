"""What was learned of each node: the input of all rules of the doctor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cockpit.base.answers import FactsAnswer, SeekAnswer
from cockpit.base.checkup_answers import CheckupAnswer, Interface, ReachAnswer
from cockpit.core.text import one_line
from cockpit.errors import CockpitError

SHOWN = 120
"""Characters of a word of a node that a sentence may have."""


PARTS = {
    "system": "kernel and memory",
    "limits": "ulimits",
    "disks": "disks and /dev/shm",
    "network": "network interfaces",
    "driver": "the NVIDIA driver",
    "gpus": "GPUs",
    "profiling": "permissions of profilers",
    "session": "what ends at logout",
    "port": "the rendezvous port",
    "leftovers": "leftover memory and locks",
    "login": "the login shell",
    "code": "your Python files",
    "names": "name resolution",
}
"""What each part of a checkup looks at, in words."""


@dataclass(frozen=True)
class Look:
    """One node; None: it was not asked, or gave no answer.

    :param machine: the same for all names of one machine
    :param host: what it calls itself
    :param offset_s: its clock minus ours
    :param rtt_s: the offset is accurate to half of this
    :param reached: whether it could connect to the first node
    :param errors: why it gave no answer
    :param untried: others were waited for, and no connection to it was begun
    """

    machine: str = ""
    host: str = ""
    uid: int | None = None
    facts: FactsAnswer | None = None
    condition: CheckupAnswer = field(default_factory=CheckupAnswer)
    ranks: SeekAnswer | None = None
    offset_s: float | None = None
    rtt_s: float = 0.0
    reached: ReachAnswer | None = None
    errors: tuple[CockpitError, ...] = ()
    untried: bool = False

    @property
    def interface(self) -> Interface | None:
        """The interface that leads to the other nodes, as far as that is known."""
        if self.condition.network is None:
            return None
        there = self.condition.network.interfaces
        if self.reached is not None and self.reached.interface:
            return next((each for each in there if each.name == self.reached.interface), None)
        return there[0] if len(there) == 1 else None


@dataclass(frozen=True)
class Looks:
    """All nodes, and what the launch will ask of them.

    :param nodes: by name, in the hostfile's order
    :param port: where ranks would meet on the first node
    :param port_asked: whether that is the port that a launch will take, rather than a default by hand
    :param address: at which the others reach the first node
    :param env: variables of the ranks that choose an interface
    :param scheduler: whether a run there ends with its job, not at logout
    :param run: the run that is meant to be there already; empty: none is
    :param pids: processes by node that are meant to be there, of a job that others started
    :param own: runs that this machine knows and that are not over: their ranks are no leftovers
    :param known: runs that this machine knows, over or not: it can stop what is left of them
    :param slots: by node, which the launch, or the run that is there, takes; none: not known
    :param profiled: whether a profiler is to run with it
    :param config: the ssh configuration that was given; empty: none was
    """

    nodes: Mapping[str, Look]
    port: int = 0
    port_asked: bool = False
    address: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    scheduler: bool = False
    run: str = ""
    pids: Mapping[str, frozenset[int]] = field(default_factory=dict)
    own: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()
    slots: Mapping[str, frozenset[int]] = field(default_factory=dict)
    profiled: bool = False
    config: str = ""

    def meant(self, node: str) -> set[int]:
        """The processes of ranks that are meant to be on a node already."""
        ranks, known = self.nodes[node].ranks, self.pids.get(node, frozenset())
        found = ranks.ranks if ranks else ()
        return {one.pid for one in found if one.pid in known or (self.run and one.run == self.run)}

    def runs_of_own(self, node: str) -> dict[int, str]:
        """The processes of other runs that are known on this machine, with the run of each."""
        ranks, meant = self.nodes[node].ranks, self.meant(node)
        found = ranks.ranks if ranks else ()
        return {one.pid: one.run for one in found if one.run in self.own and one.pid not in meant}

    @property
    def answered(self) -> dict[str, Look]:
        """The nodes that a link leads to."""
        return {name: look for name, look in self.nodes.items() if look.machine}

    @property
    def machines(self) -> int:
        """How many machines there are behind the names."""
        return len({look.machine for look in self.answered.values()})


def clean(text: object, limit: int = SHOWN) -> str:
    """A node's word in a sentence: short, and harmless for a terminal."""
    return one_line(str(text), limit=limit)


def in_hostfile_order(names: Iterable[str], looks: Looks) -> tuple[str, ...]:
    """Nodes in the order of the hostfile."""
    wanted = set(names)
    return tuple(name for name in looks.nodes if name in wanted)
