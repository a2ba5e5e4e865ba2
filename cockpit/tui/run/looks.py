"""The screens that look at a run's ranks or nodes: its stacks, those of a stall, what was kept, the doctor's.

Imported at the first key that asks for one: they bring along much that the run's own screen does without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cockpit.base.shell import join
from cockpit.engine.doctor import examine, wanted_again, words_again
from cockpit.engine.extra_facts import Facts
from cockpit.engine.run.board import Board
from cockpit.engine.run.session import Session
from cockpit.engine.stacks.ask import Ask, Party
from cockpit.engine.stacks.evidence import none_of
from cockpit.engine.stacks.parties import RunParty, spawned
from cockpit.engine.stacks.take import ReplayedStacks, Sampler
from cockpit.errors import CockpitError
from cockpit.plans.launch import PER_NODE
from cockpit.tui.command_screen import CommandScreen
from cockpit.tui.run.doctor_screen import DoctorScreen
from cockpit.tui.stacks.evidence_screen import KeptScreen
from cockpit.tui.stacks.screen import StackScreen


@dataclass(eq=False)
class Looks:
    """Opens them over the run's screen.

    :param noted: adds to the list of commands: a title, and the words to type
    """

    screen: CommandScreen
    board: Board
    session: Session
    noted: Callable[[str, Sequence[str]], None]

    def stacks(self) -> None:
        """Take the stacks of all ranks, and show them."""
        party = RunParty(self.board.manifest, self.board.model, self.session.pool.at_hand)
        self.noted("stacks", ["stacks", self.board.folder.name])
        if self.board.manifest.launcher == PER_NODE:
            self.screen.run_worker(self._stacks_of_spawned(party), group="stacks", exclusive=True)
        else:
            self._show_stacks(party, Facts(party, self.session.pace))

    async def _stacks_of_spawned(self, programs: RunParty) -> None:
        """Those of the ranks that the run's programs have started."""
        party = await spawned(self.board.manifest, self.session.pool, programs.nodes) or programs
        self._show_stacks(party, Facts(party))

    def _show_stacks(self, party: Party, more: Facts) -> None:
        sampler = Sampler(party, Ask(), self.board.folder.path / "stacks", more)
        self.screen.app.push_screen(StackScreen(sampler))

    def stall_stacks(self) -> None:
        """Show the look at all ranks that the watch has kept; its name is that of a folder of ours."""
        root, name = self.board.folder.path / "stacks", self.board.model.watch.snapshot
        try:
            if Path(name).name != name:
                raise CockpitError("no snapshot has that name", where=name)
            taken = ReplayedStacks(root / name)
        except CockpitError as error:
            self.screen.app.complain(error)
            return
        self.noted("stacks of the stall", ["stacks", str(root / name)])
        self.screen.app.push_screen(StackScreen(taken))

    def evidence(self) -> None:
        """List the looks at all ranks that were kept."""
        folder, model = self.board.folder, self.board.model
        self.noted("evidence", ["stacks", folder.name, "--list"])

        def why() -> str:
            return none_of(folder, model) or "what the nodes saved has not been fetched yet"

        self.screen.app.push_screen(KeptScreen(folder.name, folder.path / "stacks", why))

    def doctor(self) -> None:
        """Examine the run's nodes, and show what was found."""
        manifest, pool = self.board.manifest, self.session.pool
        words = words_again(manifest)
        self.noted("doctor", words)
        look = partial(examine, pool, wanted_again(manifest, self.session.model))
        self.screen.app.push_screen(DoctorScreen(look, lambda: pool.roll, join(["cockpit", *words])))
