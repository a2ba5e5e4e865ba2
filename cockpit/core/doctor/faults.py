"""What is wrong with a node by itself, whatever the others are like."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from cockpit.base.answers import FoundRank
from cockpit.base.checkup_answers import Disk
from cockpit.base.shell import quote
from cockpit.core.doctor.differences import COUNTERS
from cockpit.core.doctor.looks import PARTS, Look, Looks, clean, in_hostfile_order
from cockpit.core.finding import Finding, Rule, Step
from cockpit.core.ranks import nodes_text, ranks_named, set_words
from cockpit.core.text import counted, size

LOW_BYTES, SCARCE_BYTES = 1_000_000_000, 50_000_000_000
"""Room that is little, and that is little if others have ten times as much."""
SHM_BYTES = 1_000_000_000
"""Docker gives 64 MB of /dev/shm by default; NCCL and data loaders need more."""
GPU_BUSY = 0.05
"""The part of a GPU's memory that a driver or a monitor may have."""
CLOCK_S = 1.0
MEMORY_FREE = 0.1
LOCK_S = 600.0
LOCKED_BYTES = 64 << 20
LEFT_BYTES = 64 << 20
FEW = 1024
LONG = 400
"""Characters of an error's sentence."""
_PLAIN = re.compile(r"/[A-Za-z0-9/._+,:@%=-]{1,300}")
"""A path that may be in a command as it is."""
NETWORK_TYPES = frozenset({"nfs", "nfs4", "lustre", "cifs", "beegfs", "gpfs", "ceph", "9p", "fuse.sshfs"})


class Told(NamedTuple):
    """What is wrong on one node, in words, and steps against just that."""

    node: str
    what: str
    steps: tuple[Step, ...] = ()


FAULTS: list[Rule] = []
"""The rules of what is wrong: what keeps a launch from working comes first."""


def _fault(
    id: str, *steps: Step, source: str = "", severity: str = "warning", detail: str = "", apart: bool = False
) -> Callable[[Callable[[Looks], Iterable[Told]]], None]:
    """Makes a rule of a function that tells what is wrong on which nodes.

    :param apart: words that differ in more than numbers and the node's name are of another cause
    """

    def made(tell: Callable[[Looks], Iterable[Told]]) -> None:
        def test(looks: Looks) -> list[Finding]:
            causes: dict[str, list[Told]] = {}
            for one in dict.fromkeys(tell(looks)):
                causes.setdefault(_shape(one) if apart else "", []).append(one)
            return [_found(looks, id, told, steps, severity, detail) for told in causes.values()]

        FAULTS.append(Rule(id, ("looks",), test, source))

    return made


def _on_each(
    id: str, *steps: Step, source: str = "", severity: str = "warning", detail: str = ""
) -> Callable[[Callable[[Look], Iterable[str]]], None]:
    """The same of a function that tells what is wrong with one node."""

    def made(tell: Callable[[Look], Iterable[str]]) -> None:
        def told(looks: Looks) -> Iterator[Told]:
            for node, look in looks.answered.items():
                yield from (Told(node, what) for what in tell(look))

        _fault(id, *steps, source=source, severity=severity, detail=detail)(told)

    return made


def _shape(one: Told) -> str:
    return re.sub(r"[0-9]+", "0", one.what.replace(one.node, "NODE"))


def _found(
    looks: Looks, id: str, told: list[Told], steps: tuple[Step, ...], severity: str, detail: str
) -> Finding:
    """One finding on all nodes that something is wrong with; the same words are said once.

    If they differ from node to node, the sentence has the first, and the evidence all of them.
    """
    words: dict[str, list[str]] = {}
    for one in told:
        words.setdefault(one.what, []).append(one.node)
    first, *more = words
    nodes = in_hostfile_order((one.node for one in told), looks)
    some = tuple(dict.fromkeys(step for one in told[:3] for step in one.steps))
    if len(nodes) < len(looks.nodes):
        steps = tuple(replace(step, command=_without(step.command, nodes)) for step in steps)
    return Finding(
        id,
        f"{first} ({nodes_text(words[first])}; {len(more)} more like it)" if more else first,
        nodes=nodes,
        severity=severity,
        certainty="sure",
        detail=detail,
        evidence=tuple(f"{nodes_text(nodes)}: {what}" for what, nodes in words.items()) if more else (),
        steps=(*some, *steps),
    )


