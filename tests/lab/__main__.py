"""``python -m tests.lab [N]``: N nodes (2) on this machine until ctrl-c or SIGTERM."""

from __future__ import annotations

import shlex
import signal
import sys
from types import FrameType

from tests.lab.lab import USER, Lab, LabError


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


def main(argv: list[str]) -> int:
    if len(argv) > 1 or not all(arg.isdecimal() for arg in argv):
        print(f"{(__doc__ or '').strip()}", file=sys.stderr)
        return 2
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, _leave)
    try:
        with Lab(nodes=int(argv[0]) if argv else 2) as lab:
            variables = [f"{name}={value}" for name, value in lab.env.items()]
            enter = shlex.join(lab.command(["env", "-i", *variables, "/bin/bash", "-i"]))
            print(f"up: {lab.nodes[0]} to {lab.nodes[-1]}, {lab.addresses[lab.nodes[0]]} and up")
            print(f"hostfile: {lab.hostfile}")
            print(f"python:   {lab.python}")
            print(f"enter the login node as {USER} (then: ssh node1; cockpit …), as root:\n  {enter}")
            print("ctrl-c ends it", flush=True)
            while True:
                signal.pause()
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
