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
from cockpit.core.doctor.looks import PARTS, Look, Looks, clean, in_hostfile_order
from cockpit.core.finding import Finding, Rule, Step
from cockpit.core.ranks import nodes_text, ranks_named, set_words
from cockpit.core.rules.explanation import recognised
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
    """What is wrong on one node, in words.

    :param values: what to type for which words of the rule's steps; nothing: a step with it is of no use
    :param place: where those steps are typed; empty: here
    :param about: which of several things it is, for rules
    :param steps: against just that, where no rule has any
    """

    node: str
    what: str
    values: tuple[tuple[str, str], ...] = ()
    place: str = ""
    about: str = ""
    steps: tuple[Step, ...] = ()


FAULTS: list[Rule] = []
"""The rules of what is wrong: what keeps a launch from working comes first."""


def _fault(
    id: str, *steps: Step, source: str = "", severity: str = "warning", apart: bool = False
) -> Callable[[Callable[[Looks], Iterable[Told]]], None]:
    """Makes a rule of a function that tells what is wrong on which nodes.

    :param steps: against it, where no row of the table knows it: meaning and steps are that row's
    :param apart: words that differ in more than numbers and the node's name are of another cause
    """

    def made(tell: Callable[[Looks], Iterable[Told]]) -> None:
        def test(looks: Looks) -> list[Finding]:
            causes: dict[tuple[str, str], list[Told]] = {}
            for one in dict.fromkeys(tell(looks)):
                causes.setdefault((one.about, _shape(one) if apart else ""), []).append(one)
            return [_found(looks, id, told, steps, severity) for told in causes.values()]

        FAULTS.append(Rule(id, ("looks",), test, source))

    return made


def _on_each(
    id: str, *steps: Step, severity: str = "warning"
) -> Callable[[Callable[[Look], Iterable[str]]], None]:
    """The same of a function that tells what is wrong with one node."""

    def made(tell: Callable[[Look], Iterable[str]]) -> None:
        def told(looks: Looks) -> Iterator[Told]:
            for node, look in looks.answered.items():
                yield from (Told(node, what) for what in tell(look))

        _fault(id, *steps, severity=severity)(told)

    return made


def _shape(one: Told) -> str:
    return re.sub(r"[0-9]+", "0", one.what.replace(one.node, "NODE"))


def _found(looks: Looks, id: str, told: list[Told], steps: tuple[Step, ...], severity: str) -> Finding:
    """One finding on all nodes that something is wrong with; the same words are said once.

    If they differ from node to node, the sentence has the first, and the evidence all of them.
    """
    words: dict[str, list[str]] = {}
    for one in told:
        words.setdefault(one.what, []).append(one.node)
    first, *more = words
    nodes = in_hostfile_order((one.node for one in told), looks)
    some = tuple(dict.fromkeys(step for one in told[:3] for step in one.steps))
    found = recognised(
        Finding(
            id,
            f"{first} ({nodes_text(words[first])}; {len(more)} more like it)" if more else first,
            nodes=nodes,
            severity=severity,
            certainty="sure",
            evidence=tuple(f"{nodes_text(nodes)}: {what}" for what, nodes in words.items()) if more else (),
            steps=(*some, *steps),
        ),
        told[0].about,
        lambda step: filter(None, (_typed(step, one) for one in told[:3])),
    )
    if len(nodes) == len(looks.nodes):
        return found
    steps = tuple(replace(step, command=_without(step.command, nodes)) for step in found.steps)
    return replace(found, steps=steps)


def _typed(step: Step, told: Told) -> Step | None:
    """A rule's step with what is known of a node in it; None: it is of no use there."""
    values = [(word, value) for word, value in told.values if word in step.command]
    for word, value in values:
        step = replace(step, command=step.command.replace(word, value), node=told.place)
    return step if all(value for _, value in values) else None


def _without(command: str, nodes: tuple[str, ...]) -> str:
    return command.replace("--exclude NODE", f"--exclude {quote(','.join(set_words(nodes_text(nodes))))}")


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
        what = clean(f"{place}{error.what}", LONG)
        yield Told(node, what, _NOT_HERE, about=error.about, steps=(step,))


_NOT_HERE = ("ssh-copy-id", ""), ("PDSH", ""), ("pdsh ", "")
"""What the hint of a failed login has with its real names, and what cockpit does not use."""


