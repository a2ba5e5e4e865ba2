"""What is wrong with a machine by itself: GPUs, disks, memory, limits, clocks, leftovers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from statistics import median

from cockpit.base.checkup_answers import Disk
from cockpit.base.shell import quote
from cockpit.core.doctor.fault_rules import Fault, FaultRules
from cockpit.core.doctor.node_checks import PARTS, Look, Looks, clean, in_hostfile_order
from cockpit.core.finding import Step
from cockpit.core.ranks import nodes_text
from cockpit.core.text import counted, size

LOW_BYTES, SCARCE_BYTES = 1_000_000_000, 50_000_000_000
"""Room that is little, and that is little if others have ten times as much."""
SHM_BYTES = 1_000_000_000
"""Docker gives 64 MB of /dev/shm by default; NCCL and data loaders need more."""
CLOCK_S = 1.0
MEMORY_FREE = 0.1
LOCK_S = 600.0
LOCKED_BYTES = 64 << 20
LEFT_BYTES = 64 << 20
FEW = 1024
_PLAIN = re.compile(r"/[A-Za-z0-9/._+,:@%=-]{1,300}")
"""A path that may be in a command as it is."""
NETWORK_TYPES = frozenset({"nfs", "nfs4", "lustre", "cifs", "beegfs", "gpfs", "ceph", "9p", "fuse.sshfs"})

FAULTS = FaultRules()


@FAULTS.rule_of_each("gpu_lost", severity="error")
def _gpu_lost(look: Look) -> Iterator[str]:
    """The driver is there, and no GPU is."""
    if look.condition.driver and look.condition.gpus == ():
        yield f"driver {clean(look.condition.driver)} is loaded, but it shows no GPU"


@FAULTS.rule_of_each("gpu_errors", severity="error")
def _gpu_errors(look: Look) -> Iterator[str]:
    """Memory that ECC cannot mend."""
    for gpu in look.condition.gpus or ():
        if gpu.errors:
            yield f"GPU {gpu.index}: {counted(gpu.errors, 'uncorrected memory error')}"


@FAULTS.rule_of_each("gpu_slow")
def _gpu_slow(look: Look) -> Iterator[str]:
    """A GPU protects itself."""
    for gpu in look.condition.gpus or ():
        if gpu.slowed:
            yield f"GPU {gpu.index} is slowed down: {', '.join(map(clean, gpu.slowed))}"


@FAULTS.rule_of_each("stuck")
def _stuck(look: Look) -> Iterator[str]:
    """Processes in a system call that does not end."""
    for process in look.ranks.stuck if look.ranks else ():
        yield f"{clean(process.name)} (pid {process.pid}, state {clean(process.state)}) does not respond"


_BY_HAND = Step("try it there by hand", "a file server or driver may be down")


@FAULTS.rule("no_answer")
def _no_answer(looks: Looks) -> Iterator[Fault]:
    """A check that came to no end; names of hosts that did so are one, whichever they are on each node."""
    unresolved: dict[str, dict[str, list[str]]] = {}
    for node, look in looks.answered.items():
        for part, why in look.condition.silent.items():
            if part in looks.nodes or part == looks.address:
                unresolved.setdefault(why, {}).setdefault(node, []).append(part)
            else:
                yield Fault(node, f"{clean(PARTS.get(part, part))}: {clean(why)}", steps=(_BY_HAND,))
    for why, by_node in unresolved.items():
        some = set().union(*by_node.values())
        names = [*in_hostfile_order(some, looks), *sorted(some - looks.nodes.keys())]
        some_of = "some of " if any(len(lacking) < len(names) for lacking in by_node.values()) else ""
        what = f"did not resolve {some_of}{nodes_text(names)}: {clean(why)} (getaddrinfo)"
        node, lacking = next(iter(by_node.items()))
        step = Step(f"getent hosts {quote(clean(lacking[0]))}", "a name server may be slow or down", node)
        yield from (Fault(node, what, about="names", steps=(step,)) for node in by_node)


@FAULTS.rule("disk_low")
def _disk_low(looks: Looks) -> Iterator[Fault]:
    """Little room, or far less than elsewhere."""
    disks = [
        (node, disk)
        for node, look in looks.answered.items()
        for disk in look.condition.disks or ()
        # That no run folder can be made is what keeps a launch from working.
        if disk.role != "/dev/shm" and not (disk.role == "run folders" and look.facts and look.facts.folder)
    ]
    for node, disk in disks:
        if disk.role == "/tmp" and _has_runs(looks.nodes[node], disk):
            continue
        usual = median(each.free_bytes for _, each in disks if each.role == disk.role)
        if disk.free_bytes < LOW_BYTES:
            what = f"{size(disk.free_bytes)} free"
        elif disk.inodes_free < disk.inodes // 100:
            what = f"{disk.inodes_free:,} inodes free"
        elif disk.free_bytes < min(SCARCE_BYTES, usual / 10):
            what = f"{size(disk.free_bytes)} free, others {size(usual)}"
        else:
            continue
        folder = disk.path if _PLAIN.fullmatch(disk.path) else "FOLDER"
        yield Fault(node, f"{_place(disk)}: {what}", (("FOLDER", folder),), node)


def _place(disk: Disk) -> str:
    return disk.role if disk.role.startswith("/") else f"{disk.role} ({clean(disk.path)})"


def _has_runs(look: Look, disk: Disk) -> bool:
    """Whether run folders are on this disk too, so that it is reported for them."""
    runs = (each for each in look.condition.disks or () if each.role == "run folders")
    return any((each.total_bytes, each.free_bytes) == (disk.total_bytes, disk.free_bytes) for each in runs)


@FAULTS.rule_of_each("shm_small")
def _shm_small(look: Look) -> Iterator[str]:
    """A container's default, or full."""
    for disk in look.condition.disks or ():
        if disk.role == "/dev/shm" and disk.free_bytes < SHM_BYTES:
            yield f"/dev/shm: {size(disk.free_bytes)} free of {size(disk.total_bytes)}"


