"""TCP connections of a rank whose other ends do not answer: what is sent there is lost, or they are gone.

A receiver does not notice that: it has nothing that would have to be acknowledged.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Dict, Iterator, Tuple

from cockpit.base.stacks.dump import UNANSWERED, Unanswered
from cockpit.node import procfs
from cockpit.node.stacks.tcp_peers import INODE, address_text, end_of, held, lines, rows

TRIES = 4
"""What was sent again so often has had no answer for three seconds: the kernel first waits 0.2 s, then each
time twice as long (tcp(7), ``tcp_retries2``)."""

_CONNECTED, _CONNECTS = "01", "02"
_SENDS_AGAIN, _PROBES = "01:", "04:"
"""The timers of what is not acknowledged: sent again; not even sent, as there is no way to the other end, or
its window is full: then it answers each probe, which sets their number back (``net/ipv4/tcp_timer.c``)."""

_FRESH_S = 1.0
"""For how long a table is as good as a new one: what counts has had no answer for longer."""


class Connections:
    """What the kernel's tables say of the ranks of one request.

    A table is read once for all of them: that costs a node some milliseconds, however few sockets there are.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: Dict[str, Tuple[float, Dict[int, Unanswered]]] = {}

    def unanswered(self, pid: int) -> Tuple[Unanswered, ...]:
        """Connections of a process whose other ends do not answer, those that were tried most first."""
        own = held(pid).sockets
        found = self._table(pid) if own else {}
        tries = [one for inode, one in found.items() if inode in own]
        return tuple(sorted(tries, key=lambda one: -one.tries)[:UNANSWERED])

    def _table(self, pid: int) -> Dict[int, Unanswered]:
        net = procfs.link("/proc/%d/ns/net" % pid)
        with self._lock:
            known = self._known.get(net)
            if known is None or time.monotonic() - known[0] > _FRESH_S:
                known = self._known[net] = time.monotonic(), dict(tried(lines(pid)))
            return known[1]


def tried(table: Iterator[str]) -> Iterator[Tuple[int, Unanswered]]:
    """What a table of the kernel's says of such connections, by inode; other lines are skipped."""
    for words in rows(table):
        with contextlib.suppress(ValueError):
            timer = words[5][:3]
            if words[3] in (_CONNECTED, _CONNECTS) and timer in (_SENDS_AGAIN, _PROBES):
                tries, far = int(words[6], 16) if timer == _SENDS_AGAIN else int(words[8]), end_of(words[2])
                host = address_text(far)
                if tries >= TRIES and host:
                    yield int(words[INODE]), Unanswered(host, far[1], tries)