@_fault("unreached", severity="error")
def _unreached(looks: Looks) -> Iterator[Told]:
    """A TCP connection to the first node cannot be made: ranks could not meet."""
    first = next(iter(looks.nodes))
    for node, look in looks.answered.items():
        if look.reached is not None and look.reached.error:
            there = (looks.address, *(look.condition.names or {}).get(looks.address, ()))
            address = next(filter(_is_address, there), looks.address)
            what = f"cannot connect to {first} at {clean(address)}: {clean(look.reached.error)}"
            route, name = (address, "") if _is_address(address) else ("", quote(address))
            values = ("MASTER_IP", route), ("MASTER_NAME", name)
            yield Told(node, what, values, node)


@_fault("no_interface", severity="error")
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
                    what = f"{variable}={value}: that interface leads to no other node"
                    yield Told(node, what, about=LOOPBACK)
                continue
            what = f"{variable}={value} matches no interface ({', '.join(map(clean, names))})"
            yield Told(node, what, about=variable.partition("_")[0])


LOOPBACK = "lo"
"""Nodes do not list it: it leads nowhere else."""


def _matches(chosen: str, name: str) -> bool:
    """NCCL's rule: a list of prefixes; ``=`` in front: of names; ``^``: of what not to use."""
    sign, listed = (chosen[0], chosen[1:]) if chosen[0] in "^=" else ("", chosen)
    words = [word.partition(":")[0] for word in listed.split(",") if word]
    if sign == "^":
        return not any(name.startswith(word) for word in words)
    return name in words if sign == "=" else any(name.startswith(word) for word in words)


@_on_each("gpu_lost", severity="error")
def _gpu_lost(look: Look) -> Iterator[str]:
    """The driver is there, and no GPU is."""
    if look.condition.driver and look.condition.gpus == ():
        yield f"driver {clean(look.condition.driver)} is loaded, but it shows no GPU"


@_on_each("gpu_errors", severity="error")
def _gpu_errors(look: Look) -> Iterator[str]:
    """Memory that ECC cannot mend."""
    for gpu in look.condition.gpus or ():
        if gpu.errors:
            yield f"GPU {gpu.index}: {counted(gpu.errors, 'uncorrected memory error')}"


@_fault("port_taken", severity="error")
def _port_taken(looks: Looks) -> Iterator[Told]:
    """The port that was asked for is taken on the first node."""
    return _held(looks, "") if looks.port_asked else iter(())


def _held(looks: Looks, more: str) -> Iterator[Told]:
    first, look = next(iter(looks.nodes.items()))
    for holder in look.condition.port or ():
        by = f"{clean(holder.name)} (pid {holder.pid})" if holder.pid else "another user's process"
        values = ("PID", str(holder.pid or "")), (":29500", f":{holder.port}")
        yield Told(first, f"port {holder.port}{more} is held by {by}", values, first)


# What somebody has to look at


@_fault("port_in_use")
def _port_in_use(looks: Looks) -> Iterator[Told]:
    """The port where ranks meet by default is taken on the first node."""
    return _held(looks, ", the default of DeepSpeed and torchrun,") if not looks.port_asked else iter(())


@_fault("not_tried", Step("--timeout 60", "wait longer for the nodes ahead of them, or leave those out"))
def _not_tried(looks: Looks) -> Iterator[Told]:
    """Nothing is known of them: others were waited for."""
    for node, look in looks.nodes.items():
        if look.untried:
            yield Told(node, "not tried: the connections ahead of them did not finish")


@_fault("leftover_ranks")
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
            place, values = "", {"stop RUN": "", "-w NODE": "", "PID": ""}
            if run in looks.known:
                values["stop RUN"] = f"stop {quote(clean(run))}"
            elif run:
                way = f"-F {quote(looks.config)} " if looks.config else ""
                values["-w NODE"] = f"{way}-w {quote(','.join(set_words(nodes_text(nodes))))}"
            else:
                place, values["PID"] = node, str(ranks[0].pid)
            said = f"{what} {'runs' if len(ranks) == 1 else 'run'} there"
            yield Told(node, said, tuple(values.items()), place)


@_fault("own_run", severity="info")
def _own_run(looks: Looks) -> Iterator[Told]:
    """Another run that this machine knows."""
    for node, look in looks.answered.items():
        runs = looks.runs_of_own(node)
        found = look.ranks.ranks if look.ranks else ()
        for run in dict.fromkeys(runs.values()):
            ranks = [rank.rank for rank in found if runs.get(rank.pid) == run]
            verb = "runs" if len(ranks) == 1 else "run"
            what = f"{ranks_named(ranks)} of your run {clean(run)} {verb} there too"
            yield Told(node, what, (("RUN", quote(clean(run))), ("--exclude", "")))


@_fault("others_job")
def _others_job(looks: Looks) -> Iterator[Told]:
    """Somebody else trains there."""
    for node, look in looks.answered.items():
        for job in look.ranks.others if look.ranks else ():
            yield Told(node, f"{clean(job.user)} runs a job there: {clean(job.command)}", (("RUN", ""),))


