"""What to launch and what is known about each node: the input of ``build_plans``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cockpit.base.answers import SWITCHES, FactsAnswer
from cockpit.base.gate import FLAG, FieldKind, Malformed, Text, Whole, bound, fields, maybe
from cockpit.core.ranks import ranks_text
from cockpit.errors import CockpitError, Exit
from cockpit.plans.command_words import DIR
from cockpit.plans.nodes.hostfile import Host
from cockpit.plans.profilers.nsys import Nsys

PER_NODE = "per-node"
"""The launcher that starts a program once on each node, and leaves the ranks to it."""

OWN = ("command", PER_NODE)
"""Launchers that are cockpit's own: nothing of theirs is on a PATH."""

HELD = "COCKPIT_SECRET_"
"""Names of variables for secrets in a command line that are in no other variable begin so."""

DEFAULT_PORT = 29500
"""torch's and DeepSpeed's default, used if no node could be asked for a free port."""


@dataclass(frozen=True)
class LaunchJob:
    """One launch over all nodes.

    :param run: name of the run
    :param hosts: filtered, in hostfile order
    :param program: ``train.py ARGS``, ``-m module ARGS`` or ``./any-program ARGS``
    :param cwd: absolute working directory, the same on every node
    :param launcher: ``deepspeed``, ``torchrun``, ``accelerate``, ``command`` or ``per-node``
    :param python: absolute path on the nodes, or None: ``python`` on PATH after the setup
    :param tool: the launcher that ``python`` was found behind on this machine; empty: it is beside it
    :param setup: shell text run before anything else, like ``source venv/bin/activate``
    :param path: folder that is first on PATH when the setup begins, of an active environment; empty: none
    :param conda: path of this machine's conda, for a setup that needs it; empty: not known
    :param env: variables for the ranks, secrets included
    :param secrets: names in ``env`` whose values are never written
    :param expanded: names in ``env`` in whose values each node's shell replaces ``$NAME``, in their order
    :param master_addr: None: ask the first node for its own
    :param master_port: None: ask for a free one
    :param bind_cores: None, ``auto`` (the cores the node allows) or a list like ``0-7,16-23``
    :param launcher_args: extra arguments for the launcher
    :param profiler: around the launcher of every node
    :param probe: whether each rank's Python gets the probe: ``auto``, ``on`` or ``off``
    :param nccl_debug: whether NCCL in each rank writes what it does to a file of the run
    :param calls: packages whose calls each rank notes
    """

    run: str
    hosts: tuple[Host, ...]
    program: tuple[str, ...]
    cwd: str
    launcher: str = "deepspeed"
    python: str | None = None
    tool: str = ""
    setup: str = ""
    path: str = ""
    conda: str = ""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: frozenset[str] = frozenset()
    expanded: tuple[str, ...] = ()
    master_addr: str | None = None
    master_port: int | None = None
    bind_cores: str | None = None
    launcher_args: tuple[str, ...] = ()
    profiler: Nsys | None = None
    probe: str = "auto"
    nccl_debug: bool = False
    calls: tuple[str, ...] = ()

    @property
    def world_size(self) -> int:
        """Ranks of all nodes, or programs that start them."""
        return sum(map(self.started_on, self.hosts))

    def started_on(self, host: Host) -> int:
        """How many ranks, or programs, are started on a node."""
        return 1 if self.launcher == PER_NODE else len(host.slots)


_TOOL = Text(4096, rf"(?!.*{DIR})/[^\x00-\x1f\x7f]*")
_VERSION = Text(100, r"[A-Za-z0-9][A-Za-z0-9.+_!-]*")
_ADDRESS = Text(255, r"[A-Za-z0-9_:][A-Za-z0-9._:%-]*")
_PORT = Whole(1, 65535)
_CORES = Text(1 << 19, r"(?:[0-9]{1,5}(?:-[0-9]{1,5})?(?:,(?!\Z)|\Z))*")


def is_address(value: object) -> bool:
    """Whether it looks like the name or the IP address of a host."""
    return _is(_ADDRESS, value)


def is_port(value: object) -> bool:
    """Whether it is a TCP port number."""
    return _is(_PORT, value)


def _is(kind: FieldKind, value: object) -> bool:
    try:
        kind.read(value)
    except Malformed:
        return False
    return True


@dataclass(frozen=True)
class NodeFacts:
    """What one node answered. It becomes shell, there and in part on all other nodes.

    :param address: the address at which the other nodes reach it, or None: they resolve its name
    :param port: a free TCP port on it
    :param cores: the cores it allows us, like ``0-3,8``
    :param numactl: path, or None: not there; the same for the job's profiler and the other tools
    :param switches: options that the profiler knows; none: it was not asked
    :param python: absolute path
    :param deepspeed: version
    :param no_ssh: whether that DeepSpeed knows ``--no_ssh``
    :param torch: version
    :raises CockpitError: a field has an impossible value
    """

    address: str | None = maybe(_ADDRESS)
    port: int | None = maybe(_PORT)
    cores: str = bound(_CORES, "")
    numactl: str | None = maybe(_TOOL)
    profiler: str | None = maybe(_TOOL)
    switches: tuple[str, ...] = bound(SWITCHES, ())
    python: str | None = maybe(_TOOL)
    deepspeed: str | None = maybe(_VERSION)
    no_ssh: bool = bound(FLAG, True)
    deepspeed_tool: str | None = maybe(_TOOL)
    torch: str | None = maybe(_VERSION)
    torchrun_tool: str | None = maybe(_TOOL)
    accelerate: str | None = maybe(_VERSION)
    accelerate_tool: str | None = maybe(_TOOL)

    def __post_init__(self) -> None:
        for name, kind, _ in fields(NodeFacts):
            try:
                kind.read(getattr(self, name))
            except Malformed as error:
                raise CockpitError(f"bad {name.replace('_', ' ')}: {error}") from None

    @classmethod
    def of(cls, node: str, answer: FactsAnswer, profiler: str = "") -> NodeFacts:
        """From the answer of a node's ``facts`` call (:func:`cockpit.node.facts.facts`).

        :param profiler: name of the job's

        :raises CockpitError: it cannot be true; names the node
        """
        same = {name: getattr(answer, name) for name, *_ in fields(cls) if hasattr(answer, name)}
        cores = ranks_text(answer.cores)
        try:
            return cls(**{**same, "cores": cores, "profiler": answer.tools.get(profiler)})
        except CockpitError as error:
            hint = "nothing was started; find out why before you use this node"
            what = f"cannot be true: {error.what}"
            raise CockpitError(what, where=node, hint=hint, code=Exit.NODE_UNFIT) from None


@dataclass(frozen=True)
class PlannedNode:
    """One node of a job, with everything settled that a launcher's command line needs."""

    job: LaunchJob
    index: int
    facts: NodeFacts | None
    master_addr: str
    master_port: int

    @property
    def host(self) -> Host:
        """The node."""
        return self.job.hosts[self.index]

    @property
    def ranks(self) -> range:
        """Global ranks of this node: nodes in hostfile order, each with its slots in ascending order."""
        first = sum(map(self.job.started_on, self.job.hosts[: self.index]))
        return range(first, first + self.job.started_on(self.host))

    @property
    def python(self) -> str:
        """The python of the ranks: an absolute path where one is known."""
        found = self.facts.python if self.facts else None
        return found or self.job.python or "python"
