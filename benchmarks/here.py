"""A run on this machine over the local transport, in a folder of its own, for benchmarks without the lab."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import FOLDER, BenchmarkError

_COCKPIT = [sys.executable, "-m", "cockpit"]


@dataclass(frozen=True)
class Here:
    """A started run."""

    name: str
    folder: Path
    cockpit: subprocess.Popen[bytes]

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start another cockpit, silent."""
        return start(self.folder, words)

    def said(self, *words: str) -> str:
        """What a cockpit says on its standard output."""
        env = environment(self.folder)
        done = subprocess.run([*_COCKPIT, *words], env=env, capture_output=True, text=True, check=False)
        return done.stdout

    def client(self, *words: str) -> subprocess.Popen[bytes]:
        """Start our own side of a benchmark (:mod:`benchmarks.client`) beside it, silent."""
        return start(self.folder, words, [sys.executable, "-m", "benchmarks.client"])

    def log(self, rank: int) -> Path:
        """The rank's log on the node."""
        return next(self.folder.glob(f"node/**/rank-{rank}.log"))


@contextmanager
def started(slots: int, program: Sequence[str], more: Sequence[str] = ()) -> Iterator[Here]:
    """A run of ``program`` under the command launcher, watched; stopped and removed at the end.

    :param more: options of ``cockpit run``
    """
    with tempfile.TemporaryDirectory(prefix="cockpit-bench-") as name:
        folder, run = Path(name), f"bench-{os.getpid()}-{time.monotonic_ns() % 10**6}"
        (folder / "hostfile").write_text(f"localhost slots={slots}\n")
        options = ["--name", run, "--launcher", "command", "--transport", "local", "--headless"]
        options += ["--node-dir", f"{folder}/node", "--cwd", str(FOLDER.parent), "--grace", "2", *more]
        (folder / "node").mkdir()
        here = Here(run, folder, start(folder, ["run", f"{folder}/hostfile", *options, "--", *program]))
        try:
            wait(lambda: len(list(folder.glob("node/**/rank-*.start.json"))) == slots, "the ranks' start")
            yield here
        finally:
            here.start("stop", run, "--now").wait(60)
            with suppress(subprocess.TimeoutExpired):
                here.cockpit.wait(30)
            here.cockpit.kill()
            here.cockpit.wait()


def wait(condition: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
    """Wait for ``condition``.

    :raises BenchmarkError: it did not come true
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise BenchmarkError(f"waited {timeout_s:g} s for {what}")
        time.sleep(0.05)


def start(folder: Path, words: Sequence[str], program: Sequence[str] = _COCKPIT) -> subprocess.Popen[bytes]:
    """Start a cockpit, or something else of ours, silent, with its own files in a folder."""
    null = subprocess.DEVNULL
    return subprocess.Popen([*program, *words], env=environment(folder), stdin=null, stdout=null, stderr=null)


def environment(folder: Path) -> dict[str, str]:
    """Of our programs, with their own files in a folder."""
    env = {**os.environ, "XDG_STATE_HOME": f"{folder}/state", "PYTHONPATH": str(FOLDER.parent)}
    env.setdefault("VIRTUAL_ENV", sys.prefix)
    return env