def _without(command: str, nodes: tuple[str, ...]) -> str:
    return command.replace("--exclude NODES", f"--exclude {quote(','.join(set_words(nodes_text(nodes))))}")


# What keeps a launch from working


@_fault("unreachable", source="failure catalogue P02, P03, L03 to L11", severity="error", apart=True)
def _unreachable(looks: Looks) -> Iterator[Told]:
    """No link: ssh, its keys, the agent's python."""
    for node, look in looks.nodes.items():
        if not look.machine:
            yield from _errors(node, look)


@_fault("refused", source="DeepSpeedExamples#889", severity="error", apart=True)
def _refused(looks: Looks) -> Iterator[Told]:
    """Facts that a node refused: no such folder, no such python, a setup that fails."""
    for node, look in looks.answered.items():
        yield from _errors(node, look)


def _errors(node: str, look: Look) -> Iterator[Told]:
    for error in look.errors:
        step = Step(clean(error.hint, LONG)) if error.hint else Step("--timeout 60", "if it is only slow")
        place = f"{error.where}: " if error.where not in ("", node) else ""  # a jump host
        yield Told(node, clean(f"{place}{error.what}", LONG), (step,))


@_fault(
    "unreached",
    Step("--master-addr ADDRESS", "another address of that node; or open the firewall between the nodes"),
    source="DeepSpeed#2973, pytorch#79388",
    severity="error",
)
def _unreached(looks: Looks) -> Iterator[Told]:
    """A TCP connection to the first node cannot be made: ranks could not meet."""
    first = next(iter(looks.nodes))
    for node, look in looks.answered.items():
        if look.reached is not None and look.reached.error:
            there = (looks.address, *(look.condition.names or {}).get(looks.address, ()))
            address = next(filter(_is_address, there), looks.address)
            what = f"cannot connect to {first} at {clean(address)}: {clean(look.reached.error)}"
            if _is_address(address):
                step = Step(f"ip route get {address}", "is there a route?", node)
            else:
                step = Step(f"getent hosts {quote(address)}", "is it known there?", node)
            yield Told(node, what, (step,))


@_fault(
    "no_interface",
    Step("--env NCCL_SOCKET_IFNAME=A,B", "names of the interface on all nodes, or unset it"),
    source="nccl#210, nccl#286, horovod#700",
    severity="error",
)
def _no_interface(looks: Looks) -> Iterator[Told]:
    """An interface was chosen by name that a node does not have."""
    chosen = {name: value for name, value in looks.env.items() if name.endswith("_SOCKET_IFNAME") and value}
    for node, look in looks.answered.items():
        network = look.condition.network
        names = [each.name for each in network.interfaces] if network else []
        for variable, value in chosen.items() if network else ():
            if any(_matches(value, name) for name in names):
                continue
            if value[0] != "^" and _matches(value, LOOPBACK):
                if looks.machines > 1:
                    yield Told(node, f"{variable}={value}: that interface leads to no other node")
                continue
            yield Told(node, f"{variable}={value} matches no interface ({', '.join(map(clean, names))})")


LOOPBACK = "lo"
"""Nodes do not list it: it leads nowhere else."""


def _matches(chosen: str, name: str) -> bool:
    """NCCL's rule: a list of prefixes; ``=`` in front: of names; ``^``: of what not to use."""
    sign, listed = (chosen[0], chosen[1:]) if chosen[0] in "^=" else ("", chosen)
    words = [word.partition(":")[0] for word in listed.split(",") if word]
    if sign == "^":
        return not any(name.startswith(word) for word in words)
    return name in words if sign == "=" else any(name.startswith(word) for word in words)


