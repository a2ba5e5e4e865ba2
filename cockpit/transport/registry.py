"""Every kind of transport: to add one, add it here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cockpit.transport import srun, srun_end
from cockpit.transport.base import HeldCommand, Transport, Ways
from cockpit.transport.srun import SrunWays

if TYPE_CHECKING:
    from cockpit.transport.openssh import OpensshWays
    from cockpit.transport.ssh import SshHops

Options = Mapping[str, str]


class Ending(Protocol):
    """Why whoever lent the nodes has ended a run, in one sentence; empty: nobody has, as far as is known.

    With it comes whether that is all that will ever be known.
    """

    def __call__(self, options: Options, said: str, *, ask: bool, gone: str = "") -> tuple[str, bool]:
        """Find out.

        :param said: the end of what the process said that holds the run's supervisors
        :param ask: whether they may be asked too, which takes a while
        :param gone: who that process was, if it has ended although supervisors were there
        """


@dataclass(frozen=True)
class TransportKind:
    """A kind of transport.

    :param ways: makes the ways to nodes from options and the seconds that a node may spend on any one stage
        of connecting (None: the transport's own)
    :param typed: the words that a person puts before a command to run it on a node
    :param holding: what runs a script on each node, given by its path there, if nothing there outlives the
        connection by which it was started; None: processes there do
    :param ending: says why whoever lent the nodes has ended a run
    :param retry_s: least seconds between two tries to get a lost link back
    :param output: what prints the output of the container that a node is, each line with its time; None: a
        node is none
    :param caution: what a person must know of a run on such nodes; empty: nothing
    """

    ways: Callable[[Options, float | None], Ways]
    typed: Callable[[Options, str], tuple[str, ...]]
    holding: Callable[[Options, Mapping[str, str]], HeldCommand] | None = None
    retry_s: float = 0.0
    ending: Ending | None = None
    output: Callable[[Options, str], tuple[str, ...]] | None = None
    caution: str = ""

    @property
    def of_containers(self) -> bool:
        """Whether its nodes are containers: several may share a machine, and its boot."""
        return self.output is not None


def _local(options: Options, patience_s: float | None) -> Ways:
    from cockpit.transport.local import LocalWays

    return LocalWays()


def _ssh(options: Options, patience_s: float | None) -> SshHops:
    from cockpit.transport.ssh import SshHops, SshOptions  # local runs save a fifth of a second

    config = Path(options["config"]) if options.get("config") else None
    wanted = SshOptions(config=config, accept_new=bool(options.get("accept_new")))
    return SshHops(wanted if patience_s is None else replace(wanted, stage_timeout=patience_s))


def _openssh(options: Options, patience_s: float | None) -> OpensshWays:
    from cockpit.transport.openssh import OpensshWays

    chosen = options.get("config", "")
    return OpensshWays(chosen) if patience_s is None else OpensshWays(chosen, patience_s)


def _either_ssh(options: Options, patience_s: float | None) -> Ways:
    from cockpit.transport.fallback import FallbackWays

    known = frozenset(options.get("openssh", "").split())
    first = _ssh(options, patience_s)
    second = _openssh(options, patience_s)
    either = FallbackWays(first, second, lambda job: SrunWays({"job": job}), known)
    first.instead = either.asks_nobody
    return either


def _typed_ssh(options: Options, node: str) -> tuple[str, ...]:
    return ("ssh", *(("-F", options["config"]) if options.get("config") else ()), node)


def _srun(options: Options, patience_s: float | None) -> Ways:
    return SrunWays(options)


def _kubectl(options: Options, patience_s: float | None) -> Ways:
    from cockpit.transport.kubectl import KubectlWays  # only who has pods waits for it

    return KubectlWays(options)


def _typed_kubectl(options: Options, node: str) -> tuple[str, ...]:
    from cockpit.transport.kubectl import typed

    return typed(options, node)


def _output_of_container(options: Options, node: str) -> tuple[str, ...]:
    from cockpit.transport.kubectl import output

    return output(options, node)


_CAUTION = (
    "a run in pods ends with its containers: nothing of it outlives a restart, an eviction or a deletion"
)


class _Auto:
    """This machine's own names need no ssh; some nodes need the ssh program, or a step of a SLURM job."""

    def __init__(self, options: Options, patience_s: float | None) -> None:
        self._local = _local(options, patience_s)
        self._remote: Ways | None = None
        self._asked = options, patience_s

    async def to(self, node: str) -> Transport:
        from cockpit.transport.local import is_here

        if await is_here(node):
            return await self._local.to(node)
        if self._remote is None:
            self._remote = _either_ssh(*self._asked)
        return await self._remote.to(node)

    async def close(self) -> None:
        if self._remote is not None:
            await self._remote.close()


TRANSPORTS = {
    "auto": TransportKind(_Auto, _typed_ssh),
    "ssh": TransportKind(_ssh, _typed_ssh),
    "openssh": TransportKind(_openssh, _typed_ssh),
    "local": TransportKind(_local, lambda options, node: ()),
    "srun": TransportKind(_srun, srun.typed, srun.holding, srun.RETRY_S, srun_end.ending),
    "kubectl": TransportKind(_kubectl, _typed_kubectl, output=_output_of_container, caution=_CAUTION),
}
"""By name. Their options: ``config``, an ssh configuration file instead of the user's and the system's;
``accept_new``, not empty: unknown host keys are kept without a question, changed ones never; ``openssh``, the
nodes that ``auto`` reaches by the ssh program without trying asyncssh first; ``job``, the SLURM job whose
nodes they are; ``here``, the name of this machine, if an srun that was typed here may be asked too;
``context`` and ``namespace``, where pods are, if not where the kubeconfig says; ``pods``, the selection by
which a pod that was replaced is found again."""
