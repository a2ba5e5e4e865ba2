"""What a node is busy with before a run: ports, ranks and GPUs that are taken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cockpit.base.answers import FoundRank
from cockpit.base.shell import quote
from cockpit.core.doctor.fault_rules import Fault, FaultRules
from cockpit.core.doctor.node_checks import Look, Looks, clean
from cockpit.core.ranks import nodes_text, ranks_named, set_words
from cockpit.core.text import size

GPU_BUSY = 0.05
"""The part of a GPU's memory that a driver or a monitor may have."""

FAULTS = FaultRules()


@FAULTS.rule("port_taken", severity="error")
def _port_taken(looks: Looks) -> Iterator[Fault]:
    """The port that was asked for is taken on the first node."""
    return _held(looks, "") if looks.port_asked else iter(())


def _held(looks: Looks, more: str) -> Iterator[Fault]:
    first, look = next(iter(looks.nodes.items()))
    for holder in look.condition.port or ():
        by = f"{clean(holder.name)} (pid {holder.pid})" if holder.pid else "another user's process"
        values = ("PID", str(holder.pid or "")), (":29500", f":{holder.port}")
        yield Fault(first, f"port {holder.port}{more} is held by {by}", values, first)


@FAULTS.rule("port_in_use")
def _port_in_use(looks: Looks) -> Iterator[Fault]:
    """The port where ranks meet by default is taken on the first node."""
    return _held(looks, ", the default of DeepSpeed and torchrun,") if not looks.port_asked else iter(())


@FAULTS.rule("leftover_ranks")
def _leftover_ranks(looks: Looks) -> Iterator[Fault]:
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
            said = f"{what} {'is' if len(ranks) == 1 else 'are'} running there"
            yield Fault(node, said, tuple(values.items()), place)


@FAULTS.rule("own_run", severity="info")
def _own_run(looks: Looks) -> Iterator[Fault]:
    """Another run that this machine knows."""
    for node, look in looks.answered.items():
        runs = looks.runs_of_own(node)
        found = look.ranks.ranks if look.ranks else ()
        for run in dict.fromkeys(runs.values()):
            ranks = [rank.rank for rank in found if runs.get(rank.pid) == run]
            verb = "is" if len(ranks) == 1 else "are"
            what = f"{ranks_named(ranks)} of your run {clean(run)} {verb} running there too"
            yield Fault(node, what, (("RUN", quote(clean(run))), ("--exclude", "")))


@FAULTS.rule("others_job")
def _others_job(looks: Looks) -> Iterator[Fault]:
    """Somebody else trains there."""
    for node, look in looks.answered.items():
        for job in look.ranks.others if look.ranks else ():
            yield Fault(node, f"{clean(job.user)} runs a job there: {clean(job.command)}", (("RUN", ""),))


@FAULTS.rule("gpu_busy")
def _gpu_busy(looks: Looks) -> Iterator[Fault]:
    """Memory of a GPU is taken, and not by the run that is meant to be there alone."""
    for node, look in looks.answered.items():
        for text, pids in _taken(looks, node, look):
            yield Fault(node, text, (("-p PID", f"-p {pids}" if pids else ""),), node)


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
