"""A rehearsal of torch.distributed on all nodes: groups that the hunt names, where it can at once.

Each node starts the ranks' python once and forks a rank a trial; both end with the link, so nothing is left.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from cockpit.base import verbs
from cockpit.base.checkup_answers import Gpu
from cockpit.base.rehearsal_answers import RehearseItem, TrialAnswer, TrialItem
from cockpit.core.doctor.busy_faults import GPU_BUSY
from cockpit.core.doctor.deep import NO_TORCH, Attempt, Rehearsed, node_of, slow, tournament
from cockpit.core.doctor.hunt import Group, Hunt
from cockpit.core.doctor.node_checks import Look, Looks
from cockpit.core.ranks import nodes_text
from cockpit.core.text import counted
from cockpit.engine.doctor import Wanted
from cockpit.engine.launch.prepare import master_address
from cockpit.engine.links.link import Link, Stream, streaming
from cockpit.engine.links.pool import LinkPool, settle
from cockpit.errors import CockpitError, ManyErrors
from cockpit.plans import setup
from cockpit.transport.base import LinkError

TIMEOUT_S = 300.0
"""All of it ends after this long."""
TRIAL_S = 20.0
"""For one group to meet, connect and reduce."""
LEAST_TRIAL_S = 6.0
"""No group gets less: on a busy node one that works would fail. Whoever has less time is told so."""
START_S = 120.0
"""For a node to import torch."""
START = 0.6
"""The part of the time that it may take, if that is less."""
MEASURE_S = 3.0
"""For each peer that a rank measures with."""
CONNECT_S = 8.0
"""For a TCP connection to where a group meets."""
WORDS_S = 1.5
"""Once a rank has failed, the others of its group may say why for so long."""
SPARE_S = 10.0
"""A node that gives no answer so long after a trial's time is not waited for."""
REMEASURED = 6
"""Slow pairs that are measured again, alone."""
TOLD = 4
"""Groups of a round that are named while they are tried."""

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Deep:
    """How to do it.

    :param iface: the interface that ranks must take; empty: what torch takes by itself
    :param timeout_s: for all of it
    """

    iface: str = ""
    timeout_s: float = TIMEOUT_S

    @property
    def trial_s(self) -> float:
        """For one group."""
        return min(TRIAL_S, max(LEAST_TRIAL_S, self.timeout_s / 6))


async def rehearse(pool: LinkPool, looks: Looks, wanted: Wanted, deep: Deep, tell: Tell) -> Rehearsed:
    """Try torch.distributed on the nodes that are free, and find who or what fails.

    :param looks: what the doctor has seen of the nodes
    :param tell: told in a few words what is being tried
    """
    out, lacking = busy(looks), without(looks, deep.iface)
    members = [name for name in looks.answered if name not in out and name not in lacking]
    done = Rehearsed((), iface=deep.iface, out=out, lacking=lacking, has=_interfaces(looks))
    if not members:
        return done
    end = time.monotonic() + deep.timeout_s
    tell(f"starting torch on {counted(len(members), 'node')}")
    async with _Stage(pool, looks, wanted, deep, end).started(members) as stage:
        failed = {name: error.what for name, error in stage.errors.items()}
        broken = {name: why for name, why in failed.items() if name not in stage.late}
        late = {name: why for name, why in failed.items() if name in stage.late}
        members = [name for name in members if name in stage.ready]
        done = replace(done, members=tuple(members), broken=broken, late=late, timeout_s=deep.timeout_s)
        if not members:
            return done
        gpus = {name: free(looks.nodes[name]) for name in members}
        shared = len({looks.nodes[name].machine for name in members}) < len(members)  # NCCL: a GPU a rank
        if all(item.nccl for item in stage.ready.values()) and all(gpus.values()) and not shared:
            stage.backend = "nccl"
        hunts = stage.of_gpus(gpus) if stage.backend == "nccl" else []
        await stage.hunt(hunts, tell)
        stage.without({gpu for hunt in hunts for culprit in hunt.culprits for gpu in culprit.all})
        await stage.port(tuple(members))
        whole = Hunt(members)
        await stage.hunt([whole], tell)
        guilty = {node for culprit in whole.culprits for node in culprit.all}
        rates = await stage.measured([name for name in members if name not in guilty], tell)
        return replace(
            done,
            backend=stage.backend,
            torch=stage.ready[members[0]].torch,
            dropped=stage.dropped,
            attempts=tuple(stage.attempts),
            culprits=tuple(culprit for hunt in (*hunts, whole) for culprit in hunt.culprits),
            rates=rates,
            unmeasured=stage.unmeasured,
            stopped=stage.stopped,
        )