@_fault("gpu_busy")
def _gpu_busy(looks: Looks) -> Iterator[Told]:
    """Memory of a GPU is taken, and not by the run that is meant to be there alone."""
    for node, look in looks.answered.items():
        for text, pids in _taken(looks, node, look):
            yield Told(node, text, (("-p PID", f"-p {pids}" if pids else ""),), node)


def _taken(looks: Looks, node: str, look: Look) -> Iterator[tuple[str, str]]:
    """In words, and the processes that hold it."""
    meant, own = looks.meant(node), looks.runs_of_own(node)
    for gpu in look.condition.gpus or ():
        used, total = gpu.memory_bytes or 0, gpu.memory_total_bytes or 0
        pids = {user.pid for user in gpu.users}
        if meant & pids:
            for run in dict.fromkeys(own[pid] for pid in sorted(pids & own.keys())):
                those = sorted(pid for pid in pids & own.keys() if own[pid] == run)
                yield f"GPU {gpu.index} is used by your run {clean(run)} as well", _pids(those)
        elif pids and pids <= own.keys() and gpu.index not in looks.slots.get(node, {gpu.index}):
            continue  # another run of one's own, on GPUs that this one does not take
        elif total and used >= GPU_BUSY * total:
            users = [
                f"{clean(user.name or '?')} (pid {user.pid}, {clean(user.user or '?')})" for user in gpu.users
            ]
            by = ", ".join(users[:3]) or "processes that are not visible there"
            yield f"GPU {gpu.index}: {size(used)} of {size(total)} held by {by}", _pids(pids)


def _pids(some: Iterable[int]) -> str:
    return ",".join(map(str, sorted(some)[:3]))


@_on_each("gpu_slow")
def _gpu_slow(look: Look) -> Iterator[str]:
    """A GPU protects itself."""
    for gpu in look.condition.gpus or ():
        if gpu.slowed:
            yield f"GPU {gpu.index} is slowed down: {', '.join(map(clean, gpu.slowed))}"


@_on_each("stuck")
def _stuck(look: Look) -> Iterator[str]:
    """Processes in a system call that does not end."""
    for process in look.ranks.stuck if look.ranks else ():
        yield f"{clean(process.name)} (pid {process.pid}, state {clean(process.state)}) does not respond"


@_on_each("no_answer", Step("try it there by hand", "a file server, name server or driver may be down"))
def _no_answer(look: Look) -> Iterator[str]:
    """A check that came to no end."""
    for part, why in look.condition.silent.items():
        yield f"{clean(PARTS.get(part, part))}: {clean(why)}"


@_fault("name_unknown")
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
            what = f"cannot resolve {nodes_text(lacking)}"
            yield Told(node, what, (("NODE", quote(clean(lacking[0]))),), node)


@_fault("name_loopback")
def _name_loopback(looks: Looks) -> Iterator[Told]:
    """A name that leads a node back to itself: another node's, or its own if it has another one here."""
    for node, look in looks.answered.items() if looks.machines > 1 else ():
        for name, addresses in (look.condition.names or {}).items():
            meant = looks.nodes.get(name)
            elsewhere = meant is None or meant.machine != look.machine
            if addresses and elsewhere and all(map(_is_loopback, addresses)):
                what = f"resolves {clean(name)} to {addresses[0]}"
                yield Told(node, what, (("$(hostname)", quote(clean(name))),), node)


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
            yield Told(node, f"{nodes_text(several)} are the same machine", steps=(step,))


@_fault("name_differs")
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
            yield Told(node, what, (("NODE", quote(clean(name))),), node)


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


@_fault("disk_low")
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
            what = f"{size(disk.free_bytes)} free"
        elif disk.inodes_free < disk.inodes // 100:
            what = f"{disk.inodes_free:,} inodes free"
        elif disk.free_bytes < min(SCARCE_BYTES, usual / 10):
            what = f"{size(disk.free_bytes)} free, others {size(usual)}"
        else:
            continue
        folder = disk.path if _PLAIN.fullmatch(disk.path) else "FOLDER"
        yield Told(node, f"{_place(disk)}: {what}", (("FOLDER", folder),), node)


def _place(disk: Disk) -> str:
    return disk.role if disk.role.startswith("/") else f"{disk.role} ({clean(disk.path)})"


def _has_runs(look: Look, disk: Disk) -> bool:
    """Whether run folders are on this disk too, so that it is reported for them."""
    runs = (each for each in look.condition.disks or () if each.role == "run folders")
    return any((each.total_bytes, each.free_bytes) == (disk.total_bytes, disk.free_bytes) for each in runs)


