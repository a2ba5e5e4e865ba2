"""A cockpit at a terminal: somebody looks, and types."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator, Mapping

from tests.lab.cockpits import ENV
from tests.lab.lab import Lab
from tests.waiting import PATIENCE_S, until

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|P.*?\x1b\\|[@-_])", re.DOTALL)


class Terminal:
    """A pseudo-terminal on the lab's login node, which is the controlling one of a program.

    :param kind: its ``TERM``; ``dumb`` can show nothing but lines
    :param env: further variables
    """

    def __init__(
        self, lab: Lab, words: list[str], kind: str = "dumb", env: Mapping[str, str] | None = None
    ) -> None:
        self._master, slave = pty.openpty()
        self._settings = os.dup(self._master)
        self._shown = bytearray()
        try:
            self.process: subprocess.Popen[bytes] = lab.popen(
                ["setsid", "--ctty", *words],
                env={**ENV, **(env or {}), "TERM": kind},
                stdin=slave,
                stdout=slave,
                stderr=slave,
            )
        finally:
            os.close(slave)
        self._hung_up = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        # A read that waits would keep the terminal open, closed or not.
        with contextlib.suppress(OSError):  # how Linux says that no program has it open any more
            while not self._hung_up.is_set():
                if select.select([self._master], [], [], 0.05)[0]:
                    data = os.read(self._master, 1 << 16)
                    self._shown += data
        os.close(self._master)

    @property
    def shown(self) -> bytes:
        """All that the terminal got so far."""
        return bytes(self._shown)

    @property
    def text(self) -> str:
        """What it got, without what moves the cursor and sets colours."""
        return _ESCAPE.sub("", self.shown.decode(errors="replace"))

    def modes(self) -> list[object]:
        """The terminal's settings, as of termios."""
        return list(termios.tcgetattr(self._settings))

    def resize(self, columns: int, rows: int) -> None:
        """Another window size; the program is told by the kernel."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        """Press keys; ``\\x03`` is Ctrl-C."""
        os.write(self._master, text.encode())

    def wait_for(self, text: str, timeout: float = PATIENCE_S) -> None:
        """Wait until the terminal shows a text."""
        until(
            lambda: text.encode() in self._shown or (self.process.poll() is not None and self._fail(text)),
            f"the terminal shows {text!r}, after {self.shown[-2000:]!r}",
            timeout=timeout,
        )

    def _fail(self, text: str) -> bool:
        self._reader.join(10)
        assert text.encode() in self._shown, f"ended without {text!r}: {self.shown[-2000:]!r}"
        return True

    def end(self, timeout: float = PATIENCE_S) -> int:
        """Wait for the program's end and for all it printed; return its exit status."""
        status = self.process.wait(timeout)
        self._reader.join(timeout)
        return status

    def hang_up(self) -> None:
        """Close the window."""
        self._hung_up.set()
        self._reader.join()
        if self._settings >= 0:
            os.close(self._settings)
            self._settings = -1

    def close(self) -> None:
        """Close the window, and end the program if that did not."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.hang_up()


@contextlib.contextmanager
def terminal(
    lab: Lab, words: list[str], kind: str = "dumb", env: Mapping[str, str] | None = None
) -> Iterator[Terminal]:
    """A program on a terminal, ended with the block."""
    made = Terminal(lab, words, kind, env)
    try:
        yield made
    finally:
        made.close()