@FAULTS.rule_of_each("run_folders_remote")
def _run_folders_remote(look: Look) -> Iterator[str]:
    """Logs would be written over the network."""
    for disk in look.condition.disks or ():
        if disk.role == "run folders" and disk.type in NETWORK_TYPES:
            yield f"{_place(disk)} are on {disk.type}"


@FAULTS.rule_of_each("memory_low")
def _memory_low(look: Look) -> Iterator[str]:
    """Most of the memory is taken before anything starts."""
    system = look.condition.system
    if system is None or system.memory_bytes is None or system.memory_free_bytes is None:
        return
    if system.memory_free_bytes < MEMORY_FREE * system.memory_bytes:
        yield f"{size(system.memory_free_bytes)} of {size(system.memory_bytes)} memory free"


@FAULTS.rule_of_each("locked_memory")
def _locked_memory(look: Look) -> Iterator[str]:
    """InfiniBand registers the memory that it sends from."""
    limits, network = look.condition.limits, look.condition.network
    if limits and network and network.rdma and (limits.locked_bytes or LOCKED_BYTES) < LOCKED_BYTES:
        yield f"ulimit -l is {size(limits.locked_bytes or 0)}: InfiniBand cannot register memory"


@FAULTS.rule("limits_low")
def _limits_low(looks: Looks) -> Iterator[Fault]:
    """Too few files or processes for any training."""
    for node, look in looks.answered.items():
        limits = look.condition.limits
        if limits and (limits.open_files or FEW) < FEW:
            yield Fault(node, f"ulimit -n is {limits.open_files}: data loaders need more", about="files")
        if limits and (limits.processes or FEW) < FEW:
            what = f"ulimit -u is {limits.processes}: each rank has dozens of threads"
            yield Fault(node, what, about="processes")


@FAULTS.rule_of_each("no_stacks")
def _no_stacks(look: Look) -> Iterator[str]:
    """The kernel forbids what stacks need."""
    profiling = look.condition.profiling
    if profiling and (profiling.ptrace_scope or 0) >= 2:
        yield f"kernel.yama.ptrace_scope = {profiling.ptrace_scope}: no stacks can be taken"