@_on_each(
    "gpu_lost",
    Step("nvidia-smi; sudo dmesg | grep -i xid", "has one fallen off the bus?"),
    Step("--exclude NODES", "train without it"),
    source="returnn#1486",
    severity="error",
)
def _gpu_lost(look: Look) -> Iterator[str]:
    """The driver is there, and no GPU is."""
    if look.condition.driver and look.condition.gpus == ():
        yield f"driver {clean(look.condition.driver)} is loaded, but it shows no GPU"


@_on_each(
    "gpu_errors",
    Step("--exclude NODES", "training on it fails"),
    Step("nvidia-smi -q -d ECC,ROW_REMAPPER", "for whoever runs the cluster: reset or replace it"),
    source="accelerate#1192",
    severity="error",
)
def _gpu_errors(look: Look) -> Iterator[str]:
    """Memory that ECC cannot mend."""
    for gpu in look.condition.gpus or ():
        if gpu.errors:
            yield f"GPU {gpu.index}: {counted(gpu.errors, 'uncorrected memory error')}"


@_fault("port_taken", Step("--master-port N", "another port"), source="torchtune#392", severity="error")
def _port_taken(looks: Looks) -> Iterator[Told]:
    """The port that was asked for is taken on the first node."""
    return _held(looks, "") if looks.port_asked else iter(())


def _held(looks: Looks, more: str) -> Iterator[Told]:
    first, look = next(iter(looks.nodes.items()))
    for holder in look.condition.port or ():
        by = f"{clean(holder.name)} (pid {holder.pid})" if holder.pid else "another user's process"
        steps = (Step(f"ps -fp {holder.pid}", "what is it?", first),) if holder.pid else ()
        yield Told(first, f"port {holder.port}{more} is held by {by}", steps)


# What somebody has to look at


@_fault(
    "port_in_use", Step("--master-port N", "by hand; cockpit run finds a free one"), source="torchtune#392"
)
def _port_in_use(looks: Looks) -> Iterator[Told]:
    """The port where ranks meet by default is taken on the first node."""
    return _held(looks, ", the default of DeepSpeed and torchrun,") if not looks.port_asked else iter(())


@_fault("not_tried", Step("--timeout 60", "wait longer for the nodes ahead of them, or leave those out"))
def _not_tried(looks: Looks) -> Iterator[Told]:
    """Nothing is known of them: others were waited for."""
    for node, look in looks.nodes.items():
        if look.untried:
            yield Told(node, "not tried: the connections ahead of them did not finish")


@_fault("leftover_ranks", source="DeepSpeed#1016")
def _leftover_ranks(looks: Looks) -> Iterator[Told]:
    """Ranks that are there already: somebody's run under way, or what is left of one."""
    there: dict[str, dict[str, list[FoundRank]]] = {}
    for node, look in looks.answered.items():
        meant = {*looks.meant(node), *looks.runs_of_own(node)}
        for rank in look.ranks.ranks if look.ranks else ():
            if rank.pid not in meant:
                there.setdefault(rank.run, {}).setdefault(node, []).append(rank)
    for run, nodes in there.items():
        for node, ranks in nodes.items():
            what = f"{ranks_named(rank.rank for rank in ranks)} of {f'run {clean(run)}' if run else 'a job'}"
            if run in looks.known:
                step = Step(
                    f"cockpit stop {quote(clean(run))}", "if it should not run; cockpit attach shows it"
                )
            elif run:
                where = quote(",".join(set_words(nodes_text(nodes))))
                way = f"-F {quote(looks.config)} " if looks.config else ""
                step = Step(f"cockpit attach {way}-w {where}", "shows it: it was not started from here")
            else:
                step = Step(f"ps -fp {ranks[0].pid}", "what is it? cockpit attach -w NODES shows it", node)
            yield Told(node, f"{what} {'runs' if len(ranks) == 1 else 'run'} there", (step,))


