"""Real verbs in processes of their own, on this machine as the only node."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import PATIENCE_S

HERE = ["--transport", "local", "--launcher", "command"]


WITHOUT_FLOCK = """
import errno, fcntl, os, sys
def flock(file, operation):
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
fcntl.flock = flock
from cockpit.cli.main import main
sys.exit(main())
"""
"""A cockpit on a file system that has no flock."""


@dataclass(frozen=True)
class Done:
    """A verb that has ended."""

    code: int
    out: str
    err: str

    @property
    def both(self) -> str:
        """All it printed."""
        return self.out + self.err


@dataclass(frozen=True)
class Verbs:
    """Starts verbs.

    :param state: the folder for ``XDG_STATE_HOME``
    :param work: where the job works; files of the runs on the node are there too
    :param quick: the words that start a cockpit for a verb that is run to its end
    """

    state: Path
    work: Path
    quick: tuple[str, ...] = (sys.executable, "-m", "cockpit")

    @property
    def runs(self) -> Path:
        """The folder of runs."""
        return self.state / "cockpit" / "runs"

    def spooled(self, run: str, rank: int) -> Path:
        """A log of the one node, as it is here."""
        return self.runs / run / "spool" / "0000-localhost" / f"rank-{rank}.log"

    def on_node(self, run: str, rank: int) -> Path:
        """The same log as the node has it."""
        (found,) = self.work.glob(f"nodes/cockpit-*/{run}/*/rank-{rank}.log")
        return found

    def words(self, name: str, script: str, slots: int = 1) -> list[str]:
        """The words of a run of a shell script."""
        self.work.mkdir(exist_ok=True)
        (self.work / "hosts").write_text(f"localhost slots={slots}\n")
        (self.work / "job.sh").write_text(script)
        where = ["--cwd", str(self.work), "--node-dir", str(self.work / "nodes"), "--name", name]
        return [
            "run",
            "--plain",
            *HERE,
            *where,
            str(self.work / "hosts"),
            "--",
            "sh",
            str(self.work / "job.sh"),
        ]

    def begin(self, *words: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a verb that gets no signal but SIGKILL."""
        return self._start([*self.quick, *words], env)

    def start(
        self, *words: str, env: Mapping[str, str] | None = None, program: str = ""
    ) -> subprocess.Popen[str]:
        """Start a verb, in a process that is all its own.

        :param program: in Python, in place of cockpit's own
        """
        command = [sys.executable, *(["-c", program] if program else ["-m", "cockpit"]), *words]
        return self._start(command, env)

    def _start(self, command: list[str], env: Mapping[str, str] | None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            env={**os.environ, "XDG_STATE_HOME": str(self.state), **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, process: subprocess.Popen[str], timeout: float = PATIENCE_S) -> Done:
        """Wait for a verb; however it failed, it said so in lines."""
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"it did not end:\n{out}\n{err}") from None
        assert "Traceback" not in err, err
        return Done(process.returncode, out, err)

    def call(self, *words: str, env: Mapping[str, str] | None = None, timeout: float = PATIENCE_S) -> Done:
        """Run a verb to its end."""
        return self.end(self.begin(*words, env=env), timeout)
