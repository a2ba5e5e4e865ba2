"""A program on a pseudo-terminal, without a lab: every byte that the terminal got."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.waiting import PATIENCE_S


def on_terminal(
    words: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
    timeout: float = PATIENCE_S,
) -> tuple[int, bytes]:
    """Run a program whose controlling terminal this is; return its exit status and what it wrote there."""
    master, slave = pty.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    with subprocess.Popen(
        ["setsid", "--ctty", *words], env=dict(env), cwd=cwd, stdin=slave, stdout=slave, stderr=slave
    ) as process:
        os.close(slave)
        shown = b""
        deadline = time.monotonic() + timeout
        with contextlib.suppress(OSError):  # how Linux says that no program has it open any more
            while time.monotonic() < deadline:
                if select.select([master], [], [], 0.05)[0]:
                    shown += os.read(master, 1 << 16)
        os.close(master)
        if process.poll() is None and time.monotonic() >= deadline:
            process.kill()
            raise AssertionError(f"{words} did not end: {shown[-2000:]!r}")
        return process.wait(timeout), shown