@_fault("own_run", severity="info", detail="They share cores, memory and network.")
def _own_run(looks: Looks) -> Iterator[Told]:
    """Another run that this machine knows."""
    for node, look in looks.answered.items():
        runs = looks.runs_of_own(node)
        found = look.ranks.ranks if look.ranks else ()
        for run in dict.fromkeys(runs.values()):
            ranks = [rank.rank for rank in found if runs.get(rank.pid) == run]
            verb = "runs" if len(ranks) == 1 else "run"
            step = Step(f"cockpit attach {quote(clean(run))}", "shows it")
            yield Told(node, f"{ranks_named(ranks)} of your run {clean(run)} {verb} there too", (step,))


@_on_each("others_job", Step("--exclude NODES", "or ask them: GPUs, memory and ports are shared"))
def _others_job(look: Look) -> Iterator[str]:
    """Somebody else trains there."""
    for job in look.ranks.others if look.ranks else ():
        yield f"{clean(job.user)} runs a job there: {clean(job.command)}"


@_fault(
    "gpu_busy",
    Step("nvidia-smi", "whose is it? if it is left over from a dead run: kill PID"),
    Step("--exclude NODES", "train without it"),
    source="DeepSpeed#1016, EgoVerse#682",
)
def _gpu_busy(looks: Looks) -> Iterator[Told]:
    """Memory of a GPU is taken, and not by the run that is meant to be there alone."""
    for node, look in looks.answered.items():
        yield from (Told(node, text) for text in _taken(looks, node, look))


def _taken(looks: Looks, node: str, look: Look) -> Iterator[str]:
    meant, own = looks.meant(node), looks.runs_of_own(node)
    for gpu in look.condition.gpus or ():
        used, total = gpu.memory_bytes or 0, gpu.memory_total_bytes or 0
        pids = {user.pid for user in gpu.users}
        if meant & pids:
            for run in dict.fromkeys(own[pid] for pid in sorted(pids & own.keys())):
                yield f"GPU {gpu.index} is used by your run {clean(run)} as well"
        elif pids and pids <= own.keys() and gpu.index not in looks.slots.get(node, {gpu.index}):
            continue  # another run of one's own, on GPUs that this one does not take
        elif total and used >= GPU_BUSY * total:
            users = [
                f"{clean(user.name or '?')} (pid {user.pid}, {clean(user.user or '?')})" for user in gpu.users
            ]
            by = ", ".join(users[:3]) or "processes that are not visible there"
            yield f"GPU {gpu.index}: {size(used)} of {size(total)} held by {by}"


@_on_each("gpu_slow", Step("nvidia-smi -q -d PERFORMANCE,TEMPERATURE", "cooling? power?"))
def _gpu_slow(look: Look) -> Iterator[str]:
    """A GPU protects itself."""
    for gpu in look.condition.gpus or ():
        if gpu.slowed:
            yield f"GPU {gpu.index} is slowed down: {', '.join(map(clean, gpu.slowed))}"


@_on_each(
    "stuck",
    Step("sudo dmesg | tail", "a file server or a driver does not answer: it may take a reboot"),
    source="DeepSpeed#4003",
)
def _stuck(look: Look) -> Iterator[str]:
    """Processes in a system call that does not end."""
    for process in look.ranks.stuck if look.ranks else ():
        yield f"{clean(process.name)} (pid {process.pid}, state {clean(process.state)}) does not respond"


@_on_each("no_answer", Step("try it there by hand", "a file server, name server or driver may be down"))
def _no_answer(look: Look) -> Iterator[str]:
    """A check that came to no end."""
    for part, why in look.condition.silent.items():
        yield f"{clean(PARTS.get(part, part))}: {clean(why)}"


@_fault("name_unknown", source="volcano#2952, CPM-2-Finetune#42")
def _name_unknown(looks: Looks) -> Iterator[Told]:
    """Names that some nodes know and others do not; one that no node knows is an alias of ssh's here."""
    known = {node: look.condition.names for node, look in looks.answered.items() if look.condition.names}
    aliases = {
        peer
        for names in known.values()
        for peer in names
        if not any(each.get(peer) for each in known.values())
    }
    for node, names in known.items():
        lacking = [peer for peer, addresses in names.items() if not addresses and peer not in aliases]
        if lacking:
            yield Told(node, f"cannot resolve {nodes_text(lacking)}", (_lookup(node, lacking[0], _UNKNOWN),))


