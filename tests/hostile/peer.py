"""A peer that rewrites: runs between a cockpit and a real agent, and changes some of what the agent says.

Started by :class:`tests.hostile.quick.Hostile` in place of a login shell: its words are a :class:`Plan` as
JSON and the command that the shell should have got.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from cockpit.base.frames import Decoder, FrameError
from tests.hostile.mutations import Out, Sent, mutated

_HELLO = re.compile(rb"cockpit-[0-9a-f]{16} [^\n]*\n")


@dataclass(frozen=True)
class Plan:
    """What a peer does.

    :param mutation: how frames are rewritten; empty: they are passed on as they are
    :param seed: what is random
    :param verbs: answers to these are rewritten, ``hello`` among them; empty: to all but hello and pings
    :param skip: so many of their frames are passed on first
    :param report: a line for each frame that was rewritten is added to this file
    """

    mutation: str
    seed: str
    verbs: tuple[str, ...] = ()
    skip: int = 0
    share: float = 0.4
    report: str = ""

    def wants(self, verb: str) -> bool:
        """Whether answers to a request are rewritten."""
        return bool(self.mutation) and (verb in self.verbs if self.verbs else verb not in ("hello", "ping"))


class Requests:
    """Which request has which number, by what the cockpit sends."""

    def __init__(self) -> None:
        self._boot: bytes | None = b""
        self._decoder = Decoder()
        self.verbs: dict[int, str] = {0: "hello"}

    def feed(self, data: bytes) -> None:
        """Take in what the cockpit sends: a line, the agent's archive, requests."""
        if self._boot is not None:
            self._boot += data
            end = self._boot.find(b"\n") + 1
            if not end or len(self._boot) < end + 4:
                return
            size = end + 4 + int.from_bytes(self._boot[end : end + 4], "big")
            if len(self._boot) < size:
                return
            data, self._boot = self._boot[size:], None
        for header, _ in self._decoder.feed(data):
            if "id" in header:
                self.verbs[header["id"]] = str(header.get("do"))


class Peer:
    """The way back: frames of the agent, rewritten."""

    def __init__(self, plan: Plan, requests: Requests) -> None:
        self._plan = plan
        self._rng = random.Random(plan.seed)
        self._requests = requests
        self._seen = 0
        self._held: list[bytes] = []
        self._silent = False

    def passed(self, header: dict[str, Any], payload: bytes) -> None:
        """Send a frame of the agent, or what stands in its place."""
        verb = self._requests.verbs.get(header.get("id", 0), "ping")
        sent = Sent(verb, header, payload)
        out = Out([sent.bytes()])
        if self._plan.wants(verb):
            self._seen += 1
            past = self._seen - self._plan.skip
            if past == 1 or (past > 1 and self._rng.random() < self._plan.share):
                out = mutated(self._plan.mutation, sent, self._rng)
                self._say(f"{verb} {sent.word}")
        if not self._silent:
            time.sleep(out.wait_s)
            for chunk in (*out.chunks, *self._held):
                _write(1, chunk)
        self._silent = self._silent or out.silent
        self._held = out.held

    def _say(self, what: str) -> None:
        if self._plan.report:
            with open(self._plan.report, "a") as file:
                file.write(f"{what} {self._plan.mutation}\n")


def _write(number: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(number, rest) :]


def _up(agent: int, requests: Requests) -> None:
    """From the cockpit to the agent: everything as it is."""
    try:
        while data := os.read(0, 1 << 18):
            requests.feed(data)
            _write(agent, data)
    except OSError:
        pass  # the agent ended: its end comes the other way
    os.close(agent)


def _down(agent: int, peer: Peer) -> None:
    noise = b""
    while not (found := _HELLO.search(noise)):
        data = os.read(agent, 1 << 16)
        if not data:
            return
        noise += data
    _write(1, noise[: found.end()])
    decoder = Decoder()
    data = noise[found.end() :]
    while True:
        for header, payload in decoder.feed(data):
            peer.passed(header, payload)
        data = os.read(agent, 1 << 18)
        if not data:
            return


def main() -> None:
    """Relay until either side ends."""
    plan = Plan(**json.loads(sys.argv[1]))
    requests = Requests()
    shell = subprocess.Popen(["/bin/sh", "-c", sys.argv[2]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert shell.stdin
    assert shell.stdout
    up = os.dup(shell.stdin.fileno())
    shell.stdin.close()
    threading.Thread(target=_up, args=(up, requests), daemon=True).start()
    try:
        _down(shell.stdout.fileno(), Peer(plan, requests))
    except (OSError, FrameError) as error:
        sys.stderr.write(f"peer: {error}\n")
    os._exit(0)


if __name__ == "__main__":
    main()
