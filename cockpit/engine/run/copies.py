"""Our copies of what nodes send: how long each is, where it goes on, and whether there is room for more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from cockpit.base.events import Fact, Gap, Note
from cockpit.base.gate import Malformed
from cockpit.base.record import EVENTS, INDEX
from cockpit.base.trail import SPAN, Trail
from cockpit.config import Quotas
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.engine.logs.spool import RECORD, Shelf, Spool
from cockpit.engine.quotas import QuotaReached
from cockpit.engine.records.folder import RunFolder
from cockpit.errors import NoRoom

CREDIT = 4 << 20
"""Bytes of logs in flight per node: enough to fill a link, few enough to keep keys responsive."""
PORTION = CREDIT // 4
"""Credit is returned in portions: every message wakes the agent."""

GAPS, GAP_S = 64, 5.0
"""A file that has begun anew so many times does so once in that many seconds: our agents send no more."""


class Copies:
    """The copies of the files of all nodes; where another cockpit writes them, they are only counted.

    :param quotas: how much may be kept
    :param writes: whether this process keeps them
    :param remark: takes what is said of a node to whoever watches now
    """

    def __init__(
        self,
        folder: RunFolder,
        quotas: Quotas,
        model: RunModel,
        *,
        writes: Callable[[], bool],
        remark: Callable[[str, Fact], None],
    ) -> None:
        self._shelf = Shelf(folder.path, quotas)
        self.spools = {
            node.name: Spool(folder.spool_dir(node), self._shelf) for node in folder.manifest.nodes
        }
        self.sizes: dict[str, dict[str, int]] = {name: {} for name in self.spools}
        """How long each copy is, by node and file."""
        self.paused: dict[str, QuotaReached] = {}
        """Nodes whose logs wait there because there is no room here, and why; their states still arrive."""
        self._model, self._writes, self._remark = model, writes, remark
        self._left: set[tuple[str, str]] = set()
        """Files that there is no room for here, though there is for the rest of their node."""
        self._trails: dict[tuple[str, str], Trail] = {}
        """What is here of the file that a node has now, in short."""
        self._begun: dict[tuple[str, str], tuple[int, float]] = {}
        """How often each file has begun anew, and when last (monotonic seconds)."""
        self._told: dict[tuple[str, str], int] = {}
        """How far files were told of here that are taken in again: another cockpit had kept less of them."""

    # Where they go on

    def size(self, name: str, file: str) -> int:
        """How long a copy is."""
        return self.sizes[name].get(file, 0)

    def there(self, name: str, file: str) -> int:
        """How far it goes in the file that the node has now: where that is read on."""
        return max(0, self.size(name, file) - self._model.nodes[name].begin(file))

    def trail(self, name: str, file: str) -> Trail:
        """What is here of the file that the node has now, in short."""
        trail = self._trails.get((name, file))
        if trail is None:
            spool, there, end = self.spools[name], self.there(name, file), self.size(name, file)
            span = min(SPAN, there)
            head, tail = spool.read(file, end - there, span), spool.read(file, end - span, span)
            trail = self._trails[name, file] = Trail(there, head, tail)
        return trail

    def behind(self, name: str, sizes: Mapping[str, int]) -> int:
        """How much a node whose files are so long has that is not here, and is to come."""
        wanted = (file for file in sizes if (name, file) not in self._left)
        return sum(max(0, sizes[file] - self.there(name, file)) for file in wanted)

    def recall(self, name: str, kept: Callable[[str, int], int]) -> dict[str, int]:
        """Go by the files on the disk; return what was known of them before.

        :param kept: how much of a file of this size is known to be right; the rest is taken back
        :raises SpoolUnusable: they cannot be read, or cut
        """
        spool, before = self.spools[name], self.sizes[name]
        spool.look_again()
        for key in [key for key in self._trails if key[0] == name]:
            del self._trails[key]
        sizes = spool.offsets()
        for file, size in sizes.items():
            sizes[file] = min(size, kept(file, size))
            if sizes[file] < size and self._writes():
                spool.cut(file, sizes[file])
        self.sizes[name] = sizes
        return before

    def fresh(self, name: str, before: Mapping[str, int]) -> Iterator[tuple[str, int, bytes]]:
        """What files have now that they did not have before; what they lack is not to be told again."""
        here = self.sizes[name]
        for file, size in here.items():
            for at, data in self.between(name, file, before.get(file, 0), size):
                yield file, at, data
        self._told.update({(name, file): at for file, at in before.items() if at > here.get(file, 0)})

    def between(self, name: str, file: str, at: int, end: int) -> Iterator[tuple[int, bytes]]:
        """What a file on the disk has there, as far as it can be read: pieces and their offsets."""
        while at < end and (data := self.spools[name].read(file, at, min(PORTION, end - at))):
            yield at, data
            at += len(data)

    def untold(self, name: str, file: str, offset: int, data: bytes) -> tuple[int, bytes]:
        """The part of new bytes of a copy that was not told before."""
        until = self._told.get((name, file))
        if until is None:
            return offset, data
        known = max(0, min(len(data), until - offset))
        if offset + known >= until:
            del self._told[name, file]
        return offset + known, data[known:]

    # Growing

    def add(self, name: str, file: str, data: bytes) -> bool:
        """Keep the next bytes of a file; return whether there was room for them.

        :raises QuotaReached: there is none for its run record
        :raises CockpitError: they cannot be kept
        """
        size = self.size(name, file)
        if self._writes():
            try:
                self.spools[name].append(file, size, data)
            except QuotaReached as error:
                if file == EVENTS:
                    raise
                if file in INDEX:
                    self._left.add((name, file))  # costs the order of its output, but no bytes
                else:
                    self.pause(name, error)
                return False
        self.trail(name, file).add(data)
        self.sizes[name][file] = size + len(data)
        return True

    def renew(self, name: str, file: str, data: bytes = b"") -> None:
        """A file was thinned: what comes stands for all that is here.

        :raises CockpitError: that cannot be taken back
        """
        if self._writes():
            self.spools[name].cut(file, 0)
        self._trails.pop((name, file), None)
        self.sizes[name][file] = 0
        self.add(name, file, data)

    def waits(self, name: str, file: str) -> bool:
        """Whether bytes of a file are not taken now."""
        return (name in self.paused and file not in RECORD) or (name, file) in self._left

    def gap(self, name: str, file: str, lost: int | None, of: str = "") -> Gap:
        """A file begins anew on its node: what comes of it is from its start.

        :param lost: bytes that are missing, at least
        :param of: see :class:`cockpit.base.events.Gap`
        :raises Malformed: it does so all the time
        """
        key = name, of or file
        count, last = self._begun.get(key, (0, 0.0))
        if count >= GAPS and time.monotonic() < last + GAP_S:
            raise Malformed(f"{of or file} is truncated or replaced too often")
        self._begun[key] = count + 1, time.monotonic()
        if not of:
            self._trails[key] = Trail()
            self._told.pop(key, None)  # what comes is something else
        return Gap(file, self.size(name, file), lost, of)

    # Room

    def pause(self, name: str, why: QuotaReached) -> None:
        """The logs of a node wait there."""
        self.paused[name] = why
        self._remark(name, Note(f"log transfer paused, not enough disk space here: {why}"))

    def follows(self, name: str) -> None:
        """A node is asked for all that is not here."""
        self.paused.pop(name, None)
        self._left = {each for each in self._left if each[0] != name}

    def has_room(self, name: str) -> bool:
        """Whether a node's logs waited, and need not wait any longer."""
        if name not in self.paused or self.spools[name].wait_for(PORTION):
            return False
        self._remark(name, Note("enough disk space here again: log transfer resumes"))
        return True

    def refused(self, why: NoRoom) -> QuotaReached:
        """See :meth:`cockpit.engine.quotas.Space.refused`."""
        return self._shelf.room.refused(why)

    @property
    def is_full(self) -> bool:
        """Whether the disk here has refused what was to be kept, and still takes nothing."""
        return self._shelf.room.is_full

    def close(self) -> None:
        """Close the files."""
        for spool in self.spools.values():
            spool.close()


def unknown(said: Iterable[Event], before: Mapping[str, Gap]) -> list[Event]:
    """What was said of each of our files that began anew, after what is known of it."""
    found: dict[str, list[Event]] = {}
    for event in said:
        gap = event.fact
        assert isinstance(gap, Gap)
        known = before.get(gap.file)
        if known is None or gap.at >= known.at:
            found.setdefault(gap.file, []).append(event)
        if gap == known:
            found[gap.file] = []
    return [event for each in found.values() for event in each]