@_fault(
    "name_loopback",
    Step("--env GLOO_SOCKET_IFNAME=eth0", "until then: the interface that leads to the other nodes"),
    source="DeepSpeed#2612",
)
def _name_loopback(looks: Looks) -> Iterator[Told]:
    """A name that leads a node back to itself: another node's, or its own if it has another one here."""
    for node, look in looks.answered.items() if looks.machines > 1 else ():
        for name, addresses in (look.condition.names or {}).items():
            meant = looks.nodes.get(name)
            elsewhere = meant is None or meant.machine != look.machine
            if addresses and elsewhere and all(map(_is_loopback, addresses)):
                what = f"resolves {clean(name)} to {addresses[0]}"
                yield Told(node, what, (_lookup(node, name, _ITSELF),))


@_fault("same_machine", source="names of one node in a hostfile: short and full, host and address")
def _same_machine(looks: Looks) -> Iterator[Told]:
    """Several names of one machine, before a launch takes it for several."""
    names: dict[str, list[str]] = {}
    for node, look in looks.answered.items():
        # Names are asked for by a doctor only, not before each run.
        if look.condition.names is not None and not (looks.run or looks.pids):
            names.setdefault(look.machine, []).append(node)
    for several in names.values():
        more = quote(",".join(set_words(nodes_text(several[1:])))) if several[1:] else ""
        step = Step(f"--exclude {more}", "their ranks would share its GPUs, cores and memory")
        for node in several if more else ():
            yield Told(node, f"{nodes_text(several)} are the same machine", (step,))


@_fault("name_differs", source="failure catalogue P01")
def _name_differs(looks: Looks) -> Iterator[Told]:
    """A name that leads some nodes elsewhere: a hosts file that is out of date."""
    owner = {address: node for node, look in looks.answered.items() for address in _addresses(look)}
    for name in dict.fromkeys(
        name for look in looks.answered.values() for name in look.condition.names or {}
    ):
        meant = looks.nodes.get(name)
        known = {node: found for node in looks.answered if (found := _elsewhere(looks, node, name))}
        usual, many = max(Counter(known.values()).items(), key=lambda each: each[1], default=(NOWHERE, 0))
        agreed = many > 1 and many > len(known) / 2
        for node, there in known.items():
            first, right = min(there), _addresses(meant) if meant else NOWHERE
            if there & right:
                continue
            if agreed and not there & usual:
                what = f"resolves {clean(name)} to {first}, others to {min(usual)}"
            elif right and first in owner:
                what = f"resolves {clean(name)} to {first}, which is {owner[first]}"
            else:
                continue
            yield Told(node, what, (_lookup(node, name, _ELSEWHERE),))


_UNKNOWN = "add it to /etc/hosts there; or give an address: --master-addr ADDRESS"
_ITSELF = "correct /etc/hosts there: ranks that use that name would connect to themselves"
_ELSEWHERE = "is /etc/hosts there out of date?"


def _lookup(node: str, name: str, reason: str) -> Step:
    return Step(f"getent hosts {quote(clean(name))}", reason, node)


NOWHERE: frozenset[str] = frozenset()
"""No address."""


def _elsewhere(looks: Looks, node: str, name: str) -> frozenset[str]:
    """Where a node finds another machine's name, loopback apart: that is another finding."""
    meant = looks.nodes.get(name)
    if meant is not None and meant.machine == looks.nodes[node].machine:
        return NOWHERE
    found = (looks.nodes[node].condition.names or {}).get(name, ())
    return frozenset(address for address in found if not _is_loopback(address))


def _addresses(look: Look) -> frozenset[str]:
    network = look.condition.network
    return (
        frozenset(address for each in network.interfaces for address in each.addresses)
        if network
        else NOWHERE
    )


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True


