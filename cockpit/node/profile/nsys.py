"""A profile by nsys, of a run that was launched ready for it: a keeper records, its words are passed on."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import tempfile
import time
from typing import Any, Dict, Iterator, Tuple

from cockpit.base import verbs
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


def ready(folder: str) -> Tuple[str, str]:
    """Why nothing can be recorded in a run, or nothing; and the temporary folder of its nsys."""
    try:
        session = nsys_session.find(folder)
        number = nsys_session.lock(folder)
        if number is None:
            return "another nsys profile of it is running", session.temporary
        os.close(number)
        if not session.state():
            return "its nsys session has ended", session.temporary
    except NoSession as error:
        return str(error), tempfile.gettempdir()
    return "", session.temporary


def run(call: Call, asked: verbs.Profile) -> Dict[str, Any]:
    """Have a keeper record, and pass on what it says; it ends as the request does, soon after."""
    order = {
        "dir": asked.dir,
        "stem": _stem(asked),
        "collection": asked.collection,
        "targets": [[target.rank, target.pid, target.ticks] for target in asked.targets],
        "first": asked.first,
        "steps": asked.steps,
        "seconds": asked.seconds,
        "deadline_s": asked.deadline_s,
    }
    keeper = _Keeper(order)
    at_end.append(keeper.cancel)
    left, state = {target.rank for target in asked.targets}, ""
    try:
        for item in keeper.says(call):
            state = item["state"]
            if state in _OVER:
                left.discard(item["rank"])
            call.item(item)
            if not left:
                break
    finally:
        at_end.remove(keeper.cancel)
        keeper.cancel()
    for rank in left:
        if call.cancelled:
            what = "nsys still writes its report" if state in _WRITES else ""
            call.item({"rank": rank, "state": "cancelled", "what": what})
        else:
            call.item({"rank": rank, "state": "failed", "what": "what records it has ended"})
    return {}


def _stem(asked: verbs.Profile) -> str:
    """What the report is called, without its suffix: ``RUN.NODE.nsys.COLLECTION``."""
    facts = read_record(asked.dir)
    whose = ("%s.%s" % (facts["run"], facts["node"])).replace("/", "_").encode("utf-8", "replace")
    what = ".nsys." + asked.collection
    return whose[: 240 - len(what)].decode("utf-8", "ignore") + what


class _Keeper:
    """The process that records.

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
        self._told = False
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

    def says(self, call: Call) -> Iterator[Dict[str, Any]]:
        """Its items, until it ends, or for a while after the request is cancelled."""
        assert self._process.stdout is not None
        number, rest = self._process.stdout.fileno(), b""
        end, state = float("inf"), ""
        while time.monotonic() < end and not (call.cancelled and state in _WRITES):
            if call.cancelled and not self._told:
                self.cancel()
                end = time.monotonic() + GOES_S
            if not select.select([number], [], [], POLL_S)[0]:
                continue
            data = os.read(number, LINE)
            if not data:
                self._process.wait()
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                item = json.loads(line.decode())
                state = item["state"]
                yield item
