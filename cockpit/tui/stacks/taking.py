"""What the stack screen asks of ranks: samples of all, more of one alone; and that what came is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from textual.worker import Worker

from cockpit.base.stacks.dump import Dump
from cockpit.engine.stacks.ask import option_words
from cockpit.engine.stacks.take import Stacks
from cockpit.errors import CockpitError
from cockpit.tui.command_screen import CommandScreen
from cockpit.tui.commands import Id
from cockpit.tui.panes.key_bar import Activity
from cockpit.tui.stacks.samples import SampleCursor

OPTIONS: tuple[Id, ...] = ("native", "locals", "children")
"""What a rank can be asked for, each with the name of the command that does it."""


class AskedAlone:
    """One rank at a time is asked for more than all others."""

    def __init__(self) -> None:
        self.wish: tuple[str, ...] = ()
        """What it is asked for, of :data:`OPTIONS`."""
        self._answers: dict[tuple[int, tuple[str, ...]], Dump] = {}

    def toggle(self, option: str) -> None:
        """Ask for this too, or no longer."""
        kept = tuple(each for each in self.wish if each != option)
        self.wish = kept if option in self.wish else (*kept, option)

    def forget(self) -> None:
        """Nothing is asked for, and nothing was answered."""
        self.wish = ()
        self._answers.clear()

    def answer(self, rank: int) -> Dump | None:
        """What a rank answered to the wish."""
        return self._answers.get((rank, self.wish))

    async def ask(self, stacks: Stacks, rank: int) -> None:
        """Ask a rank.

        :raises CockpitError: it cannot be asked
        """
        wish = self.wish
        self._answers[rank, wish] = await stacks.look(rank, **dict.fromkeys(wish, True))


INTERVAL_S = 1.0
"""Seconds between two samples that are taken at one request."""


class Taking:
    """Asks the ranks of one job, for its screen.

    :param screen: tells, and holds the workers
    :param samples: which sample is shown
    :param why_not_live: why the ranks of a snapshot from disk cannot be asked; empty if they can
    """

    def __init__(
        self, screen: CommandScreen, stacks: Stacks, samples: SampleCursor, why_not_live: Callable[[], str]
    ) -> None:
        self._screen = screen
        self._stacks = stacks
        self._samples = samples
        self._why_not_live = why_not_live
        self._worker: Worker[None] | None = None
        self.alone = AskedAlone()
        """What the chosen rank alone is asked for."""
        self._asking = ""
        """What it is being asked for, in words."""

    # Samples of all ranks

    @property
    def goes_on(self) -> bool:
        """Whether a sample is being taken, or will be in a moment."""
        return self._worker is not None and self._worker.is_running

    def why_no_sample(self) -> str:
        """Why none can be taken now; empty if one can."""
        if self._stacks.recorded:
            return self._why_not_live()
        if self.goes_on:
            return f"a sample is being taken; {self._screen.app.key_of('cancel')} ends it"
        return ""

    @property
    def again(self) -> str:
        """How to ask the ranks of a snapshot from disk again; empty if they cannot be."""
        live = self._stacks.recorded and not self._why_not_live()
        return f"{self._screen.app.key_of('sample')} asks the ranks now" if live else ""

    def take(self, samples: int = 1) -> None:
        """Take so many samples, one after the other."""
        self._worker = self._screen.run_worker(self._take(samples), group="sample")

    async def _take(self, samples: int) -> None:
        for number in range(samples):
            if number:
                await asyncio.sleep(INTERVAL_S)
            try:
                await self._stacks.take()
            except CockpitError as error:
                self._screen.app.complain(error)
                return

    def cancel(self) -> None:
        """End the sample under way, else the wait for the next one; what has come stays."""
        if self._stacks.busy:
            self._stacks.cancel()
        elif self._worker is not None:
            self._worker.cancel()

    def save(self) -> None:
        """Write the snapshot's folder, and say where it is."""
        self._screen.run_worker(self._save(), group="save", exclusive=True)

    async def _save(self) -> None:
        try:
            path = await asyncio.to_thread(self._stacks.save)
        except CockpitError as error:
            self._screen.app.complain(error)
            return
        text = f"the snapshot is in {path} · cockpit stacks FOLDER opens it again"
        self._screen.notify(text, timeout=12)

    # One rank alone

    def why_no_asking(self, rank: int, option: str) -> str:
        """Why a rank cannot be asked for more; empty if it can."""
        snapshot = self._stacks.snapshot
        if self._stacks.recorded:
            taken = "with" if snapshot.options.get(option) else "without"
            told = f"this snapshot was taken {taken} {option_words([option])}"
            return "; ".join(filter(None, (told, self.again)))
        if option in self.alone.wish:
            return ""
        newest = snapshot.dumps(rank)[-1:]
        ended = next((dump.what for dump in newest if dump.error in ("gone", "zombie")), "")
        why = snapshot.ranks[rank].why or ended
        return f"rank {rank}: {why}" if why else ""

    def toggle(self, rank: int, option: str, answered: Callable[[], object]) -> None:
        """Ask a rank for more, or show again what every rank was asked for.

        :param answered: called once it has answered or cannot
        """
        self.alone.toggle(option)
        if self.alone.wish and self.alone.answer(rank) is None:
            self._screen.run_worker(self._ask(rank, answered), group="look", exclusive=True)

    async def _ask(self, rank: int, answered: Callable[[], object]) -> None:
        asking = self._asking = f"asking rank {rank} for {option_words(self.alone.wish)}"
        try:
            await self.alone.ask(self._stacks, rank)
        except CockpitError as error:
            self.alone.wish = ()
            self._screen.app.complain(error)
        finally:
            # One that took another's place may ask already.
            if self._asking is asking:
                self._asking = ""
        answered()

    def activity(self) -> Activity | None:
        """A rank that is asked alone, else the sample under way."""
        if self._asking:
            return Activity(self._asking)
        samples = self._stacks.snapshot.samples
        if samples and self._samples.under_way(samples[-1]):
            sample = samples[-1]
            share = len(sample.dumps) / self._stacks.asked if self._stacks.asked else None
            return Activity(f"sample {len(samples)}: {self._samples.progress(sample)}", share)
        if self.goes_on:
            return Activity(f"one more sample in a moment, {len(samples)} taken")
        return None