@_fault("disk_low", Step("du -xsh DIR/* | sort -h", "what uses it up?"), source="Megatron-LM#878")
def _disk_low(looks: Looks) -> Iterator[Told]:
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
            yield Told(node, f"{_place(disk)}: {size(disk.free_bytes)} free")
        elif disk.inodes_free < disk.inodes // 100:
            yield Told(node, f"{_place(disk)}: {disk.inodes_free:,} inodes free")
        elif disk.free_bytes < min(SCARCE_BYTES, usual / 10):
            yield Told(node, f"{_place(disk)}: {size(disk.free_bytes)} free, others {size(usual)}")


def _place(disk: Disk) -> str:
    return disk.role if disk.role.startswith("/") else f"{disk.role} ({clean(disk.path)})"


def _has_runs(look: Look, disk: Disk) -> bool:
    """Whether run folders are on this disk too, so that it is reported for them."""
    runs = (each for each in look.condition.disks or () if each.role == "run folders")
    return any((each.total_bytes, each.free_bytes) == (disk.total_bytes, disk.free_bytes) for each in runs)


@_on_each(
    "shm_small",
    Step("docker run --shm-size=16g", "in a container; else: mount -o remount,size=16G /dev/shm"),
    Step("ls -l /dev/shm", "what did killed runs leave there?"),
    source="nccl#290, nccl#525",
    detail="NCCL and data loaders share memory there.",
)
def _shm_small(look: Look) -> Iterator[str]:
    """A container's default, or full."""
    for disk in look.condition.disks or ():
        if disk.role == "/dev/shm" and disk.free_bytes < SHM_BYTES:
            yield f"/dev/shm: {size(disk.free_bytes)} free of {size(disk.total_bytes)}"


@_on_each("run_folders_remote", Step("--node-dir DIR", "a folder on a local disk"), source="DeepSpeed#5205")
def _run_folders_remote(look: Look) -> Iterator[str]:
    """Logs would be written over the network."""
    for disk in look.condition.disks or ():
        if disk.role == "run folders" and disk.type in NETWORK_TYPES:
            yield f"{_place(disk)} are on {disk.type}"


@_on_each("memory_low", Step("ps aux --sort=-rss | head", "what uses it?"), source="DeepSpeed#4239")
def _memory_low(look: Look) -> Iterator[str]:
    """Most of the memory is taken before anything starts."""
    system = look.condition.system
    if system is None or system.memory_bytes is None or system.memory_free_bytes is None:
        return
    if system.memory_free_bytes < MEMORY_FREE * system.memory_bytes:
        yield f"{size(system.memory_free_bytes)} of {size(system.memory_bytes)} memory free"


@_on_each(
    "locked_memory",
    Step("memlock unlimited in /etc/security/limits.conf", "in SLURM: PropagateResourceLimitsExcept"),
    source="nccl-tests#206, ucx#8684",
)
def _locked_memory(look: Look) -> Iterator[str]:
    """InfiniBand registers the memory that it sends from."""
    limits, network = look.condition.limits, look.condition.network
    if limits and network and network.rdma and (limits.locked_bytes or LOCKED_BYTES) < LOCKED_BYTES:
        yield f"ulimit -l is {size(limits.locked_bytes or 0)}: InfiniBand cannot register memory"


@_on_each("limits_low", Step("--setup 'ulimit -n 65536'", "or /etc/security/limits.conf"))
def _limits_low(look: Look) -> Iterator[str]:
    """Too few files or processes for any training."""
    limits = look.condition.limits
    if limits and (limits.open_files or FEW) < FEW:
        yield f"ulimit -n is {limits.open_files}: data loaders need more"
    if limits and (limits.processes or FEW) < FEW:
        yield f"ulimit -u is {limits.processes}: each rank has dozens of threads"


@_on_each("no_stacks", Step("sudo sysctl -w kernel.yama.ptrace_scope=1"))
def _no_stacks(look: Look) -> Iterator[str]:
    """The kernel forbids what stacks need."""
    profiling = look.condition.profiling
    if profiling and (profiling.ptrace_scope or 0) >= 2:
        yield f"kernel.yama.ptrace_scope = {profiling.ptrace_scope}: no stacks can be taken"


