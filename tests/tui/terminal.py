"""Cockpit on a pseudo-terminal, as a person would have it before them: keys go in, the screen is read."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import pty
import re
import select
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pyte

from tests.tui import terminal_gif

SIZE = (140, 40)
"""Columns and lines."""

SLURM = ("sacct", "scontrol", "sinfo", "squeue", "srun")
"""Programs that are not found here: what a cluster of the maker's has to say is on no picture."""

QUIT_S = 10.0
"""How long the program may take to end after each of three ``q``."""

QUIET_S = 0.05
"""How long a program writes nothing when it has drawn its screen."""

Output = tuple[float, str]
"""Seconds since the program was started, and the text that it wrote then."""


class Home:
    """An empty home directory to type cockpit's commands in; nothing in it names who made it.

    :param path: the directory
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._venv = path / "venv"
        self._venv.symlink_to(sys.prefix)  # the ranks' command is on the screen: whose checkout it is is not
        self._programs = path / "bin"
        self._programs.mkdir()
        for program in Path("/usr/bin").iterdir():
            if program.name not in SLURM:
                (self._programs / program.name).symlink_to(program)

    @classmethod
    @contextlib.contextmanager
    def made(cls) -> Iterator[Home]:
        """A home for as long as a ``with`` block."""
        with tempfile.TemporaryDirectory(prefix="cockpit-") as path:
            yield cls(Path(path))

    @contextlib.contextmanager
    def typed(self, command: str) -> Iterator[Terminal]:
        """A command on a terminal, for as long as a ``with`` block: in the end it is quit."""
        env = {
            "PATH": f"{self._venv}/bin:{self._programs}",
            "HOME": str(self.path),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "TZ": "UTC",
            "OMP_NUM_THREADS": "1",
        }
        terminal = Terminal([f"{self._venv}/bin/python", "-m", *shlex.split(command)], env, self.path)
        try:
            yield terminal
        finally:
            terminal.close()


class Terminal:
    """A program with its screen, and all that it has written.

    :param words: its command line
    """

    def __init__(self, words: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        self.written: list[Output] = []
        self.screen = pyte.Screen(*SIZE)
        self._stream = pyte.Stream(self.screen)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._master, slave = pty.openpty()
        self.resize(SIZE)
        self._begin = time.monotonic()
        self._process = subprocess.Popen(
            ["setsid", "--ctty", *words], env=env, cwd=cwd, stdin=slave, stdout=slave, stderr=slave
        )
        os.close(slave)

    @property
    def text(self) -> str:
        """The lines on the screen."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    @property
    def now(self) -> float:
        """Seconds since the program was started."""
        return time.monotonic() - self._begin

    def resize(self, size: tuple[int, int]) -> None:
        """Give the terminal another size, in columns and lines."""
        columns, lines = size
        self.screen.resize(lines, columns)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, keys: str) -> None:
        """Type keys, as they are or as a terminal sends them."""
        os.write(self._master, keys.encode())

    def listen(self, seconds: float) -> bool:
        """Take in what is written within so many seconds; False: the program has closed the terminal."""
        if not select.select([self._master], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:  # how Linux says that no program has it open any more
            return False
        if text := self._decoder.decode(data):
            self.written.append((self.now, text))
            self._stream.feed(terminal_gif.understood(text))
        return True

    def rest(self) -> None:
        """Take in what is written until nothing is for a moment: no screen is half drawn then."""
        while select.select([self._master], [], [], QUIET_S)[0] and self.listen(0):
            pass

    def watch(self, seconds: float) -> None:
        """Take in what is written in the next seconds."""
        until = self.now + seconds
        while self.now < until:
            self.listen(0.05)

    def wait_for(self, pattern: str, patience_s: float) -> None:
        """Take in what is written until the screen has a pattern.

        :raises AssertionError: it is not there in so many seconds, or the program has ended
        """
        self.wait_until(lambda: bool(re.search(pattern, self.text)), repr(pattern), patience_s)

    def wait_until(self, come: Callable[[], bool], what: str, patience_s: float) -> None:
        """The same until something is so.

        :param what: what is waited for, in words
        """
        until = self.now + patience_s
        while not come():
            if not self.listen(0.1) or self.now > until:
                raise AssertionError(f"the screen does not come to {what}:\n{self.text}")

    def close(self) -> None:
        """Quit the program, which ends all that it started."""
        for _ in range(3):
            with contextlib.suppress(OSError):
                self.type("q")
            deadline = time.monotonic() + QUIT_S
            while self._process.poll() is None and time.monotonic() < deadline:
                if not self.listen(0.1):
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        self._process.wait(QUIT_S)
        if self._process.poll() is None:
            self._process.terminate()
        self._process.wait()
        os.close(self._master)
