"""A process that sums something up for a request, and whose turn it is to have one."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import signal
import subprocess
import tempfile
import time
from typing import IO, Optional, Sequence, Tuple

from cockpit.base.regular import read_all

_PR_SET_PDEATHSIG = 1
_BUSY = (errno.EAGAIN, errno.EACCES)
_SAID = 4096
"""Bytes of its last words that are read."""


class Turn:
    """Of all on this node who would sum up a file of a folder, one does."""

    def __init__(self, folder: str) -> None:
        self._number = -1
        with contextlib.suppress(OSError):
            self._number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def take(self) -> bool:
        """Whether it is ours now, until it is given back or closed."""
        try:
            fcntl.flock(self._number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno not in _BUSY  # without locks there is no turn to wait for
        return True

    def give(self) -> None:
        """It may be another's."""
        with contextlib.suppress(OSError):
            fcntl.flock(self._number, fcntl.LOCK_UN)

    def close(self) -> None:
        """For good."""
        if self._number >= 0:
            os.close(self._number)


class Child:
    """A process that ends with the thread of its request, however that ends.

    :param numbers: descriptors that it inherits
    :param folder: where it works; None: where we do
    :param given: what it reads from stdin
    :param limit_s: seconds after which it is ended
    :raises OSError: it cannot be started
    """

    def __init__(
        self,
        words: Sequence[str],
        numbers: Tuple[int, ...] = (),
        *,
        limit_s: float,
        folder: Optional[str] = None,
        given: bytes = b"",
    ) -> None:
        libc, parent = ctypes.CDLL(None), os.getpid()

        def tied() -> None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)

        self._limit_s, self._end = limit_s, time.monotonic() + limit_s
        self._late = False
        with contextlib.ExitStack() as files:
            stdin, self._out, self._errors = (
                files.enter_context(tempfile.TemporaryFile("w+b")) for _ in range(3)
            )
            stdin.write(given)
            stdin.seek(0)
            self._process = subprocess.Popen(
                words,
                cwd=folder,
                stdin=stdin,
                stdout=self._out,
                stderr=self._errors,
                pass_fds=numbers,
                start_new_session=True,
                preexec_fn=tied,
            )
            self._files = files.pop_all()

    def done(self) -> bool:
        """Whether it has ended; one that takes too long does."""
        if self._process.poll() is None and time.monotonic() > self._end:
            self._late = True
            self.kill()
        return self._process.poll() is not None

    def kill(self) -> None:
        """Nobody wants it any more, nor what it has started."""
        if self._process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """What it wrote is not read any more."""
        self._files.close()

    def written(self, most: int) -> bytes:
        """What it wrote to stdout.

        :raises OSError: that is more than so many bytes; or it failed, with the last line that it said
        """
        code = self._process.returncode
        if code:
            why = "killed by signal %d" % -code if code < 0 else "status %d" % code
            late = "it took over %g s" % self._limit_s if self._late else ""
            raise OSError(0, late or self._said(self._errors) or self._said(self._out) or why)
        self._out.seek(0)
        return read_all(self._out, most)

    @staticmethod
    def _said(file: IO[bytes]) -> str:
        """The last line."""
        file.seek(max(0, file.seek(0, os.SEEK_END) - _SAID))
        lines = [line.strip() for line in re.split(rb"[\r\n]+", file.read(_SAID))]
        last = next(filter(None, reversed(lines)), b"")
        return last.decode("utf-8", "replace").replace("cockpit: ", "", 1)
