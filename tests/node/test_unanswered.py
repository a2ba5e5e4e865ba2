"""Connections whose other ends do not answer: what the kernel's tables say of them."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cockpit.base.stacks.dump import Unanswered
from cockpit.node.stacks import unanswered
from cockpit.node.stacks.unanswered import TRIES, Connections, tried

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"


def line(
    inode: int,
    *,
    state: str = "01",
    timer: str = "01",
    tries: int = TRIES,
    probes: int = 0,
    far: str = "0700000A:1F90",
) -> str:
    """A line of /proc/net/tcp."""
    return (
        f"   0: 0500000A:9C42 {far} {state} 00000514:00000000 {timer}:0000012C {tries:08X}"
        f"  1000 {probes:8d} {inode} 1 0000000000000000 20 4 30 10 -1"
    )


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (line(5), [Unanswered("10.0.0.7", 8080, TRIES)]),
        (line(5, state="02"), [Unanswered("10.0.0.7", 8080, TRIES)]),
        (line(5, tries=TRIES - 1), []),
        (line(5, timer="00"), []),
        (line(5, timer="02"), []),  # a probe of whether the other end lives
        (line(5, timer="04"), []),  # the other end does not read, and answers what probes that
        (line(5, timer="04", tries=0, probes=TRIES - 1), []),
        (line(5, timer="04", tries=0, probes=TRIES), [Unanswered("10.0.0.7", 8080, TRIES)]),
        (line(5, timer="01", tries=0, probes=TRIES), []),
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
        assert Connections().unanswered(os.getpid()) == ()
    assert Connections().unanswered(1 << 22) == ()


@contextmanager
def process(*files: int) -> Iterator[int]:
    """A process that has only these of our files open."""
    quiet = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(["cat"], pass_fds=files, **quiet) as started:  # type: ignore[call-overload]
        yield started.pid


def test_the_tables_are_read_once_for_all_ranks_and_not_for_those_without_sockets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[int] = []
    with (
        socket.socket() as ours,
        process(ours.fileno()) as one,
        process(ours.fileno()) as other,
        process() as none,
    ):
        table = [HEAD, line(os.fstat(ours.fileno()).st_ino)]

        def lines(pid: int) -> Iterator[str]:
            read.append(pid)
            return iter(table)

        monkeypatch.setattr(unanswered, "lines", lines)
        monkeypatch.setattr(unanswered, "_FRESH_S", 1000.0)
        request = Connections()
        assert request.unanswered(none) == ()
        assert not read
        assert request.unanswered(one) == request.unanswered(other) == (Unanswered("10.0.0.7", 8080, TRIES),)
        assert read == [one]

        # A rank that is looked at much later: what was read is too old by then.
        monkeypatch.setattr(unanswered, "_FRESH_S", -1.0)
        request.unanswered(other)
        assert read == [one, other]
