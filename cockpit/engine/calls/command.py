"""A person's own command, which gets a call as JSON on its stdin; no word from a node is in its words."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from contextlib import suppress

from cockpit.core.calls.calls import Call
from cockpit.core.run.states import signal_name
from cockpit.core.text import one_line

LIMIT_S = 10.0
"""Seconds for the command; then it is killed, with what it has started."""

SAID = 2048
"""Bytes of what it writes to stderr that are kept: the last ones."""

_POLL_S = 0.05


def run(command: str, call: Call, limit_s: float = LIMIT_S) -> str:
    """Run it with /bin/sh and wait for its end; give why it failed, in a line; empty: it did not.

    It has a session of its own: it gets no Ctrl-C of ours, and has no way to this terminal.

    :param limit_s: seconds until it is killed
    """
    try:
        return _run(command, json.dumps(call.as_json()).encode() + b"\n", limit_s)
    except OSError as error:
        return f"cannot be started: {error.strerror}"
    except ValueError as error:  # it has a NUL, or characters that this locale has not
        return one_line(f"cannot be started: {error}", limit=200)


def _run(command: str, data: bytes, limit_s: float) -> str:
    read, write = os.pipe()
    os.set_blocking(read, False)
    try:
        try:
            # A file, not a pipe: a command that does not read it must not hold anything up.
            with tempfile.TemporaryFile() as stdin:
                stdin.write(data)
                stdin.seek(0)
                process = subprocess.Popen(
                    ["/bin/sh", "-c", command],
                    stdin=stdin,
                    stdout=subprocess.DEVNULL,
                    stderr=write,
                    start_new_session=True,
                )
        finally:
            os.close(write)
        said, in_time = _followed(process, read, limit_s)
    finally:
        os.close(read)
    words = one_line(said.strip().rpartition(b"\n")[2], limit=200)
    why = f": {words}" if words else ""
    if not in_time:
        return f"not done within {limit_s:g} s, and killed{why}"
    code = process.returncode
    if code < 0:
        return f"killed by {signal_name(-code)}{why}"
    return f"exited {code}{why}" if code else ""


def _followed(process: subprocess.Popen[bytes], read: int, limit_s: float) -> tuple[bytes, bool]:
    """The end of what it said, and whether it ended in time; children that it left do not matter."""
    deadline = time.monotonic() + limit_s
    said, heard = b"", True
    while process.poll() is None:
        if time.monotonic() >= deadline:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return said, False
        if heard and select.select([read], [], [], _POLL_S)[0]:
            data = os.read(read, 1 << 16)
            said, heard = (said + data)[-SAID:], bool(data)
        elif not heard:
            time.sleep(_POLL_S)
    with suppress(BlockingIOError):
        said = (said + os.read(read, 1 << 16))[-SAID:]
    return said, True
