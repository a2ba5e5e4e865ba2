"""A profile of a job's ranks: nodes are asked what it would meet, then told, all at once; what comes is kept.

Each node answers for itself: one that is slow, or lost, costs nobody else's.
"""

from __future__ import annotations

import asyncio
import secrets
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

from cockpit.base import gate, verbs
from cockpit.base.answers import ProfileItem, WindowAnswer
from cockpit.base.events import Profiled, StepSample
from cockpit.base.gate import Malformed, parsed, read
from cockpit.base.profile.order import STATES
from cockpit.base.profile.summary import RankProfile
from cockpit.base.shared_fields import Target
from cockpit.config import Quotas, load
from cockpit.core.profile.collection import DONE, Collection, RankResult
from cockpit.core.profile.folded import MOST_STACKS
from cockpit.core.stacks.snapshot import Place
from cockpit.core.text import one_line
from cockpit.engine.links.link import Link, RemoteError, Stream, streaming
from cockpit.engine.profile.choose import Known, Met, Plan, Wish, nobody
from cockpit.engine.profile.choose_nsys import choose
from cockpit.engine.profile.store import Store
from cockpit.engine.stacks.ask import Party, RankProcess
from cockpit.engine.stacks.probes import PySpy
from cockpit.errors import CockpitError

WINDOW_S = 20.0
"""For a node to say what a profile would meet."""
FRESH_S = 3.0
"""An answer that is older than this is asked for anew: steps go on."""
SUM_S = 180.0
"""For a node to sum one trace up, after all is written."""
WRITE_S = 1300.0
"""For nsys to write its report, and to import it."""
CONFIRM_S, DROP_S = 8.0, 30.0
"""After a cancel, for nodes to say that nothing is left running; for nsys to drop what it has recorded."""

SUMMARY, FOLDED = 4 << 20, 16 << 20
"""Bytes of the summary of a rank, and of its stacks, unpacked."""
ROOM = 256 << 20
"""Bytes of all of them."""

BESIDE, AFTER_S = 5, 10.0
"""Steps directly before a profile, and after it, that tell what is usual; how long those after may take."""

TIMEOUT = "DEEPSPEED_TIMEOUT"
"""The variable by which a job says after how many minutes it gives collectives up."""

_WORDS = frozenset({*STATES, "reading", "starting", "importing", DONE} - {""})


class _Node(NamedTuple):
    """A node with ranks of the job."""

    link: Link
    targets: Sequence[RankProcess]