def busy(looks: Looks) -> dict[str, str]:
    """Nodes on which a test could harm somebody's run, or cannot be made, and why."""
    found = {}
    for name, look in looks.answered.items():
        if look.ranks is None:
            found[name] = "what runs there is unknown"
        elif look.ranks.ranks:
            found[name] = "ranks are running there"
        elif look.ranks.others:
            found[name] = "another user runs a job there"
        elif look.condition.gpus and not free(look):
            found[name] = "its GPUs are busy"
        elif look.facts is None:
            found[name] = "its python is unknown"
        elif look.facts.torch is None:
            found[name] = NO_TORCH
    return found


def free(look: Look) -> list[int]:
    """The GPUs of a node that nobody uses."""

    def unused(gpu: Gpu) -> bool:
        used, total = gpu.memory_bytes or 0, gpu.memory_total_bytes or 0
        return not gpu.users and used < GPU_BUSY * max(total, 1)

    return [gpu.index for gpu in look.condition.gpus or () if unused(gpu)]


def without(looks: Looks, iface: str) -> dict[str, str]:
    """Nodes that do not have that interface, and what they have."""
    found = {}
    for name, look in looks.answered.items():
        there = look.condition.network.interfaces if look.condition.network else ()
        if iface and look.condition.network is None:
            found[name] = "its interfaces are unknown"
        elif iface and not any(each.name == iface and each.addresses for each in there):
            names = ", ".join(each.name for each in there if each.addresses)
            found[name] = f"it has {names}" if names else "it has none that is up"
    return found


def _interfaces(looks: Looks) -> dict[str, frozenset[str]]:
    return {
        name: frozenset(each.name for each in look.condition.network.interfaces if each.addresses)
        for name, look in looks.answered.items()
        if look.condition.network
    }