@_on_each("shm_small")
def _shm_small(look: Look) -> Iterator[str]:
    """A container's default, or full."""
    for disk in look.condition.disks or ():
        if disk.role == "/dev/shm" and disk.free_bytes < SHM_BYTES:
            yield f"/dev/shm: {size(disk.free_bytes)} free of {size(disk.total_bytes)}"


@_on_each("run_folders_remote")
def _run_folders_remote(look: Look) -> Iterator[str]:
    """Logs would be written over the network."""
    for disk in look.condition.disks or ():
        if disk.role == "run folders" and disk.type in NETWORK_TYPES:
            yield f"{_place(disk)} are on {disk.type}"


@_on_each("memory_low")
def _memory_low(look: Look) -> Iterator[str]:
    """Most of the memory is taken before anything starts."""
    system = look.condition.system
    if system is None or system.memory_bytes is None or system.memory_free_bytes is None:
        return
    if system.memory_free_bytes < MEMORY_FREE * system.memory_bytes:
        yield f"{size(system.memory_free_bytes)} of {size(system.memory_bytes)} memory free"


@_on_each("locked_memory")
def _locked_memory(look: Look) -> Iterator[str]:
    """InfiniBand registers the memory that it sends from."""
    limits, network = look.condition.limits, look.condition.network
    if limits and network and network.rdma and (limits.locked_bytes or LOCKED_BYTES) < LOCKED_BYTES:
        yield f"ulimit -l is {size(limits.locked_bytes or 0)}: InfiniBand cannot register memory"


@_fault("limits_low")
def _limits_low(looks: Looks) -> Iterator[Told]:
    """Too few files or processes for any training."""
    for node, look in looks.answered.items():
        limits = look.condition.limits
        if limits and (limits.open_files or FEW) < FEW:
            yield Told(node, f"ulimit -n is {limits.open_files}: data loaders need more", about="files")
        if limits and (limits.processes or FEW) < FEW:
            what = f"ulimit -u is {limits.processes}: each rank has dozens of threads"
            yield Told(node, what, about="processes")


@_on_each("no_stacks")
def _no_stacks(look: Look) -> Iterator[str]:
    """The kernel forbids what stacks need."""
    profiling = look.condition.profiling
    if profiling and (profiling.ptrace_scope or 0) >= 2:
        yield f"kernel.yama.ptrace_scope = {profiling.ptrace_scope}: no stacks can be taken"


@_fault("no_gpu_counters", severity="info")
def _no_gpu_counters(looks: Looks) -> Iterator[Told]:
    """NVIDIA's driver keeps counters from users, by default: said where a profiler is to run."""
    for node, look in looks.answered.items() if looks.profiled else ():
        profiling = look.condition.profiling
        if profiling and profiling.gpu_counters is False and look.uid != 0:
            yield Told(node, "GPU performance counters are for root alone (ERR_NVGPUCTRPERM)")


@_fault("killed_at_logout")
def _killed_at_logout(looks: Looks) -> Iterator[Told]:
    """logind ends what a user started."""
    for node, look in looks.answered.items() if not looks.scheduler else ():
        session = look.condition.session
        if session and session.kills and not session.lingers:
            yield Told(node, "kills processes at logout (KillUserProcesses): runs end with your last session")


@_fault("clock")
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


@_fault("stale_lock")
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
        yield Told(node, what, _file(lock.path), where)


@_fault("leftover_memory")
def _leftover_memory(looks: Looks) -> Iterator[Told]:
    """Shared memory without a process."""
    for node, look in looks.answered.items():
        pieces = look.condition.leftovers.memory if look.condition.leftovers else ()
        total = sum(piece.bytes for piece in pieces)
        if total >= LEFT_BYTES:
            more = f" and {len(pieces) - 1} more" if len(pieces) > 1 else ""
            what = f"{size(total)} of unused shared memory: /dev/shm/{clean(pieces[0].name)}{more}"
            yield Told(node, what, _file(f"/dev/shm/{pieces[0].name}"), node)


def _file(path: str) -> tuple[tuple[str, str]]:
    """What to type for a file; one with an odd name is not put into a command."""
    return (("FILE", path if _PLAIN.fullmatch(path) else "FILE"),)


@_fault("login_only")
def _login_only(looks: Looks) -> Iterator[Told]:
    """Programs that ranks will not find."""
    for node, look in looks.answered.items():
        have = look.facts.tools if look.facts else {}
        lacking = sorted(name for name in look.condition.login or {} if name.islower() and name not in have)
        if lacking:
            what = f"{', '.join(map(clean, lacking))} on PATH in login shells only, not for ranks"
            yield Told(node, what, about="ninja" if lacking == ["ninja"] else "")
