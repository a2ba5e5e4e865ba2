"""What a run was started with, as its folder here says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace as replaced
from typing import Any

from cockpit import __version__
from cockpit.base import gate
from cockpit.base.answers import Launching
from cockpit.base.events import Planned
from cockpit.base.gate import Definition, FieldKind, ListOf, Malformed, MapOf, Of, Text, bound, maybe, read
from cockpit.base.shared_fields import Caller
from cockpit.core.run.events import Event
from cockpit.errors import CockpitError
from cockpit.transport.base import Reach
from cockpit.transport.registry import TRANSPORTS

FORMAT = 1
"""Version of the manifest; a reader refuses a newer one."""

CLOSED = "closed"
"""How nodes are reached of a run that others may have written: not at all, no transport has this name."""


class NewerCockpit(CockpitError):
    """A newer cockpit made the run: nothing is damaged, but this one cannot read it.

    :param version: the version of that cockpit
    """

    def __init__(self, version: str, *, where: str = "") -> None:
        what = f"made by cockpit {version}, which is newer than this one ({__version__})"
        super().__init__(what, where=where, hint="use that version, or upgrade this one")
        self.version = version


class _Object(FieldKind):
    """A JSON object that is shown and passed on; those who know its fields check them."""

    def read(self, value: Any) -> dict[str, Any]:
        """See :meth:`cockpit.base.gate.FieldKind.read`."""
        if not isinstance(value, dict):
            raise Malformed("expected an object")
        return value


_OBJECT = _Object()
_LINE = Text(1 << 20)
_FILE = Text(4096)
_TRANSPORT = Text(100, "|".join(TRANSPORTS))


class NodeEntry(Definition):
    """A node in a manifest."""

    name: str = bound(gate.NODE_NAME)
    dir: str = bound(gate.PATH)
    ranks: Sequence[int] = bound(gate.RANKS)
    transport: str = bound(_TRANSPORT, "ssh")
    host: str = bound(Text(255), "")
    facts: dict[str, Any] = bound(_OBJECT, {})


class Foreign(Definition):
    """What is known of a job that others started, when it was first watched.

    :param key: tells it from other jobs on its nodes, see :class:`cockpit.core.run.jobs.Job`
    :param slurm: the SLURM job that it runs in; empty: none
    :param launchers: what started its ranks, by node; command lines are without secrets
    :param callers: the ssh connections by which ranks elsewhere were started, by the node that has them
    :param passed: ranks whose node says that their output leaves it
    :param away: nodes that say so of a rank or a launcher
    """

    key: Sequence[str] = bound(ListOf(_FILE, 10))
    slurm: str = bound(gate.WORD, "")
    launchers: Mapping[str, Sequence[Launching]] = bound(
        MapOf(gate.NODE_NAME, ListOf(Of(Launching), gate.RANKS_A_NODE), 1 << 16), {}
    )
    callers: Mapping[str, Sequence[Caller]] = bound(
        MapOf(gate.NODE_NAME, ListOf(Of(Caller), gate.RANK_LIMIT), 1 << 16), {}
    )
    passed: Sequence[int] = bound(ListOf(gate.RANK, gate.RANK_LIMIT), ())
    away: Sequence[str] = bound(ListOf(gate.NODE_NAME, 1 << 16), ())


class _Written(Definition):
    """The part of a manifest that every version has."""

    format: int = bound(gate.COUNT, FORMAT)
    version: str = bound(gate.WORD, "")
    ssh_config: str = bound(_FILE, "")
    """Before there were ``transport_options``."""


class Manifest(Definition):
    """What a run was started with; holds no secrets."""

    run: str = bound(gate.RUN_NAME)
    created: float = bound(gate.TIME)
    nodes: Sequence[NodeEntry] = bound(ListOf(Of(NodeEntry), 1 << 16))
    launcher: str = bound(gate.WORD)
    program: Sequence[str] = bound(ListOf(_LINE, 1 << 16))
    cwd: str = bound(_FILE)
    hostfile: str = bound(_FILE, "")
    pythons: Sequence[str] = bound(ListOf(_FILE, 1000), ())
    profile: dict[str, Any] | None = maybe(_OBJECT)
    probe: str = bound(Text(4, "auto|on|off"), "off")
    nccl_debug: bool = bound(gate.FLAG, False)
    on_failure: str = bound(Text(4, "stop|wait"), "stop")
    failure_wait_s: float = bound(gate.SECONDS, 30.0)
    transport: str = bound(_TRANSPORT, "auto")
    transport_options: dict[str, str] = bound(MapOf(gate.WORD, _FILE, 100), {})
    plans: Sequence[dict[str, Any]] = bound(ListOf(_OBJECT, 1 << 16), ())
    command: Sequence[str] = bound(ListOf(_LINE, 1 << 16), ())
    foreign: Foreign | None = maybe(Of(Foreign))
    allocation: str = bound(gate.WORD, "")
    """The SLURM job whose nodes it was launched on, from a shell in that job: when it ends, so do they."""
    report: bool = bound(gate.FLAG, False)
    """Whether it gets a report by itself once it has ended."""
    job_restart: int = bound(gate.COUNT, 0)
    """How often SLURM had started that job, or the one that reaches its nodes, anew."""
    again: str = bound(Text(64, f"({gate.RUN_NAME_RULE})?"), "")
    """The run that a person started once more by this one; empty: none, as far as it is known."""
    version: str = bound(gate.WORD, __version__)
    format: int = bound(gate.COUNT, FORMAT)

    @classmethod
    def from_json(cls, data: Any) -> Manifest:
        """The manifest in a file; fields of later versions are ignored.

        :raises Malformed: it is not a manifest
        :raises NewerCockpit: a newer cockpit wrote it
        """
        written = read(_Written, data)  # first: the rest may have changed its meaning
        if written.format > FORMAT:
            raise NewerCockpit(written.version)
        if written.ssh_config:
            data = {**data, "transport_options": {"config": written.ssh_config}}
        found = read(cls, data)
        names = {node.name for node in found.nodes}
        if not found.world or len(names) < len(found.nodes) or len(set(found.world)) < len(found.world):
            raise Malformed(".nodes: expected ranks, and each rank and node once")
        return found

    def as_data(self, why: str) -> Manifest:
        """The same without all that a connection would follow: programs, transport, options.

        :param why: who else may have written it, in one sentence
        """
        nodes = [replaced(node, transport=CLOSED) for node in self.nodes]
        return replaced(self, nodes=nodes, pythons=(), transport=CLOSED, transport_options={CLOSED: why})

    @property
    def closed(self) -> str:
        """Why its nodes are not reached by it: others may have written it; empty: it is ours."""
        return self.transport_options.get(CLOSED, "") if self.transport == CLOSED else ""

    @property
    def reach(self) -> Reach:
        """How its nodes are reached; one that took the ssh program is not first refused by another way."""
        by_program = [node.name for node in self.nodes if node.transport == "openssh"]
        known = {"openssh": " ".join(by_program)} if self.transport == "auto" and by_program else {}
        return Reach(self.transport, {**self.transport_options, **known})

    @property
    def world(self) -> list[int]:
        """All ranks."""
        return [rank for node in self.nodes for rank in node.ranks]


def planned(manifest: Manifest) -> Event:
    """The first event of every run."""
    return Event(manifest.created, "", Planned({node.name: tuple(node.ranks) for node in manifest.nodes}))
