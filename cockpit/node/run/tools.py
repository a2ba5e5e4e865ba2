"""Runs a program of nsys to its end."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from typing import Callable, List, Mapping, NamedTuple, Optional, Sequence

KILLED_S = 5.0
"""For one that was killed to be gone."""
SAID = 1 << 16
"""Bytes of what it says that are read, the last ones."""
_FIRST_S, _POLL_S = 0.002, 0.1
"""Between two looks, at first and at most: a rank may wait for what takes a moment."""


class Ended(NamedTuple):
    """What became of it.

    :param status: its exit code; None: it was killed, since it took too long or nobody wanted it any more
    :param said: what it wrote
    """

    status: Optional[int]
    said: str

    @property
    def lines(self) -> List[str]:
        """What it wrote, without empty lines."""
        return [line.strip() for line in self.said.split("\n") if line.strip()]


def run(
    words: Sequence[str],
    limit_s: float,
    meanwhile: Callable[[], object] = int,
    *,
    environment: Optional[Mapping[str, str]] = None,
    folder: Optional[str] = None,
    errors: bool = False,
) -> Ended:
    """Run it.

    :param meanwhile: called every 0.1 s, at first more often; true: nobody wants it any more
    :param environment: None: ours
    :param folder: where it works; None: where we do
    :param errors: only what it writes to stderr is of interest
    :raises OSError: it cannot be started
    """
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if errors else output,
            stderr=output,
            env=environment,
            cwd=folder,
        )
        deadline = time.monotonic() + limit_s
        pause_s = _FIRST_S
        while process.poll() is None:
            if time.monotonic() > deadline or meanwhile():
                process.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(KILLED_S)
                return Ended(None, "")
            time.sleep(pause_s)
            pause_s = min(_POLL_S, 2 * pause_s)
        output.seek(max(0, output.seek(0, os.SEEK_END) - SAID))
        return Ended(process.returncode, output.read().decode("utf-8", "replace"))