@_fault(
    "no_gpu_counters",
    COUNTERS,
    source="failure catalogue P13",
    severity="info",
    detail="nsys traces CUDA as usual; with --gpu-metrics-devices it fails, and so does ncu.",
)
def _no_gpu_counters(looks: Looks) -> Iterator[Told]:
    """NVIDIA's driver keeps counters from users, by default: said where a profiler is to run."""
    for node, look in looks.answered.items() if looks.profiled else ():
        profiling = look.condition.profiling
        if profiling and profiling.gpu_counters is False and look.uid != 0:
            yield Told(node, "GPU performance counters are for root alone (ERR_NVGPUCTRPERM)")


@_fault(
    "killed_at_logout",
    Step("sudo loginctl enable-linger USER", "or run under SLURM"),
    source="systemd#8486, ltsp/community#92",
)
def _killed_at_logout(looks: Looks) -> Iterator[Told]:
    """logind ends what a user started."""
    for node, look in looks.answered.items() if not looks.scheduler else ():
        session = look.condition.session
        if session and session.kills and not session.lingers:
            yield Told(node, "kills processes at logout (KillUserProcesses): runs end with your last session")


@_fault("clock", Step("timedatectl; chronyc tracking", "fix NTP; cockpit corrects the times that it shows"))
def _clock(looks: Looks) -> Iterator[Told]:
    """A clock is off, against most nodes; or theirs against this machine's."""
    offsets = {node: look.offset_s for node, look in looks.answered.items() if look.offset_s is not None}
    usual = median(offsets.values()) if offsets else 0.0
    for node, offset in offsets.items():
        if abs(offset - usual) > CLOCK_S + looks.nodes[node].rtt_s:
            yield Told(node, f"its clock is {_seconds(offset - usual)} the others")
    if abs(usual) > CLOCK_S + max(look.rtt_s for look in looks.nodes.values()):
        for node, offset in offsets.items():
            if abs(offset - usual) <= CLOCK_S:
                yield Told(node, f"the clock there is {_seconds(usual, step=1)} this machine's")


def _seconds(off: float, step: float = 0.1) -> str:
    amount = f"{abs(off):.0f}" if abs(off) >= 10 or step == 1 else f"{abs(off):.1f}"
    return f"{amount} s {'ahead of' if off > 0 else 'behind'}"


@_fault("stale_lock", source="transformers#26015")
def _stale_lock(looks: Looks) -> Iterator[Told]:
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
        yield Told(
            node, what, (_removal(where, lock.path, "if no build is running: ranks wait for it forever"),)
        )


@_fault("leftover_memory", source="nccl#525, nccl#342")
def _leftover_memory(looks: Looks) -> Iterator[Told]:
    """Shared memory without a process."""
    for node, look in looks.answered.items():
        pieces = look.condition.leftovers.memory if look.condition.leftovers else ()
        total = sum(piece.bytes for piece in pieces)
        if total >= LEFT_BYTES:
            more = f" and {len(pieces) - 1} more" if len(pieces) > 1 else ""
            what = f"{size(total)} of unused shared memory: /dev/shm/{clean(pieces[0].name)}{more}"
            yield Told(node, what, (_removal(node, f"/dev/shm/{pieces[0].name}", "killed ranks left it"),))


def _removal(node: str, path: str, reason: str) -> Step:
    """How to remove a file; one with an odd name is not put into a command."""
    return Step(f"rm {path}" if _PLAIN.fullmatch(path) else "rm FILE", reason, node)


@_on_each(
    "login_only",
    Step("--setup 'module load …'", "what a login shell sets, for the ranks too"),
    source="DeepSpeed#1687, DeepSpeed#1644",
)
def _login_only(look: Look) -> Iterator[str]:
    """Programs that ranks will not find."""
    have = look.facts.tools if look.facts else {}
    lacking = sorted(name for name in look.condition.login or {} if name.islower() and name not in have)
    if lacking:
        yield f"{', '.join(map(clean, lacking))} on PATH in login shells only, not for ranks"
