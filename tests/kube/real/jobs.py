"""Programs that the tests have pods run, and what becomes of them."""

from __future__ import annotations

import sys
from typing import Any

from tests.kube.real import pods
from tests.lab.test_foreign import HANGS

TRAINS = (
    "import time\nfor step in range(1, 10**6):\n    print('step', step, flush=True)\n    time.sleep(0.1)\n"
)
"""What a rank does that needs nobody."""

_ENDPOINT = "10.99.0.1:29611"
_FILE = 'printf %s "$PROGRAM" >/tmp/train.py; exec '


def torchrun(name: str, program: str = HANGS) -> dict[str, Any]:
    """A Job of three pods of one rank each, which torchrun joins.

    The pods have the network of their nodes: the rendezvous is at a known address, and there is no DNS.
    """
    words = ["-u", "-m", "torch.distributed.run", "--nnodes=3", "--nproc-per-node=1", "--rdzv-backend=c10d"]
    words += [f"--rdzv-endpoint={_ENDPOINT}", f"--rdzv-id={name}", "--local-addr=$HOST", "--tee=3"]
    line = f"{_FILE} {sys.executable} {' '.join(words)} --log-dir=/tmp/logs /tmp/train.py"
    env = {"PROGRAM": program, "GLOO_SOCKET_IFNAME": "eth0"}
    return pods.job(name, ["sh", "-c", line], env=env, hostNetwork=True)


def alone(name: str, program: str = TRAINS, into: str = ">/tmp/out.log 2>&1", **more: Any) -> dict[str, Any]:
    """A pod with one rank, which no launcher started.

    :param into: where its output goes; empty: it is the container's
    """
    env = {"PROGRAM": program, "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29612"}
    line = f"{_FILE} {sys.executable} -u /tmp/train.py {into}"
    return pods.pod(name, ["sh", "-c", line], env=env, **more)
