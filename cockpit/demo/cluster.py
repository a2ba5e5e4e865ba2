"""A cluster of this one machine, for as long as a ``with`` block: made on the spot, gone without a trace."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import cockpit
from cockpit.base import openfiles
from cockpit.demo.ending import end
from cockpit.errors import CockpitError

FILES, OTHERS = 5, 24
"""Files that the servers have open for each node (a port, a connection, three pipes), and besides."""


@dataclass(frozen=True)
class Cluster:
    """Nodes behind ssh servers on loopback.

    :param folder: everything of the cluster is in it: keys, the nodes' run folders, what else one puts there
    :param hostfile: the nodes with their slots
    """

    folder: Path
    hostfile: Path

    @property
    def ssh_config(self) -> Path:
        """The ssh configuration that reaches the nodes by their names."""
        return self.folder / "ssh_config"


@contextmanager
def cluster(nodes: int, slots: int) -> Iterator[Cluster]:
    """Start the nodes ``node1``, ``node2`` …; after the block nothing of them is left.

    The same happens if this process is killed: the servers are a process of their own, which notices.

    :raises CockpitError: the servers may not open enough files, or do not start; or in the end something is
        left all the same
    """
    needed, limit = nodes * FILES + OTHERS, openfiles.theirs()
    if limit is not None and needed > limit:
        raise CockpitError(
            f"{nodes} nodes on one machine need {needed:,} open files, and the limit here is {limit:,}",
            hint=f"give --nodes {(limit - OTHERS) // FILES}, or first: ulimit -n {needed}",
        )
    names = [f"node{number}" for number in range(1, nodes + 1)]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "cockpit.demo.server", *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            # `-m` looks for modules in the working directory first: that must not be the user's.
            cwd=Path(cockpit.__file__).parent.parent,
            start_new_session=True,
        )
        openfiles.give_back(process.pid)  # what it starts trains
        assert process.stdin
        assert process.stdout
        folder: Path | None = None
        try:
            line = process.stdout.readline()
            if not line:
                process.wait()
                raise CockpitError(f"the demo's ssh servers do not start: {_last_line(errors.fileno())}")
            folder = Path(json.loads(line)["folder"])
            hostfile = folder / "hostfile"
            hostfile.write_text("".join(f"{name} slots={slots}\n" for name in names))
            yield Cluster(folder, hostfile)
        finally:
            process.stdin.close()
            code = process.wait()
            process.stdout.close()
        if code > 0:
            raise CockpitError(f"not all of the demo could be ended: {_last_line(errors.fileno())}")
        if code < 0 and (left := end(folder)):  # the servers were killed, and could not do it
            raise CockpitError(f"not all of the demo could be ended: {'; '.join(left)}")


def _last_line(number: int) -> str:
    with open(number, "rb", closefd=False) as file:
        file.seek(0)
        lines = file.read().decode(errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "without a word")
