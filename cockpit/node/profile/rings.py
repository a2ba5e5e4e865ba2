"""The rings of ranks, opened to order a profile by them and to read what becomes of it.

They are read and written by offset, never mapped: the rank's program may cut the file short.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from statistics import median
from typing import Iterator, Optional

from cockpit.base import record
from cockpit.base.gate import Malformed, read
from cockpit.base.profile import order
from cockpit.base.profile.order import Answer, Order
from cockpit.base.progress import ring
from cockpit.base.progress.ring import Ring
from cockpit.base.regular import open_regular
from cockpit.node import procfs, safefiles
from cockpit.node.calls import NodeError
from cockpit.node.measure.progress import Rings
from cockpit.node.run.status import read_record

LAST = 20
"""Steps whose median length is what is usual."""
_WORD = struct.Struct("=Q")
_CANCEL = 6
_SAID = 1000
"""Files in the folder of probes that are looked at."""


class Unable(Exception):
    """A rank cannot be profiled; the text says why."""


class Opened:
    """The ring of a rank's process, until it is closed."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.process = (0, 0)
        """Pid and start time of the process whose ring it is, once it is known."""

    def read(self) -> Ring:
        """All of it.

        :raises Unable: the program has spoilt it
        """
        try:
            return ring.read(os.pread(self._number, ring.SIZE + 1, 0))
        except (OSError, ValueError) as error:
            raise Unable("its ring of steps is damaged: %s" % error) from None

    def answer(self) -> Answer:
        """What its hook has said last.

        :raises Unable: the program has spoilt it
        """
        found = order.answer(self._page())
        if max(found[2:9]) > ring.MOST_NS:
            raise Unable("its answer is nonsense")
        return found

    def _page(self) -> bytes:
        try:
            page = os.pread(self._number, order.SIZE, ring.ORDER)
        except OSError as error:
            raise Unable("its ring of steps is damaged: %s" % error) from None
        if len(page) < order.SIZE:
            raise Unable("its probe is that of an earlier cockpit")
        return page

    def order(self, one: Order) -> None:
        """Have its hook do it; an earlier order, whose agent is gone, ends with that."""
        os.pwrite(self._number, order.packed(one), ring.ORDER + _WORD.size)
        os.pwrite(self._number, _WORD.pack(one.number), ring.ORDER)

    def cancel(self, number: int) -> None:
        """Have it end the order of this number."""
        os.pwrite(self._number, _WORD.pack(number), ring.ORDER + _CANCEL * _WORD.size)

    def lock(self) -> None:
        """Be the one who orders, until it is closed.

        :raises Unable: another agent is
        """
        for left in reversed(range(4)):  # who only asks whether there is one holds it for a moment
            try:
                fcntl.flock(self._number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    return
            if left:
                time.sleep(0.05)
        raise Unable("another profile of it is running")

    def close(self) -> None:
        """It is not needed any more."""
        os.close(self._number)


class Finder:
    """Finds the rings of a run's ranks.

    :param folder: of the run; empty: of a job that has none
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._why = ""
        place = ""
        if folder:
            try:
                place = str(read_record(folder).get("rings") or "")
            except NodeError as error:
                self._why = error.what
        else:
            self._why = "cockpit did not start it, so it has no probe"
        self._rings = Rings(place)
        self._rings.look()

    def open(self, rank: int) -> Opened:
        """That of the living process that stepped last.

        :raises Unable: there is none, or no profile can be ordered by it, and why
        """
        found: Optional[Opened] = None
        newest, why = -1, ""
        for pid in self._rings.pids(rank):
            try:
                one = Opened(open_regular(self._rings.path(rank, pid), os.O_RDWR))
            except OSError:
                continue
            try:
                said = one.read()
            except Unable as error:
                one.close()
                why = str(error)
                continue
            last = said.steps[-1].mono_ns if said.steps else 0
            alive = (said.rank, said.pid) == (rank, pid) and procfs.alive(pid, said.ticks)
            if not alive or last <= newest:
                one.close()
                continue
            if found is not None:
                found.close()
            found, newest = one, last
            one.process = said.pid, said.ticks
        if found is None:
            raise Unable(self._why or why or self._unprobed(rank))
        return found

    def _unprobed(self, rank: int) -> str:
        """Why a rank has no ring, as its probe says."""
        for said in _said(os.path.join(self._folder, record.PROBE), rank):
            if said.steps:
                return "its probe counts no steps: %s" % said.steps
        return "no probe counts its steps"


def ready(said: Ring) -> None:
    """Check that the hook of a ring counts.

    :raises Unable: it does not, and why
    """
    if said.broken:
        raise Unable("its probe has stopped: %s" % said.broken)
    if not said.steps:
        raise Unable("it has not finished a step yet")


def usual_s(said: Ring, before: int = ring.MOST_STEP, last: int = LAST) -> Optional[float]:
    """Seconds of a step, the median of so many directly before this one; None: not known."""
    found = [ring.seconds(said.steps, place) for place, one in enumerate(said.steps) if one.step < before]
    known = [each for each in found if each is not None]
    return median(known[-last:]) if known else None


def age_s(said: Ring) -> float:
    """Seconds since its last step ended."""
    return max(0.0, (time.monotonic_ns() - said.steps[-1].mono_ns) / 1e9)


def _said(folder: str, rank: int) -> Iterator[ring.ProbeReport]:
    try:
        names = sorted(os.listdir(folder), reverse=True)[:_SAID]
    except OSError:
        return
    for name in names:
        if name.startswith("%d." % rank) and name.endswith(".json"):
            try:
                yield read(ring.ProbeReport, safefiles.load(os.path.join(folder, name)))
            except (OSError, ValueError, Malformed):
                continue  # the program can write there, too
