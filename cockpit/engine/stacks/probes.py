"""How the ranks of a node are looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from cockpit.base import shared_fields, verbs
from cockpit.base.stacks.dump import Dump
from cockpit.base.stacks.packing import TooLarge
from cockpit.base.stacks.unpacking import Room, unpack
from cockpit.core.text import one_line
from cockpit.engine.links import payload
from cockpit.engine.links.link import Link
from cockpit.engine.stacks.ask import Ask, RankProcess
from cockpit.errors import CockpitError

SENDING = 16
"""Nodes that are sent py-spy (3 MB) at the same time."""

TEXT_LIMIT = 500
"""Characters kept of a name, a path or a value from a node."""


class PySpy:
    """py-spy, and what the kernel says: what a node is asked, and how its answer becomes dumps.

    Dumps are the evidence of the verdict (:mod:`cockpit.core.stacks.case`).
    """

    def __init__(self) -> None:
        self._equipped: dict[Link, asyncio.Task[None]] = {}
        self._gate = asyncio.Semaphore(SENDING)

    async def equip(self, link: Link) -> None:
        """See to it that the node has a py-spy: its own, or the one that is sent; once a link.

        :raises CockpitError: it cannot have one
        """
        for other in [other for other in self._equipped if other.lost.done()]:
            del self._equipped[other]
        task = self._equipped.get(link)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            task = self._equipped[link] = asyncio.create_task(self._send_spy(link))
            # Nobody may be waiting any longer when it fails; the next caller gets the error.
            task.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(task)

    async def _send_spy(self, link: Link) -> None:
        ours = await payload.in_thread(payload.spy)
        answer = await link.call(verbs.Spy(ours.sha256 if ours else ""))
        if answer.ready:
            return
        machine = link.hello.machine
        hint = f"install it there: {link.by_hand('python3', '-m', 'pip', 'install', '--user', 'py-spy')}"
        if ours is None:
            what = "no py-spy on the node, and none here to send"
            raise CockpitError(what, where=link.node, hint="here: python3 -m pip install py-spy")
        if ours.machine != machine:
            what = f"no py-spy on the node, and the one here is for {ours.machine}, not for {machine}"
            raise CockpitError(clean(what), where=link.node, hint=hint)
        async with self._gate:
            await link.call(verbs.Spy(ours.sha256), ours.packed, deadline_s=300)

    def request(self, targets: Sequence[RankProcess], folder: str, ask: Ask) -> verbs.Stacks:
        """What is asked.

        :param folder: the run folder on the node; empty if there is none
        """
        asks = tuple(shared_fields.Target(one.rank, one.pid, one.ticks) for one in targets)
        return verbs.Stacks(asks, folder, timeout_s=ask.timeout_s, **ask.options)

    def decode(self, data: bytes, wanted: set[int], room: Room) -> tuple[dict[int, Dump], str]:
        """The dumps in a part of the answer, and what is wrong with the rest of it; empty: nothing.

        Runs in a thread.

        :param wanted: ranks that it may still speak for
        :param room: how much it may take up
        """
        dumps: dict[int, Dump] = {}
        try:
            for dump in unpack(data, clean, room):
                # A node speaks for the ranks it was asked about, for no others, and once.
                if dump.rank not in wanted:
                    return dumps, f"a dump of rank {dump.rank}, which was not requested"
                if dump.rank in dumps:
                    return dumps, f"a dump of rank {dump.rank} twice"
                dumps[dump.rank] = dump
        except TooLarge as error:
            return dumps, f"too much: {error}"
        except ValueError as error:
            return dumps, f"something that is not a dump: {error}"
        return dumps, ""


def clean(text: str) -> str:
    """Text of a node, harmless and of bounded length."""
    return one_line(text, limit=TEXT_LIMIT)
