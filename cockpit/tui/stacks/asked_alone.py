"""What the chosen rank alone is asked for, and what it answered."""

from __future__ import annotations

from cockpit.base.stacks.dump import Dump
from cockpit.engine.stacks.take import Stacks
from cockpit.tui.commands import Id

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
