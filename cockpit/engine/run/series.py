"""All numbers of a run as rows, from what is here: its pace, and its log that says most."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cockpit.core.logs.sources import Output
from cockpit.core.logs.trackers import Tracker
from cockpit.core.pace.past import PastStep
from cockpit.core.pace.series import Ends, Row, rows
from cockpit.core.pace.step import Key
from cockpit.core.run.model import RunModel
from cockpit.engine.logs.spooled import SpooledLogs
from cockpit.engine.logs.step_log import pages, said, speaker
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.paces import PaceBook, kept


class RunSeries:
    """The numbers of a run.

    :param model: knows the clocks of its nodes
    :param book: has been told what nodes report now
    """

    def __init__(self, folder: RunFolder, model: RunModel, book: PaceBook) -> None:
        self._folder = folder
        self._model = model
        self._book = book
        self._logs = SpooledLogs(folder)
        self.pages: list[tuple[Output, Tracker]] = pages(self._logs)
        """The pages about the run that its logs name, and whose log."""
        self.source = speaker(self._logs)
        """Whose log says what is said; None: none says anything."""

    def rows(self, progress: Callable[[float], object] = lambda share: None) -> Iterator[Row]:
        """One row a step, in their order; logs that cannot be read are in :attr:`troubles`.

        :param progress: is told the share of the log that has been read, 0 to 1, now and then
        :raises CockpitError: the file of the pace cannot be read
        """
        words = (
            () if self.source is None else said(self._folder, self._model, self._logs, self.source, progress)
        )
        return rows(self._steps(), Ends(self._steps()), words, len(self._model.ranks))

    @property
    def relative(self) -> bool:
        """Whether ranks count steps from the start of the program."""
        return any(step.relative for step in self._steps())

    def _steps(self) -> Iterator[PastStep]:
        last: Key = (-1, -1)
        for step in kept(self._folder):
            last = (step.restarts, step.step)
            yield step
        yield from self._book.after(last)

    @property
    def troubles(self) -> list[str]:
        """What could not be read, and why."""
        return [str(error) for error in self._logs.unreadable.values()]

    def close(self) -> None:
        """Close the files."""
        self._logs.close()
