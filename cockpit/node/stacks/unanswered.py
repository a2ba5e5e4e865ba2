"""TCP connections of a rank whose other ends do not answer: what is sent there is lost, or they are gone.

A receiver does not notice that: it has nothing that would have to be acknowledged.
"""

from __future__ import annotations

import contextlib
from typing import Iterator, Tuple

from cockpit.base.stacks.dump import UNANSWERED, Unanswered
from cockpit.node.stacks.tcp_peers import INODE, address_text, end_of, held, lines, rows

TRIES = 4
"""What was sent again so often has had no answer for three seconds: the kernel first waits 0.2 s, then each
time twice as long (tcp(7), ``tcp_retries2``)."""

_CONNECTED, _CONNECTS = "01", "02"
_SENDS_AGAIN = "01:"
"""The timer of what is not acknowledged."""


def connections(pid: int) -> Tuple[Unanswered, ...]:
    """Connections of a process whose other ends do not answer, those that were tried most first."""
    found = dict(tried(lines(pid)))
    own = held(pid).sockets if found else ()
    tries = [one for inode, one in found.items() if inode in own]
    return tuple(sorted(tries, key=lambda one: -one.tries)[:UNANSWERED])


def tried(table: Iterator[str]) -> Iterator[Tuple[int, Unanswered]]:
    """What a table of the kernel's says of such connections, by inode; other lines are skipped."""
    for words in rows(table):
        with contextlib.suppress(ValueError):
            if words[3] in (_CONNECTED, _CONNECTS) and words[5].startswith(_SENDS_AGAIN):
                tries, far = int(words[6], 16), end_of(words[2])
                host = address_text(far)
                if tries >= TRIES and host:
                    yield int(words[INODE]), Unanswered(host, far[1], tries)
