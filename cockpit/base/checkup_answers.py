"""What a checkup says of a node: answers to ``checkup``, ``meet`` and ``reach``, with fields and bounds."""

from __future__ import annotations

from typing import Dict, Optional, Tuple

from cockpit.base import gate
from cockpit.base.answers import ADDRESSES
from cockpit.base.gate import Definition, ListOf, MapOf, Number, Of, Text, Whole, bound, maybe

_NAME = Text(255, cut=True)
_PLACE = Text(4096, cut=True)
PEERS = 1024
"""Names that one node looks up."""


class System(Definition):
    """The machine.

    :param memory_max_bytes: what its cgroup may use; None: all
    :param pids_max: processes and threads that its cgroup may have; None: any number
    """

    kernel: str = bound(_NAME)
    libc: str = bound(_NAME, "")
    cpu: str = bound(_NAME, "")
    cores: int = bound(gate.COUNT, 0)
    governor: str = bound(_NAME, "")
    load: Optional[float] = maybe(Number(0, 1e9))
    memory_bytes: Optional[int] = maybe(gate.SIZE)
    memory_free_bytes: Optional[int] = maybe(gate.SIZE)
    memory_max_bytes: Optional[int] = maybe(gate.SIZE)
    pids_max: Optional[int] = maybe(gate.SIZE)


class Limits(Definition):
    """Limits of a process there, as ranks get them; None: unlimited. Bytes, or a number."""

    open_files: Optional[int] = maybe(gate.SIZE)
    processes: Optional[int] = maybe(gate.SIZE)
    locked_bytes: Optional[int] = maybe(gate.SIZE)


class Disk(Definition):
    """A folder's file system.

    :param role: what cockpit or the ranks use it for: ``run folders``, ``/dev/shm``
    :param type: as in /proc/mounts; empty: not known
    """

    role: str = bound(gate.WORD)
    path: str = bound(gate.PATH)
    total_bytes: int = bound(gate.SIZE)
    free_bytes: int = bound(gate.SIZE)
    type: str = bound(gate.WORD, "")
    inodes: int = bound(gate.SIZE, 0)
    inodes_free: int = bound(gate.SIZE, 0)


class Interface(Definition):
    """A network interface that is up."""

    name: str = bound(gate.WORD)
    mtu: int = bound(gate.COUNT, 0)
    mbit: Optional[int] = maybe(gate.COUNT)
    addresses: Tuple[str, ...] = bound(ADDRESSES, ())


class Port(Definition):
    """A port of an InfiniBand or RoCE device: ``mlx5_0/1``."""

    name: str = bound(_NAME)
    state: str = bound(_NAME, "")
    rate: str = bound(_NAME, "")


class Network(Definition):
    """Interfaces, without those of containers and virtual machines."""

    interfaces: Tuple[Interface, ...] = bound(ListOf(Of(Interface), 256), ())
    rdma: Tuple[Port, ...] = bound(ListOf(Of(Port), 256), ())


class GpuUser(Definition):
    """A process that has memory of a GPU; ``name`` and ``user`` are empty if it is in another namespace."""

    pid: int = bound(gate.PID)
    bytes: Optional[int] = maybe(gate.SIZE)
    name: str = bound(_NAME, "")
    user: str = bound(_NAME, "")


class Gpu(Definition):
    """A GPU; None is what its driver refuses to say.

    :param errors: memory errors that ECC could not correct, since the driver was loaded
    :param clock_mhz: the highest clock of its SMs
    :param slowed: why it runs slower than it could: ``heat``, ``power brake``
    """

    index: int = bound(Whole(0, 511))
    name: Optional[str] = maybe(_NAME)
    memory_bytes: Optional[int] = maybe(gate.SIZE)
    memory_total_bytes: Optional[int] = maybe(gate.SIZE)
    errors: Optional[int] = maybe(gate.SIZE)
    clock_mhz: Optional[int] = maybe(gate.COUNT)
    power_w: Optional[int] = maybe(gate.COUNT)
    persistent: Optional[bool] = maybe(gate.FLAG)
    slowed: Tuple[str, ...] = bound(ListOf(gate.WORD, 16), ())
    users: Tuple[GpuUser, ...] = bound(ListOf(Of(GpuUser), 4096), ())


class Profiling(Definition):
    """Who may look into processes: ``kernel.yama.ptrace_scope``, ``kernel.perf_event_paranoid``.

    :param gpu_counters: NVIDIA's driver lets everybody read the counters of GPUs; None: not known
    """

    ptrace_scope: Optional[int] = maybe(Whole(-8, 8))
    perf_event_paranoid: Optional[int] = maybe(Whole(-8, 8))
    gpu_counters: Optional[bool] = maybe(gate.FLAG)


class Session(Definition):
    """What becomes of a user's processes after the last logout.

    :param kills: logind ends them (KillUserProcesses)
    :param lingers: not those of this user
    """

    kills: bool = bound(gate.FLAG, False)
    lingers: bool = bound(gate.FLAG, False)


class Holder(Definition):
    """Who listens on a port.

    :param pid: 0: somebody else's process
    """

    port: int = bound(Whole(1, 65535))
    pid: int = bound(gate.PID, 0)
    name: str = bound(_NAME, "")


class Lock(Definition):
    """A lock file of a build: who finds it waits for ever if nobody removes it."""

    path: str = bound(_PLACE)
    age_s: float = bound(gate.SECONDS)


class Leftover(Definition):
    """A piece of shared memory that no process of this user has mapped."""

    name: str = bound(gate.FILE_NAME)
    bytes: int = bound(gate.SIZE)


class Leftovers(Definition):
    """What earlier jobs of this user left behind."""

    locks: Tuple[Lock, ...] = bound(ListOf(Of(Lock), 100), ())
    memory: Tuple[Leftover, ...] = bound(ListOf(Of(Leftover), 100), ())


class CheckupAnswer(Definition):
    """what was asked for; `silent`: what gave no answer in time, and why"""

    system: Optional[System] = maybe(Of(System))
    limits: Optional[Limits] = maybe(Of(Limits))
    disks: Optional[Tuple[Disk, ...]] = maybe(ListOf(Of(Disk), 16))
    network: Optional[Network] = maybe(Of(Network))
    driver: Optional[str] = maybe(_NAME)
    gpus: Optional[Tuple[Gpu, ...]] = maybe(ListOf(Of(Gpu), 512))
    profiling: Optional[Profiling] = maybe(Of(Profiling))
    session: Optional[Session] = maybe(Of(Session))
    port: Optional[Tuple[Holder, ...]] = maybe(ListOf(Of(Holder), 1))
    leftovers: Optional[Leftovers] = maybe(Of(Leftovers))
    login: Optional[Dict[str, str]] = maybe(MapOf(gate.WORD, _PLACE, 100))
    code: Optional[Dict[str, str]] = maybe(MapOf(_NAME, gate.WORD, 1000))
    names: Optional[Dict[str, Tuple[str, ...]]] = maybe(MapOf(_NAME, ADDRESSES, PEERS))
    silent: Dict[str, str] = bound(MapOf(_NAME, gate.SENTENCE, 100), {})


class MeetItem(Definition):
    """the port on which it listens"""

    port: int = bound(Whole(1, 65535))


class ReachAnswer(Definition):
    """why it cannot be reached, or from which of the node's addresses and interfaces it is"""

    error: str = bound(gate.SENTENCE, "")
    source: str = bound(_NAME, "")
    interface: str = bound(_NAME, "")
