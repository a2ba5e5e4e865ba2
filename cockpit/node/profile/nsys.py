"""A profile by nsys, of a run that was launched ready for it: a keeper records, its words are passed on."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import tempfile
import time
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from cockpit.base import record, verbs
from cockpit.base.shared_fields import Target
from cockpit.node import archive
from cockpit.node.calls import Call, at_end
from cockpit.node.run import nsys_session
from cockpit.node.run.nsys_session import NoSession
from cockpit.node.run.status import read_record

POLL_S = 0.2
LINE = 1 << 16
GOES_S = 25.0
"""After a cancel, for nsys to drop what it has recorded."""
_OVER = frozenset(("done", "refused", "failed", "cancelled"))
_WRITES = frozenset(("writing", "importing"))


def ready(folder: str, targets: Sequence[Target]) -> Tuple[Dict[int, str], str]:
    """Why nothing can be recorded of ranks, or nothing; and the temporary folder of their nsys."""
    try:
        places = nsys_session.places(folder, targets)
    except NoSession as error:
        return {target.rank: str(error) for target in targets}, tempfile.gettempdir()
    whys: Dict[int, str] = {}
    temporary = tempfile.gettempdir()
    listed: Dict[str, Dict[str, str]] = {}
    for place in places:
        why = ""
        try:
            session = nsys_session.find(folder, place.file, place.pid)
            temporary = session.temporary
            number = nsys_session.lock(folder, place.file)
            if number is None:
                raise NoSession("another nsys profile of it is running")
            os.close(number)
            if temporary not in listed:
                listed[temporary] = session.listed()
            if session.name not in listed[temporary]:
                raise NoSession("its nsys session has ended")
        except NoSession as error:
            why = str(error)
        whys.update((target.rank, why) for target in place.targets)
    return whys, temporary


def run(call: Call, asked: verbs.Profile) -> Dict[str, Any]:
    """Have a keeper record in each session, and pass on what they say; they end soon after the request."""
    left = {target.rank: "" for target in asked.targets}
    keepers: List[_Keeper] = []

    def cancel() -> None:
        for keeper in keepers:
            keeper.cancel()

    at_end.append(cancel)
    try:
        places = nsys_session.places(asked.dir, asked.targets)
        keepers.extend(_Keeper(_order(asked, place)) for place in places)
        end = float("inf")
        while left and time.monotonic() < end:
            if call.cancelled and end == float("inf"):
                cancel()
                end = time.monotonic() + GOES_S
            if call.cancelled and _WRITES.issuperset(left.values()):
                break
            for item in _said(keepers):
                left[item["rank"]] = item["state"]
                if item["state"] in _OVER:
                    del left[item["rank"]]
                call.item(item)
            if all(keeper.over for keeper in keepers):
                break
    except NoSession as error:
        for rank in left:
            call.item({"rank": rank, "state": "refused", "what": str(error)})
        left.clear()
    finally:
        at_end.remove(cancel)
        cancel()
    for rank, state in left.items():
        if call.cancelled:
            what = "nsys still writes its report" if state in _WRITES else ""
            call.item({"rank": rank, "state": "cancelled", "what": what})
        else:
            call.item({"rank": rank, "state": "failed", "what": "what records it has ended"})
    return {}


def _said(keepers: Sequence[_Keeper]) -> Iterator[Dict[str, Any]]:
    """What is new, within a short time."""
    by_number = {keeper.number: keeper for keeper in keepers if not keeper.over}
    poll = select.poll()
    for number in by_number:
        poll.register(number, select.POLLIN)
    for number, _ in poll.poll(POLL_S * 1000):
        yield from by_number[number].read()


def _order(asked: verbs.Profile, place: nsys_session.Place) -> Dict[str, Any]:
    """The order that a keeper gets."""
    return {
        "dir": asked.dir,
        "file": place.file,
        "pid": place.pid,
        "stem": _stem(asked, place),
        "collection": asked.collection,
        "targets": [[target.rank, target.pid, target.ticks] for target in place.targets],
        "first": asked.first,
        "steps": asked.steps,
        "seconds": asked.seconds,
        "deadline_s": asked.deadline_s,
    }


def _stem(asked: verbs.Profile, place: nsys_session.Place) -> str:
    """What a report is called, without suffix: ``RUN.NODE.nsys.COLLECTION``, ``RUN.NODE.rank-N.nsys.…``."""
    facts = read_record(asked.dir)
    whose = ("%s.%s" % (facts["run"], facts["node"])).replace("/", "_").encode("utf-8", "replace")
    rank = "" if place.file == record.NSYS_SESSION else ".rank-%d" % place.targets[0].rank
    what = "%s.nsys.%s" % (rank, asked.collection)
    return whose[: 240 - len(what)].decode("utf-8", "ignore") + what


class _Keeper:
    """A process that records in one session.

    :raises OSError: it cannot be started
    """

    def __init__(self, order: Dict[str, Any]) -> None:
        command, numbers = archive.command("keep")
        # In a session of its own: whatever ends this agent does not end it.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=numbers,
            start_new_session=True,
            bufsize=0,
            cwd="/",
        )
        assert self._process.stdout is not None
        self.number = self._process.stdout.fileno()
        self.over = False
        self._told = False
        self._rest = b""
        self._write(json.dumps(order).encode() + b"\n")

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended
            self._process.stdin.write(data)

    def cancel(self) -> None:
        """Nobody wants it any more."""
        if not self._told:
            self._told = True
            self._write(b"cancel\n")

    def read(self) -> Iterator[Dict[str, Any]]:
        """Its next items, if it has said some."""
        data = os.read(self.number, LINE)
        if not data:
            self._process.wait()
            self.over = True
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            item: Dict[str, Any] = json.loads(line.decode())
            yield item