class _Stage:
    """Nodes that are ready for trials.

    :param end: when all of it is over (monotonic seconds)
    """

    def __init__(self, pool: LinkPool, looks: Looks, wanted: Wanted, deep: Deep, end: float) -> None:
        self.backend = "gloo"
        self.attempts: list[Attempt] = []
        self.ready: dict[str, RehearseItem] = {}
        self.errors: dict[str, CockpitError] = {}
        self.late: set[str] = set()
        self.dropped: Attempt | None = None
        self.unmeasured: Attempt | None = None
        self.stopped = False
        self._pool = pool
        self._looks = looks
        self._wanted = wanted
        self._deep = deep
        self._end = end
        self._links: dict[str, Link] = {}
        self._gpu: dict[str, int] = {}

    @asynccontextmanager
    async def started(self, members: list[str]) -> AsyncIterator[_Stage]:
        """A Python with torch on each of them, until the end of the block."""
        async with AsyncExitStack() as stack:
            work = {name: self._start(name, stack) for name in members}
            self.ready, self.errors = await settle(work)
            yield self

    async def _start(self, name: str, stack: AsyncExitStack) -> RehearseItem:
        link = self._links[name] = await self._pool.at_hand(name)
        job = self._wanted.job
        left = max(1.0, self._end - time.monotonic())
        request = verbs.Rehearse(
            job.cwd,
            setup.text(job.setup, job.path, job.conda),
            job.python or "",
            env={**job.env, **_chosen(self._deep.iface)},
            limit_s=left + SPARE_S,
        )
        stream = await stack.enter_async_context(streaming(link, request))

        async def first() -> RehearseItem:
            async for item, _ in stream.parts():
                return item
            raise LinkError("ended before torch was imported", where=name)

        limit = min(START_S, left * START)  # the others can be tried without it
        try:
            return await asyncio.wait_for(first(), limit)
        except (TimeoutError, asyncio.TimeoutError):
            if limit < START_S:
                self.late.add(name)
            raise LinkError(f"torch was not imported within {limit:.0f} s", where=name) from None

    def of_gpus(self, gpus: Mapping[str, list[int]]) -> list[Hunt]:
        """A hunt for each node with several GPUs; and the GPU that it takes part with."""
        hunts: list[Hunt] = []
        for node, there in gpus.items():
            members = {f"{node}/{gpu}": gpu for gpu in there}
            self._gpu.update({**members, node: there[0]})
            if len(members) > 1:
                hunts.append(Hunt(tuple(members)))
        return hunts

    def without(self, bad: set[str]) -> None:
        """Let nodes take part with another GPU than a bad one, if they have any."""
        for member, gpu in self._gpu.items():
            node = node_of(member)
            if member != node and member not in bad and f"{node}/{self._gpu[node]}" in bad:
                self._gpu[node] = gpu

    async def port(self, members: Group) -> None:
        """Whether the others reach the port of the first node that the user has asked for."""
        port = self._wanted.job.master_port
        if port is None or members[0] != self._wanted.job.hosts[0].name or len(members) < 2:
            return
        if self._over():
            return
        attempt = await self._attempt(members, port=port)
        if attempt.unreached:
            again = await self._attempt(members)
            if not again.unreached:
                self.dropped = attempt

    async def hunt(self, hunts: list[Hunt], tell: Tell) -> None:
        """Carry out hunts of different nodes side by side."""
        while open_hunts := [hunt for hunt in hunts if hunt.groups]:
            if self._over():
                for hunt in open_hunts:
                    hunt.stop()
                return
            tell(_told([group for hunt in open_hunts for group in hunt.groups]))
            await asyncio.gather(*(self._round(hunt) for hunt in open_hunts))

    async def _round(self, hunt: Hunt) -> None:
        attempts = await asyncio.gather(*map(self._attempt, hunt.groups))
        hunt.tell({attempt.group: attempt.works for attempt in attempts})

    async def measured(self, members: list[str], tell: Tell) -> dict[tuple[str, str], float]:
        """The rates between pairs; slow ones are measured once more, while nothing else is."""
        rounds = tournament(members)
        if not rounds or self._over(len(rounds)):
            return {}
        tell(f"measuring {counted(sum(map(len, rounds)), 'pair')} of nodes")
        rates = await self._rates(tuple(members), rounds)
        for pair in slow(rates)[:REMEASURED]:
            if self._over(1):
                break
            tell(f"measuring {pair[0]} and {pair[1]} again")
            again = await self._rates(pair, [[pair]])
            rates[pair] = max(rates[pair], again.get(pair, 0.0))
        return rates

    async def _rates(self, group: Group, rounds: list[list[tuple[str, str]]]) -> dict[tuple[str, str], float]:
        place = {who: number for number, who in enumerate(group)}
        peers: dict[str, list[int]] = {who: [] for who in group}
        for pairs in rounds:
            meets = dict([*pairs, *((other, one) for one, other in pairs)])
            for who, row in peers.items():
                row.append(place[meets[who]] if who in meets else -1)
        attempt = await self._attempt(group, peers=peers)
        if not attempt.works:
            self.unmeasured = self.unmeasured or attempt
        rates: dict[tuple[str, str], float] = {}
        for who, answer in attempt.ranks.items():
            for number, rate in zip(peers[who], answer.rates, strict=False):
                if number >= 0 and rate:
                    one, other = sorted((who, group[number]), key=place.__getitem__)
                    rates[one, other] = rate
        return rates

    def _over(self, rounds: int = 0) -> bool:
        """Whether the time is over for one more trial.

        :param rounds: in which pairs are to be measured
        """
        over = time.monotonic() + self._trial_s(rounds) > self._end
        self.stopped = self.stopped or over
        return over

    def _trial_s(self, rounds: int) -> float:
        return self._deep.trial_s + MEASURE_S * rounds

    # One group

    async def _attempt(
        self, group: Group, *, port: int = 0, peers: Mapping[str, list[int]] | None = None
    ) -> Attempt:
        """Let a group meet, connect and reduce."""
        made = await _Trial(self, group, port, peers or {}).run()
        self.attempts.append(made)
        return made

    def link(self, member: str) -> Link:
        """The link to a member's node."""
        return self._links[node_of(member)]

    async def address(self, group: Group) -> str:
        """Where a group meets.

        :raises CockpitError: the first one has no address for the others
        """
        first = node_of(group[0])
        if self._deep.iface:
            network = self._looks.nodes[first].condition.network
            there = network.interfaces if network else ()
            return next(each.addresses[0] for each in there if each.name == self._deep.iface)
        if self._wanted.job.master_addr and first == self._wanted.job.hosts[0].name:
            return self._wanted.job.master_addr
        links = {node_of(member): self.link(member) for member in group}
        return await master_address(first, links, self._pool.roll)

    def request(self, group: Group, member: str, address: str, port: int, peers: list[int]) -> verbs.Trial:
        """What a member is asked."""
        return verbs.Trial(
            group.index(member),
            len(group),
            address,
            port,
            self.backend,
            self._gpu.get(member, -1) if self.backend == "nccl" else -1,
            tuple(peers),
            limit_s=self._trial_s(len(peers)),
        )


