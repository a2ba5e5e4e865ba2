"""A long log from a node's file into the local spool, against ``ssh node cat``."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable

from benchmarks.measure import check, client, fake_run, fill, interleave, timed
from benchmarks.table import Figure, Result
from tests.lab.lab import Lab

SIZE = 300 << 20
ROUNDS = 11
_FAST = "aes128-gcm@openssh.com"
_LOG = "rank-0.log"


def run(size: int = SIZE, rounds: int = ROUNDS) -> Result:
    """Measure; needs the lab."""
    with Lab(nodes=1) as lab:
        node = lab.nodes[0]
        running, ended = "/tmp/bench/running", "/tmp/bench/ended"
        digest = fill(lab, fake_run(lab, node, running, alive=True) / _LOG, size)
        fake_run(lab, node, ended)
        lab.run(["ln", f"{running}/{_LOG}", f"{ended}/{_LOG}"], node=node, check=True)

        def ours(folder: str) -> float:
            said = client(lab, "logs", node, folder).said
            check(lab.node_path(None, said["file"]), digest)
            return size / 1e6 / float(said["seconds"])

        def cat(*options: str) -> float:
            # Its clock starts on the node when cat does: ours starts with an open link.
            remote = f"printf '{{\"t\": %s}}\\n' $(date +%s.%N) >&2; exec cat {running}/{_LOG}"
            output = f"/tmp/cat-{time.monotonic_ns()}"
            cost = timed(lab, ["ssh", *options, node, remote], output)
            check(lab.node_path(None, output), digest)
            return size / 1e6 / (cost.ended - float(cost.said["t"]))

        sides: dict[str, Callable[[], float]] = {
            "running": lambda: ours(running),
            "ended": lambda: ours(ended),
            "default": cat,
            "fast": lambda: cat("-c", _FAST),
        }
        rates = interleave(sides, rounds)
    run_, ended_, default, fast = (rates[name] for name in sides)
    figures = [
        Figure("bytes/s, against ssh cat with its default cipher", run_, default, "MB/s", 0.9, True, _SLOW),
        Figure("the same from a run that has ended", ended_, default, "MB/s", 0.9, True, _SLOW),
        Figure(f"bytes/s, against ssh cat with {_FAST}", run_, fast, "MB/s"),
    ]
    cat_line = shlex.join(["ssh", "NODE", "cat FILE"]) + " > SPOOL"
    return Result(
        "logs",
        f"{size >> 20} MiB of one rank's log, from the node's file into the spool",
        {
            "cockpit": "Session.watch: follow, spool, line events; link open",
            "ssh": cat_line,
            "ssh, same cipher": cat_line.replace("ssh", f"ssh -c {_FAST}", 1),
        },
        figures,
        notes=["Every copy is compared with the node's file by sha256. Both ends' files are in memory."],
    )


_SLOW = (
    "asyncssh decrypts and takes apart packets of 32 KiB in Python, two thirds of our time: the ssh program "
    "as a transport, or a quicker library."
)