class Taking:
    """One profile, from the first question to what is kept.

    :param party: the job
    :param wish: what is asked for
    :param store: where it is kept
    :param known: what else is known of the job, asked whenever it is chosen what to do
    :param changed: called when a rank has got further
    """

    def __init__(
        self,
        party: Party,
        wish: Wish,
        store: Store,
        known: Callable[[], Known] = Known,
        changed: Callable[[], object] = lambda: None,
        quotas: Quotas | None = None,
    ) -> None:
        self.party = party
        self.wish = wish
        self.plan: Plan | None = None
        """What will be done; None: it is not chosen yet."""
        self.number = 0
        """Of the collection; 0: it has none yet."""
        self.id = ""
        self.results: dict[int, RankResult] = {}
        """How far each rank is."""
        self.steps: dict[int, int] = {}
        """The last step that each rank has ended, as far as it has said since the order."""
        self.cancelled = ""
        """Who ended it early, and why."""
        self.trouble = ""
        """Why not all of it is kept on disk; empty: it is."""
        self._store = store
        self._known = known
        self._changed = changed
        self._quotas = quotas
        self._spy = PySpy()
        self._nodes: dict[str, _Node] = {}
        self._absent: dict[int, str] = {}
        self._met: Met | None = None
        self._told = Known()
        self._streams: dict[str, Stream[Any, Any]] = {}
        self._work: list[asyncio.Task[None]] = []
        self._ending: asyncio.Task[None] | None = None
        self._timing: asyncio.Task[tuple[float | None, float | None, float | None]] | None = None
        self._saving = asyncio.Lock()
        self._opening = asyncio.Lock()
        """One at a time: what a node sends may take fifty times as much memory once it is read."""
        self._offsets: dict[str, float] = {}
        self._at = 0.0

    # What it would meet

    async def prepare(self) -> Plan:
        """Ask all nodes, and choose.

        :raises CockpitError: there can be no profile now, and why
        """
        known = await asyncio.to_thread(self._known)
        kind = self.wish.kind or self._likely(known)
        met = await self._meet(kind)
        uncounted = met.windows and all(one.step is None for one in met.windows.values())
        if not self.wish.kind and kind == "torch" and uncounted:
            met = await self._meet("cpu")
        if met.kind == "torch" and known.timeout_s is None:
            known = replace(known, timeout_s=await self._timeout())
        self._told = known
        self.plan = choose(self.wish, met, known, time.monotonic())
        return self.plan

    async def _timeout(self) -> float | None:
        """After how many seconds the job gives collectives up, if its environment says so."""
        for name, node in self._nodes.items():
            with suppress(CockpitError, ValueError, OverflowError):
                request = verbs.Environ(self.party.folder(name), node.targets[0].rank)
                environ = await node.link.call(request, deadline_s=WINDOW_S)
                seconds = 60.0 * int(environ.environ.get(TIMEOUT, 0))
                return seconds if seconds > 0 else None
        return None

    def _likely(self, known: Known) -> str:
        """Only ranks that cockpit has started have a probe; where nsys is, torch's profiler is not used."""
        if not any(self.party.folder(node) for node in self.party.nodes):
            return "cpu"
        return "nsys" if known.ready and not (self.wish.stack or self.wish.memory) else "torch"

    async def _meet(self, kind: str) -> Met:
        """Find the ranks on all nodes, and ask what a profile of them would meet."""
        places = self.party.places()
        self._absent = {rank: place.why for rank, place in places.items() if place.why}
        self._nodes = {}

        async def find(node: str) -> None:
            try:
                link = await self.party.link(node)
                if link.clock.rtt_s == float("inf"):
                    await link.measure_clock()
                targets = await self.party.targets(node, link)
                wanted = [one for one in targets if self.wish.ranks is None or one.rank in self.wish.ranks]
                # nsys records whole nodes, unless it is around each rank.
                targets = targets if wanted and kind == "nsys" else wanted
                if targets and kind == "cpu":
                    await self._spy.equip(link)
                if targets:
                    self._nodes[node] = _Node(link, targets)
            except CockpitError as error:
                self._absent.update(dict.fromkeys(_on(places, node), _why(error)))

        await asyncio.gather(*map(find, self.party.nodes))
        return await self._look(kind)

    async def _look(self, kind: str) -> Met:
        """Ask the nodes whose ranks are known, all at once: a slow one costs others no freshness."""
        absent, answers = dict(self._absent), dict[str, WindowAnswer]()
        places, at = self.party.places(), time.monotonic()

        async def ask(node: str, one: _Node) -> None:
            try:
                request = verbs.Window(self.party.folder(node), _targets(one.targets), kind)
                answers[node] = await one.link.call(request, deadline_s=WINDOW_S)
            except CockpitError as error:
                absent.update(dict.fromkeys((target.rank for target in one.targets), _why(error)))

        await asyncio.gather(*(ask(node, one) for node, one in self._nodes.items()))
        windows, where = {}, {}
        for node, answer in answers.items():
            own = {target.rank for target in self._nodes[node].targets}
            for window in answer.ranks:
                # A node speaks for its own ranks, and the first one for each.
                if window.rank in own and window.rank not in windows:
                    windows[window.rank] = replace(window, why=one_line(window.why, limit=300))
                    where[window.rank] = node
            absent.update(dict.fromkeys(own - windows.keys(), "no status from its node"))
        for rank in self.wish.ranks or ():
            if rank in places:
                absent.setdefault(rank, "gone: its process no longer exists")
        free = {node: answer.free for node, answer in answers.items() if self.party.folder(node)}
        rtt_s = max((self._nodes[node].link.clock.rtt_s for node in answers), default=0.0)
        absent = {rank: why for rank, why in absent.items() if rank not in windows}
        self._met = Met(kind, windows, where, absent, free, at, rtt_s)
        return self._met

    # Taking it

    async def take(self) -> Collection:
        """Tell all nodes at once, gather what comes, and keep it; returns once nothing is left running.

        :raises CockpitError: there can be no profile now, or nothing can be kept here
        """
        if self.plan is None:
            await self.prepare()
        self.number = await asyncio.to_thread(self._store.begin, self._quotas or load().quotas)
        assert self._met is not None
        try:
            if time.monotonic() > self._met.at + FRESH_S:
                await self._look(self._met.kind)
            # The front has moved meanwhile.
            plan = self.plan = choose(self.wish, self._met, self._told, time.monotonic())
        except CockpitError:
            self._store.discard(self.number)
            raise
        self._at = time.time()
        self.id = f"{time.strftime('%y%m%d-%H%M%S', time.localtime(self._at))}-{secrets.token_hex(3)}"
        where = {target.rank: name for name, one in self._nodes.items() for target in one.targets}
        known = {rank: place.node for rank, place in self.party.places().items()}
        self.results = {rank: RankResult(rank, where[rank]) for rank in plan.ranks}
        for rank, why in plan.left_out.items():
            self.results[rank] = RankResult(rank, known.get(rank, ""), why=why)
        self._offsets = {name: one.link.clock.offset_s for name, one in self._nodes.items()}
        try:
            asks = {
                name: [one for one in node.targets if one.rank in plan.ranks]
                for name, node in self._nodes.items()
            }
            self._work = [
                asyncio.create_task(self._ask(name, self._nodes[name], targets, plan))
                for name, targets in asks.items()
                if targets
            ]
            await self._save()
            await asyncio.gather(*self._work)
            if self._ending is not None:
                await self._ending
            if self._refused:
                await asyncio.to_thread(self._store.discard, self.number)
                raise nobody(self._met, {rank: one.why for rank, one in self.results.items()}, self._told)
            times: tuple[float | None, float | None, float | None] = (None, None, None)
            if not self.cancelled:
                self._timing = asyncio.create_task(self._times(plan))
                await asyncio.wait({self._timing})
                times = times if self._timing.cancelled() else self._timing.result()
        finally:
            for task in (*self._work, *filter(None, [self._timing])):
                task.cancel()
        await self._save(*times)
        return self.collection(*times)

    def cancel(self, why: str) -> None:
        """End it early: nodes are told, and what has come is kept; once all has, no later steps are timed."""
        if self._timing is not None:
            self._timing.cancel()
        elif not self.cancelled:
            self.cancelled = why
            if self._work:
                self._end()

    def _end(self) -> None:
        self._ending = self._ending or asyncio.create_task(self._end_all())

    async def _end_all(self) -> None:
        for stream in list(self._streams.values()):
            with suppress(CockpitError):
                await stream.cancel()
        left = [task for task in self._work if not task.done()]
        if left:
            drops = self.plan is not None and self.plan.kind == "nsys"
            await asyncio.wait(left, timeout=DROP_S if drops else CONFIRM_S)
        for task in left:
            task.cancel()

    @property
    def over(self) -> int:
        """How many ranks there is nothing more to come of."""
        return sum(map(is_over, self.results.values()))

    @property
    def _refused(self) -> bool:
        """Whether every rank has refused: it has not begun, as where another profile is under way."""
        ranks = self.plan.ranks if self.plan is not None else ()
        return all(self.results[rank].state == "refused" for rank in ranks)

    def collection(
        self, before: float | None = None, during: float | None = None, after: float | None = None
    ) -> Collection:
        """It, as far as it is here."""
        plan = self.plan
        assert plan is not None
        return Collection(
            self.number,
            self.id,
            self.party.run,
            plan.kind,
            self._at,
            plan.first,
            plan.steps,
            None if plan.first is not None else plan.seconds,
            plan.options,
            dict(self.results),
            dict(self._offsets),
            before,
            during,
            after,
            self.cancelled,
            dict(self._told.since),
        )

    async def _ask(self, name: str, node: _Node, targets: Sequence[RankProcess], plan: Plan) -> None:
        """One node, until it has said all; what goes wrong is said of its ranks."""
        own = {target.rank for target in targets}
        why = "no answer"
        try:
            request = verbs.Profile(
                self.party.folder(name),
                _targets(targets),
                plan.kind,
                self.id,
                plan.first or 0,
                max(1, plan.steps),
                seconds=max(0.1, plan.seconds),
                rate=plan.rate,
                deadline_s=plan.deadline_s,
                **{option: option in plan.options for option in ("shapes", "stack", "memory")},
            )
            rest_s = WRITE_S if plan.kind == "nsys" else SUM_S * len(targets)
            end = time.monotonic() + plan.deadline_s + rest_s
            async with streaming(node.link, request) as stream:
                self._streams[name] = stream
                if self.cancelled:
                    await stream.cancel()
                while (part := await stream.part(max(0.0, end - time.monotonic()))) is not None:
                    await self._take_in(name, own, plan, *part)
        except asyncio.CancelledError:
            why = f"{self.cancelled or 'cancelled'}; its node has not confirmed"
            if not self.cancelled:
                raise
        except CockpitError as error:
            why = f"connection lost: {error.what}" if node.link.lost.done() else error.what
        except Exception as error:
            # A bug of ours.
            why = f"internal error: {error!r}"
        finally:
            self._streams.pop(name, None)
            for rank in own:
                one = self.results[rank]
                if not is_over(one):
                    self.results[rank] = replace(one, why=one_line(self._left(one, why), limit=300))
            self._changed()

    def _left(self, one: RankResult, why: str) -> str:
        """Why nothing is here of a rank of which no more comes."""
        if one.file and one.state in ("written", "reading"):  # of torch
            return f"{why}; its file is on the node"
        return why

    async def _take_in(self, name: str, own: set[int], plan: Plan, item: ProfileItem, data: bytes) -> None:
        """What a node says of one rank.

        :raises RemoteError: it is nothing that a node of ours sends
        """
        rank = item.rank
        if rank not in own or is_over(self.results[rank]):
            raise _odd(name, f"a profile of rank {rank}, which was not requested")
        if item.state not in _WORDS or (data and item.state != DONE):
            raise _odd(name, f"a profile that is {item.state[:20]!r}")
        try:
            file = gate.FILE_NAME.read(item.file) if item.file else ""
        except Malformed:
            raise _odd(name, "a name that no file can have") from None
        if item.step is not None:
            self.steps[rank] = item.step
        before = self.results[rank]
        one = replace(
            before,
            state=item.state,
            began=item.t - self._offsets[name] if item.t else before.began,
            file=one_line(file, limit=255) or before.file,
            size=item.size or before.size,
            rate=item.rate or before.rate,
            samples=item.samples or before.samples,
            errors=item.errors or before.errors,
        )
        what = one_line(item.what, limit=300)
        if item.state in _NEVER or item.state == DONE:
            one = replace(one, why=what or _NEVER.get(item.state, ""))
        if item.state == DONE and plan.kind == "nsys":
            one = one if file else replace(one, state="failed", why="its report has no name")
        elif item.state == DONE:
            async with self._opening:
                one = await asyncio.to_thread(_opened, one, plan, data, ROOM // max(1, len(plan.ranks)))
        self.results[rank] = one
        if is_over(one):
            await self._save()
        self._changed()

    # What it cost

    async def _times(self, plan: Plan) -> tuple[float | None, float | None, float | None]:
        """Seconds of a step before, during and after, the median over the ranks; None: not known."""
        done = {rank for rank, one in self.results.items() if one.state == DONE}
        steps: dict[int, dict[int, StepSample]] = {rank: {} for rank in done}

        async def ask(name: str, node: _Node) -> None:
            own = done & {target.rank for target in node.targets}
            if not own or not self.party.folder(name):
                return
            end = time.monotonic() + AFTER_S
            with suppress(CockpitError):
                async with streaming(node.link, verbs.Samples(self.party.folder(name), 0.5)) as stream:
                    while (part := await stream.part(max(1.0, end - time.monotonic()))) is not None:
                        for rank in own & part[0].ranks.keys():
                            told = part[0].ranks[rank].progress
                            steps[rank].update({one.step: one for one in (told.steps if told else ())})
                        late = time.monotonic() >= end
                        if late or all(self._after(plan, rank, steps[rank]) for rank in own):
                            return

        await asyncio.gather(*(ask(name, node) for name, node in self._nodes.items()))
        parts: tuple[list[float], list[float], list[float]] = ([], [], [])
        for rank in done:
            for found, part in zip(parts, self._three(plan, rank, steps[rank].values()), strict=True):
                found += [median(part)] if part else []
        before, during, after = (median(part) if part else None for part in parts)
        return before, during, after

    def _after(self, plan: Plan, rank: int, steps: Mapping[int, StepSample]) -> bool:
        return len(self._three(plan, rank, steps.values())[2]) >= BESIDE

    def _three(
        self, plan: Plan, rank: int, steps: Iterable[StepSample]
    ) -> tuple[list[float], list[float], list[float]]:
        """How long steps of a rank took before, during and after its profile."""
        began = self.results[rank].began
        offset = self._offsets.get(self.results[rank].node, 0.0)
        before: list[float] = []
        during: list[float] = []
        after: list[float] = []
        for one in sorted(steps, key=lambda one: one.step):
            if one.seconds is None:
                continue
            if plan.first is not None:
                last = plan.first + plan.steps - 1
                # The step after the last one has the profiler's stop in it.
                place = before if one.step < plan.first else during if one.step <= last else after
                if one.step == last + 1:
                    continue
            elif began is None:
                continue
            else:
                end = one.t - offset
                inside = end - one.seconds < began + plan.seconds
                place = before if end <= began else during if inside else after
            place.append(one.seconds)
        return before[-BESIDE:], during, after[:BESIDE]

    # Keeping it

    async def _save(self, *times: float | None) -> None:
        async with self._saving:
            if self._refused:
                return
            try:
                await asyncio.to_thread(self._store.save, self.collection(*times))
                self.trouble = ""
            except CockpitError as error:
                self.trouble = str(error)


_NEVER = {
    "missed": "the first step had already begun when the order arrived",
    "refused": "it was refused",
    "failed": "it failed",
    "cancelled": "cancelled",
}
"""Words for the end of a rank of which nothing comes, if its node says no more."""


def fact_of(one: Collection) -> Profiled:
    """A collection, for the journal."""
    missing = tuple(sorted(one.missing))
    done = tuple(sorted(set(one.results) - set(missing)))
    return Profiled(
        one.number, one.id, one.kind, done, missing, one.first, one.steps, one.seconds, one.cancelled
    )


def is_over(one: RankResult) -> bool:
    """Whether nothing more comes of a rank."""
    return one.state == DONE or bool(one.why)


def _targets(some: Iterable[RankProcess]) -> tuple[Target, ...]:
    return tuple(Target(one.rank, one.pid, one.ticks) for one in some)


def _on(places: Mapping[int, Place], node: str) -> Iterable[int]:
    return (rank for rank, place in places.items() if place.node == node)


def _why(error: CockpitError) -> str:
    return one_line(f"{error.what}; {error.hint}" if error.hint else error.what, limit=300)


def _odd(node: str, what: str) -> RemoteError:
    return RemoteError("protocol", f"sent {what}", where=node)


def _opened(one: RankResult, plan: Plan, data: bytes, room: int) -> RankResult:
    """A rank with what came of it; with the reason, if it is nothing that can be used. Runs in a thread."""
    try:
        if plan.kind == "torch":
            summary = summary_of(unpacked(data, min(SUMMARY, room)), one)
            first = plan.first or 0
            odd = [each.step for each in summary.steps if not first <= each.step < first + plan.steps]
            if odd:
                raise Malformed(f"it is of step {odd[0]}")
            return replace(one, summary=summary, sha256=summary.sha256)
        text = unpacked(data, min(FOLDED, room)).decode("utf-8", "replace")
        if text.count("\n") > MOST_STACKS:
            raise Malformed(f"it has more than {MOST_STACKS:,} stacks")
        return replace(one, folded="\n".join(one_line(line) for line in text.split("\n") if line))
    except Malformed as error:
        why = f"its summary is invalid: {error}{'; its file is on the node' if one.file else ''}"
        return replace(one, state="failed", why=one_line(why, limit=300))


def unpacked(data: bytes, most: int) -> bytes:
    """What was compressed.

    :raises Malformed: it is not, or more than ``most`` bytes
    """
    unpacker = zlib.decompressobj()
    try:
        found = unpacker.decompress(data, most)
    except zlib.error:
        raise Malformed("not compressed") from None
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise Malformed(f"more than {most >> 20} MiB" if unpacker.unconsumed_tail else "truncated")
    return found


def summary_of(data: bytes, one: RankResult) -> RankProfile:
    """The summary of a rank, all of its text harmless.

    :raises Malformed: it is none, or another rank's
    """
    try:
        found = read(RankProfile, _harmless(parsed(data)))
    except RecursionError:
        raise Malformed("nested too deep") from None
    if found.rank != one.rank:
        raise Malformed(f"it is of rank {found.rank}")
    return replace(found, node=one.node)


def _harmless(value: Any) -> Any:
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, dict):
        return {name: _harmless(each) for name, each in value.items()}
    return [_harmless(each) for each in value] if isinstance(value, list) else value
