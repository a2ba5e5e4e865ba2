"""The program that ssh runs as ``SSH_ASKPASS``: hands its question to the cockpit that runs ssh."""

from __future__ import annotations

import json
import os
import socket
import sys

SOCKET = "COCKPIT_ASKPASS"
"""The variable with the name of the cockpit's socket, an abstract one."""

ANSWERED = b"+"
"""Before an answer, which may be empty; without it there is none."""


def main() -> int:
    """Ask; the answer goes to stdout. Returns 1 if there is none."""
    question = {"prompt": " ".join(sys.argv[1:]), "kind": os.environ.get("SSH_ASKPASS_PROMPT", "")}
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.connect("\0" + os.environ[SOCKET])
            link.sendall(json.dumps(question).encode() + b"\n")
            answer = b"".join(iter(lambda: link.recv(4096), b""))
    except (KeyError, OSError):
        return 1
    if not answer.startswith(ANSWERED):
        return 1
    sys.stdout.buffer.write(answer[len(ANSWERED) :] + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
