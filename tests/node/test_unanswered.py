"""Connections whose other ends do not answer: what the kernel's tables say of them."""

from __future__ import annotations

import os
import socket

import pytest

from cockpit.base.stacks.dump import Unanswered
from cockpit.node.stacks.unanswered import TRIES, connections, tried

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"


def line(
    inode: int, *, state: str = "01", timer: str = "01", tries: int = TRIES, far: str = "0700000A:1F90"
) -> str:
    """A line of /proc/net/tcp."""
    return (
        f"   0: 0500000A:9C42 {far} {state} 00000514:00000000 {timer}:0000012C {tries:08X}"
        f"  1000        0 {inode} 1 0000000000000000 20 4 30 10 -1"
    )


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (line(5), [Unanswered("10.0.0.7", 8080, TRIES)]),
        (line(5, state="02"), [Unanswered("10.0.0.7", 8080, TRIES)]),
        (line(5, tries=TRIES - 1), []),
        (line(5, timer="00"), []),
        (line(5, timer="02"), []),  # a probe of whether the other end lives
        (line(5, timer="04"), []),  # the other end does not read
        (line(5, state="06"), []),
        (line(5, far="0000000000000000FFFF00000700000A:1F90"), [Unanswered("10.0.0.7", 8080, TRIES)]),
        (line(5, far="B80D0120000000000000000001000000:1F90"), [Unanswered("2001:db8::1", 8080, TRIES)]),
        (line(5, far="nonsense:1F90"), []),
        ("", []),
        ("a b c 01 e 01: zz h i j", []),
    ],
)
def test_only_what_is_sent_again_and_again(told: str, expected: list[Unanswered]) -> None:
    assert [one for _, one in tried(iter([HEAD, told]))] == expected


def test_a_process_with_good_connections_has_none() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as near,
        server.accept()[0] as far,
    ):
        near.sendall(b"x")
        assert far.recv(1) == b"x"
        assert connections(os.getpid()) == ()
    assert connections(1 << 22) == ()