class _Trial:
    """One group, once."""

    def __init__(self, stage: _Stage, group: Group, port: int, peers: Mapping[str, list[int]]) -> None:
        self._stage = stage
        self._group = group
        self._port = port
        self._peers = peers
        self._listens: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def run(self) -> Attempt:
        """The first one listens, all others see whether they can connect, then they begin."""
        first, *others = self._group
        try:
            address = await self._stage.address(self._group)
        except CockpitError as error:
            whose = error.errors if isinstance(error, ManyErrors) else (error,)
            members = {node_of(member): member for member in self._group}
            return Attempt(self._group, errors={members.get(one.where, first): one.what for one in whose})
        tasks = {first: asyncio.create_task(self._rank(first, address, self._port))}
        try:
            tasks[first].add_done_callback(lambda _: self._listens.done() or self._listens.cancel())
            await asyncio.wait([self._listens])
            place, unreached = address, {}
            if not self._listens.cancelled():
                port = self._listens.result()
                place = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
                unreached = await self._unreached(others, address, port)
                if not unreached:
                    for who in others:
                        tasks[who] = asyncio.create_task(self._rank(who, address, port))
                    await self._together(list(tasks.values()))
            over = {who: task for who, task in tasks.items() if task.done()}
            ranks, errors = await settle(over)
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
        return Attempt(
            self._group, place, unreached, ranks, {who: error.what for who, error in errors.items()}
        )

    async def _together(self, tasks: list[asyncio.Task[TrialAnswer]]) -> None:
        """Wait for all; once one has failed, not for long."""
        waiting = set(tasks)
        while waiting:
            ended, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if any(task.exception() or task.result().step != "done" for task in ended):
                if waiting:
                    await asyncio.wait(waiting, timeout=WORDS_S)
                return

    async def _rank(self, who: str, address: str, port: int) -> TrialAnswer:
        request = self._stage.request(self._group, who, address, port, list(self._peers.get(who, ())))
        async with streaming(self._stage.link(who), request) as stream:
            try:
                return await asyncio.wait_for(self._answer(stream), request.limit_s + SPARE_S)
            except (TimeoutError, asyncio.TimeoutError):
                raise LinkError(f"no answer within {request.limit_s + SPARE_S:g} s", where=who) from None

    async def _answer(self, stream: Stream[TrialAnswer, TrialItem]) -> TrialAnswer:
        async for item, _ in stream.parts():
            if item.port is not None and not self._listens.done():
                self._listens.set_result(item.port)
        return await stream.result()

    async def _unreached(self, others: list[str], address: str, port: int) -> dict[str, str]:
        """Who cannot connect to the first one, and why."""
        asked = verbs.Reach(address, port, limit_s=CONNECT_S)
        calls = {who: self._stage.link(who).call(asked, deadline_s=CONNECT_S + SPARE_S) for who in others}
        answers, errors = await settle(calls)
        found = {who: error.what for who, error in errors.items()}
        return {**found, **{who: answer.error for who, answer in answers.items() if answer.error}}


def _chosen(iface: str) -> dict[str, str]:
    """Variables that make ranks take an interface, and NCCL say which it takes."""
    told = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,NET,ENV"}
    names = {"GLOO_SOCKET_IFNAME": iface, "NCCL_SOCKET_IFNAME": f"={iface}"} if iface else {}
    return {**told, **names}


def _told(groups: list[Group]) -> str:
    """What a round tries, in a few words."""
    if len(groups) > 1 and all(len(group) == 1 for group in groups):
        gpus = any("/" in group[0] for group in groups)
        return f"testing each of {counted(len(groups), 'GPU' if gpus else 'node')} alone"
    more = f" | {counted(len(groups) - TOLD, 'more group')}" if len(groups) > TOLD else ""
    return f"testing {' | '.join(nodes_text(group) for group in groups[:TOLD])}{more}"
