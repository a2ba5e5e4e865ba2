"""Reading the logs in a run's spool at any place."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence

from cockpit.base.record import LAUNCHER_LOG, rank_log
from cockpit.engine.runs import RunFolder
from cockpit.errors import CockpitError

Source = tuple[str, int | None]
"""Who prints: a node and a global rank; None is the launcher's console on that node."""

_OPEN_FILES = 128
"""Files kept open: a run may have more logs than a process may have files."""


class SpooledLogs:
    """The logs of a run, by number: consoles in the order of the nodes, then ranks in their order.

    :param folder: the run's folder
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folders = {node.name: str(folder.spool_dir(node)) for node in folder.manifest.nodes}
        consoles: list[Source] = [(name, None) for name in self._folders]
        ranks = sorted((rank, node.name) for node in folder.manifest.nodes for rank in node.ranks)
        self.sources: list[Source] = consoles + [(name, rank) for rank, name in ranks]
        """Who writes each log."""
        self._numbers = {source: number for number, source in enumerate(self.sources)}
        self._open: OrderedDict[int, int] = OrderedDict()

    def number(self, source: Source) -> int:
        """The number of a log; one that the manifest does not name comes last."""
        number = self._numbers.get(source)
        if number is None:
            number = self._numbers[source] = len(self.sources)
            self.sources.append(source)
        return number

    def numbers(self, sources: Sequence[Source] | frozenset[Source]) -> frozenset[int]:
        """The numbers of those logs that there are."""
        return frozenset(self._numbers[source] for source in sources if source in self._numbers)

    def size(self, number: int) -> int:
        """Bytes of a log that are here.

        :raises CockpitError: it cannot be read
        """
        file = self._file(number)
        return 0 if file is None else os.fstat(file).st_size

    def read(self, number: int, start: int, length: int) -> bytes:
        """Bytes of a log; fewer where the others are not here.

        :raises CockpitError: it cannot be read
        """
        file = self._file(number)
        if file is None:
            return b""
        try:
            data = os.pread(file, length, start)
            while (
                data
                and len(data) < length
                and (more := os.pread(file, length - len(data), start + len(data)))
            ):
                data += more
        except OSError as error:
            raise self._unreadable(number, error) from None
        return data

    def _file(self, number: int) -> int | None:
        file = self._open.get(number)
        if file is not None:
            self._open.move_to_end(number)
            return file
        try:
            file = os.open(self._path(number), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(number, error) from None
        self._open[number] = file
        if len(self._open) > _OPEN_FILES:
            os.close(self._open.popitem(last=False)[1])
        return file

    def _path(self, number: int) -> str:
        node, rank = self.sources[number]
        return f"{self._folders[node]}/{LAUNCHER_LOG if rank is None else rank_log(rank)}"

    def _unreadable(self, number: int, error: OSError) -> CockpitError:
        return CockpitError(f"cannot read the spool: {error.strerror}", where=self._path(number))

    def close(self) -> None:
        """Close the files."""
        while self._open:
            os.close(self._open.popitem()[1])
