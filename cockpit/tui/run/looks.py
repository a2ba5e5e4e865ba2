"""The screens that look at a run's ranks or nodes: its stacks, what was kept, the doctor's, a profile.

Imported at the first key that asks for one: they bring along much that the run's own screen does without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cockpit.base.shell import join
from cockpit.core.profile.gain import Ahead
from cockpit.engine.doctor import examine, wanted_again, words_again
from cockpit.engine.extra_facts import Facts
from cockpit.engine.profile.choose import Wish
from cockpit.engine.profile.known import known_of, store_of
from cockpit.engine.profile.taking import Taking
from cockpit.engine.run.board import Board
from cockpit.engine.run.session import Session
from cockpit.engine.stacks.ask import Ask, Party
from cockpit.engine.stacks.evidence import none_of
from cockpit.engine.stacks.take import ReplayedStacks, Sampler
from cockpit.engine.stacks.targets import RunParty, spawned
from cockpit.errors import CockpitError
from cockpit.plans.launch import PER_NODE
from cockpit.tui.command_screen import CommandScreen, Handler
from cockpit.tui.panes.finder import Item
from cockpit.tui.profile.form import ask
from cockpit.tui.profile.job import Job, earlier_items
from cockpit.tui.profile.screen import ProfileScreen
from cockpit.tui.run.doctor_screen import DoctorScreen
from cockpit.tui.stacks.evidence_screen import EvidenceScreen
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

    @property
    def _live(self) -> Handler:
        """What asks the ranks again, from a snapshot of before."""
        return Handler(self.stacks, lambda: self.screen.why_not("stacks"))

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
        self.screen.app.push_screen(StackScreen(taken, live=self._live))

    def evidence(self) -> None:
        """List the looks at all ranks that were kept."""
        folder, model = self.board.folder, self.board.model
        self.noted("evidence", ["stacks", folder.name, "--list"])

        def why() -> str:
            return none_of(folder, model) or "what the nodes saved has not been fetched yet"

        self.screen.app.push_screen(EvidenceScreen(folder.name, folder.path / "stacks", why, live=self._live))

    def profile(self, marked: Callable[[], Mapping[str, frozenset[int]]], why_not: Callable[[], str]) -> None:
        """Ask what to profile, and show that, or an earlier one; see :class:`Job`."""
        job = self._job(marked, why_not)
        ask(self.screen, job, partial(self._show_profile, job))

    def profiles(self, why_not: Callable[[], str]) -> Iterator[Item]:
        """The profiles that are here, to find one by name."""
        job = self._job(dict, why_not)
        return earlier_items(job, partial(self._show_profile, job))

    def _job(self, marked: Callable[[], Mapping[str, frozenset[int]]], why_not: Callable[[], str]) -> Job:
        return Job(
            self.board.folder,
            store_of(self.board.folder),
            self.session.pool,
            self._prepare,
            why_not,
            self.noted,
            {rank: at for node in self.board.manifest.nodes for at, rank in enumerate(node.ranks)},
            marked,
            self._ahead,
        )

    def _ahead(self) -> Ahead:
        metrics = self.board.metrics
        tokens = () if self.board.model.over else metrics.series("tokens_s")[-1:]
        left_s = None if self.board.model.over else metrics.time_left(self.board.now)
        return Ahead(left_s, tokens[0][1] if tokens else None)

    def _show_profile(self, job: Job, shown: Taking | int | None) -> None:
        if shown is not None:
            self.screen.app.push_screen(ProfileScreen(job, shown))

    async def _prepare(self, wish: Wish) -> Taking:
        """Ask the nodes what a profile would meet.

        :raises CockpitError: there can be none now, and why
        """
        board, session = self.board, self.session
        party: Party = RunParty(board.manifest, board.model, session.pool.at_hand)
        if board.manifest.launcher == PER_NODE:
            party = await spawned(board.manifest, session.pool, party.nodes) or party
        store = store_of(board.folder)
        known = partial(known_of, store, party.command, board.model, session.saves, board.folder)
        taking = Taking(party, wish, store, known)
        await taking.prepare()
        return taking

    def doctor(self) -> None:
        """Examine the run's nodes, and show what was found."""
        manifest, pool = self.board.manifest, self.session.pool
        words = words_again(manifest)
        self.noted("doctor", words)
        look = partial(examine, pool, wanted_again(manifest, self.session.model))
        self.screen.app.push_screen(DoctorScreen(look, lambda: pool.roll, join(["cockpit", *words])))