@FAULTS.rule("no_gpu_counters", severity="info")
def _no_gpu_counters(looks: Looks) -> Iterator[Fault]:
    """NVIDIA's driver keeps counters from users, by default: said where a profiler is to run."""
    for node, look in looks.answered.items() if looks.profiled else ():
        profiling = look.condition.profiling
        if profiling and profiling.gpu_counters is False and look.uid != 0:
            yield Fault(node, "GPU performance counters are for root alone (ERR_NVGPUCTRPERM)")


@FAULTS.rule("killed_at_logout")
def _killed_at_logout(looks: Looks) -> Iterator[Fault]:
    """logind ends what a user started."""
    for node, look in looks.answered.items() if not looks.scheduler else ():
        session = look.condition.session
        if session and session.kills and not session.lingers:
            yield Fault(
                node, "kills processes at logout (KillUserProcesses): runs end with your last session"
            )


@FAULTS.rule("clock")
def _clock(looks: Looks) -> Iterator[Fault]:
    """A clock is off, against most nodes; or theirs against this machine's."""
    offsets = {node: look.offset_s for node, look in looks.answered.items() if look.offset_s is not None}
    usual = median(offsets.values()) if offsets else 0.0
    for node, offset in offsets.items():
        if abs(offset - usual) > CLOCK_S + looks.nodes[node].rtt_s:
            yield Fault(node, f"its clock is {_seconds(offset - usual)} the others")
    if abs(usual) > CLOCK_S + max(look.rtt_s for look in looks.nodes.values()):
        for node, offset in offsets.items():
            if abs(offset - usual) <= CLOCK_S:
                yield Fault(node, f"the clock there is {_seconds(usual, step=1)} this machine's")


def _seconds(off: float, step: float = 0.1) -> str:
    amount = f"{abs(off):.0f}" if abs(off) >= 10 or step == 1 else f"{abs(off):.1f}"
    return f"{amount} s {'ahead of' if off > 0 else 'behind'}"


@FAULTS.rule("stale_lock")
def _stale_lock(looks: Looks) -> Iterator[Fault]:
    """A build of extensions was killed."""
    locks = [
        (node, lock)
        for node, look in looks.answered.items()
        for lock in (look.condition.leftovers.locks if look.condition.leftovers else ())
        if lock.age_s > LOCK_S
    ]
    places = Counter(lock.path for _, lock in locks)
    for node, lock in locks:
        what = f"a build lock is {lock.age_s / 3600:.1f} h old: {clean(lock.path)}"
        where = node if places[lock.path] == 1 else ""  # else in a home that they share
        yield Fault(node, what, _file(lock.path), where)


@FAULTS.rule("leftover_memory")
def _leftover_memory(looks: Looks) -> Iterator[Fault]:
    """Shared memory without a process."""
    for node, look in looks.answered.items():
        pieces = look.condition.leftovers.memory if look.condition.leftovers else ()
        total = sum(piece.bytes for piece in pieces)
        if total >= LEFT_BYTES:
            more = f" and {len(pieces) - 1} more" if len(pieces) > 1 else ""
            what = f"{size(total)} of unused shared memory: /dev/shm/{clean(pieces[0].name)}{more}"
            yield Fault(node, what, _file(f"/dev/shm/{pieces[0].name}"), node)


def _file(path: str) -> tuple[tuple[str, str]]:
    """What to type for a file; one with an odd name is not put into a command."""
    return (("FILE", path if _PLAIN.fullmatch(path) else "FILE"),)


@FAULTS.rule("login_only")
def _login_only(looks: Looks) -> Iterator[Fault]:
    """Programs that ranks will not find."""
    for node, look in looks.answered.items():
        have = look.facts.tools if look.facts else {}
        lacking = sorted(name for name in look.condition.login or {} if name.islower() and name not in have)
        if lacking:
            what = f"{', '.join(map(clean, lacking))} on PATH in login shells only, not for ranks"
            yield Fault(node, what, about="ninja" if lacking == ["ninja"] else "")
