"""Asking NCCL's RAS: servers of every kind at its port, of which none holds up a look or is believed."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cockpit.base import ras as rows
from cockpit.base.gate import Malformed, plain, read
from cockpit.base.ras import RasAnswer
from cockpit.node import procfs
from cockpit.node.calls import Call
from cockpit.node.recorder import ras as module
from cockpit.node.recorder.ras_reading import ANSWER, answer
from cockpit.node.recorder.ras_text import text_answer
from tests.ports import free_port
from tests.recorder.ras import Comm, Missing, Rank, Server, Talk, body, job, lines, named, nccl, text
from tests.waiting import PATIENCE_S, until

ME = os.getpid()
MINE = nccl(body(job([ME, ME + 1, ME + 2], behind=1)))
OTHERS = nccl(body(job([ME + 1, ME + 2])))


def ask(*pids: int, limit_s: float = 5.0) -> RasAnswer:
    """What the node says of these processes."""
    targets = [
        {"rank": rank, "pid": pid, "ticks": procfs.ticks(pid)} for rank, pid in enumerate(pids or (ME,))
    ]
    header = {"id": 1, "do": "ras", "targets": targets, "limit_s": limit_s}
    return read(RasAnswer, module.ras(Call(header, b"", lambda *_: None)))


@contextmanager
def listening(monkeypatch: pytest.MonkeyPatch, *talks: Talk) -> Iterator[Server]:
    """This process, a rank, listens at RAS's port."""
    server = Server(*talks)
    monkeypatch.setattr(module, "PORT", server.port)
    try:
        yield server
    finally:
        server.close()


# What it says


def test_who_has_launched_less_is_told_and_nothing_else_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(monkeypatch, MINE) as server:
        told = ask()
    assert server.asked == ["CLIENT PROTOCOL 2", "TIMEOUT 1", "SET FORMAT json", "VERBOSE STATUS"]
    assert (told.kind, told.version, told.communicators, told.odd) == ("", "2.28.9", 1, 1)
    (row,) = told.rows
    assert (row.hash, row.size, row.heard, row.differing) == ("0xae94423cfbb2ef4a", 3, 3, ("AllReduce",))
    few = next(one for one in row.counts if one.times == 1204)
    assert few.members == (rows.Member(1, "10.0.0.1", ME + 1),)
    # What all have launched alike names nobody, and what nobody has launched is not there.
    assert [(one.op, one.ranks, one.members) for one in row.counts if one.op != "AllReduce"] == [
        ("Broadcast", 3, ())
    ]


@pytest.mark.parametrize("version", ["2.28.7", "2.28.9", "2.29.2", "2.30.7"])
def test_ranks_that_are_missing_are_told_by_every_version(version: str) -> None:
    ranks = [Rank(0, 11, {"AllReduce": 7})]
    lost = [Missing(1, 12), Missing(2, 13, "10.0.0.2", dead=True), Missing(3, 14, unresponsive=False)]
    told = answer(body([Comm(ranks, lost)], version, timeouts=2))
    assert (told.version, told.timeouts, told.pids) == (version, 2, {11, 12, 13, 14})
    (row,) = told.rows
    assert (row.size, row.heard, row.missing) == (4, 1, 3)
    flags = [(one.member.number, one.member.host, one.unresponsive, one.dead) for one in row.lost]
    assert flags == [(1, "10.0.0.1", True, False), (2, "10.0.0.2", True, True), (3, "10.0.0.1", False, False)]


@pytest.mark.parametrize(
    ("more", "state"),
    [
        ({}, "running"),
        ({"init_state": 7}, "init"),
        ({"async_error": 7}, "running"),
        ({"finalize": True}, "finalize"),
        ({"abort": True}, "abort"),
        ({"async_error": 6, "abort": True}, "remote process error"),
        ({"init_state": 2}, "system error"),
        ({"async_error": 12}, "error 12"),
    ],
)
def test_states_are_those_of_nccl(more: dict[str, Any], state: str) -> None:
    told = answer(body([Comm([Rank(0, 11), Rank(1, 12), Rank(2, 13, **more)])]))
    found = {each.state: [one.pid for one in each.members] for each in told.rows[0].states}
    assert found == ({"running": []} if state == "running" else {"running": [11, 12], state: [13]})
    assert told.odd == (state != "running")


def test_a_large_job_is_cut_down_and_what_is_unusual_stays() -> None:
    def comm(number: int, behind: int | None = None) -> Comm:
        ranks = [Rank(at, 1000 + at, {"AllReduce": 9 - (at == behind)}) for at in range(100)]
        return Comm(ranks, hash=f"0x{number:x}")

    told = answer(body([*map(comm, range(99)), comm(99, behind=70)]))
    assert (told.communicators, told.odd, len(told.rows)) == (100, 1, rows.COMMUNICATORS)
    first = told.rows[0]
    assert [(one.times, one.ranks, len(one.members)) for one in first.counts] == [
        (9, 99, rows.MEMBERS),
        (8, 1, 1),
    ]
    assert first.counts[1].members[0].pid == 1070
    told = answer(body([comm(number, behind=number % 100) for number in range(100)]))
    groups = [one for row in told.rows for one in row.counts]
    assert sum(len(one.members) for one in groups) == rows.NAMED
    assert told.odd == 100


# Whom it asks


def test_nobody_is_asked_where_no_rank_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PORT", free_port())
    assert ask().kind == "absent"


def test_a_port_at_which_somebody_else_listens_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        with listening(monkeypatch, MINE) as server:
            assert ask(sleeper.pid).kind == "absent"
            assert server.connections == 0
    finally:
        sleeper.communicate(b"\n", timeout=PATIENCE_S)


@pytest.mark.parametrize(
    ("variables", "kind"), [({}, ""), ({"NCCL_RAS_ENABLE": "1"}, ""), ({"NCCL_RAS_ENABLE": "0"}, "absent")]
)
def test_the_environment_of_a_rank_says_where_it_listens(variables: dict[str, str], kind: str) -> None:
    port = free_port()
    more = {"NCCL_RAS_ADDR": f"localhost:{port}", **variables}
    command = [sys.executable, "-m", "tests.recorder.ras", str(port)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env={**os.environ, **more}, **pipes) as rank:  # type: ignore[call-overload]
        assert rank.stdout.readline() == b"listens\n"
        told = ask(rank.pid)
        rank.stdin.close()
        rank.wait(PATIENCE_S)
    assert told.kind == kind
    assert [row.heard for row in told.rows] == ([] if kind else [1])


# Servers of every kind


def mute(connection: socket.socket, asked: list[str]) -> None:
    """Its process is stopped: the kernel takes the connection, and that is all."""
    list(lines(connection, asked))


def closes(connection: socket.socket, asked: list[str]) -> None:
    """It closes the connection at once."""


def test_a_process_that_is_stopped_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GREETING_S", 0.05)

    def closes_next(connection: socket.socket, asked: list[str]) -> None:
        monkeypatch.setattr(module, "GREETING_S", 30)  # only the one before runs into the limit
        closes(connection, asked)

    with listening(monkeypatch, mute, closes_next, OTHERS, nccl(body(job([ME])))) as server:
        assert ask().kind == ""
    assert server.connections == 4


def test_what_another_job_says_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(monkeypatch, OTHERS) as server:
        told = ask()
    assert (told.kind, told.rows, server.connections) == ("other", (), module.TRIED)


def test_before_json_text_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text names few processes: that it is this job's follows from who listens."""
    few = "  3 ranks have launched up to operation 1205\n" + named(3, 14, "10.0.0.2", LAUNCHED)
    differ = f"#0-0 (00000000000000ab) MISMATCH\n  Communicator ranks have different AllReduce {few}"
    differ = differ.replace("AllReduce ", "AllReduce operation counts\n")
    with listening(monkeypatch, nccl(text(errors="MISMATCH", warnings=differ), json=False)) as server:
        told = ask()
    assert server.asked == ["CLIENT PROTOCOL 2", "TIMEOUT 1", "SET FORMAT json", "VERBOSE STATUS"]
    assert (told.kind, told.version, told.communicators, told.odd) == ("", "2.27.7", 3, 1)
    (row,) = told.rows
    assert (row.hash, row.size, row.heard, row.differing) == ("0xab", 4, 4, ("AllReduce",))
    assert [(one.times, one.ranks, [each.pid for each in one.members]) for one in row.counts] == [
        (1205, 3, []),
        (1204, 1, [14]),
    ]


LAUNCHED = " has launched up to operation 1204"


def test_text_about_missing_ranks_errors_and_states() -> None:
    told = text_answer(
        text(
            "DEAD\n  1 job process is considered dead (unreachable via the RAS network)\n"
            "  Process 14 on node 10.0.0.2 managing GPU 1\n\n"
            "#0-0 (00000000000000ab) INCOMPLETE\n  Missing communicator data from 2 ranks\n"
            + named(2, 13, "10.0.0.2")
            + named(3, 14, "10.0.0.2")
            + "\n#1-1 (cf264af53edbe986) ERROR\n  Asynchronous errors on 1 rank\n"
            + named(1, 12, did=" reported Remote process error")
            + "\n",
            errors="INCOMPLETE",
            warnings="TIMEOUT\n  Encountered 2 communication timeouts while gathering communicator data\n\n"
            "#1-0 (00000000000000cd) MISMATCH\n  Communicator ranks have different status\n"
            + named(0, 11, did=" has status RUNNING")
            + named(1, 12, did=" has status NOCOMM"),
        )
    )
    assert (told.timeouts, told.communicators, told.odd, told.pids) == (2, 3, 3, {11, 12, 13, 14})
    lost, failed, made = sorted(
        told.rows, key=lambda row: ["0xab", "0xcf264af53edbe986", "0xcd"].index(row.hash)
    )
    assert (lost.size, lost.heard, lost.missing) == (4, 2, 2)
    flags = [(one.member.pid, one.member.host, one.unresponsive, one.dead) for one in lost.lost]
    assert flags == [(13, "10.0.0.2", True, False), (14, "10.0.0.2", True, True)]
    assert [(one.state, [each.pid for each in one.members]) for one in failed.states] == [
        ("remote process error", [12])
    ]
    assert [(one.state, [each.pid for each in one.members]) for one in made.states] == [("running", [11])]


def test_the_first_versions_count_all_operations_together() -> None:
    warnings = (
        "#0-0 (00000000000000ab) MISMATCH\n  Communicator ranks have different collective operation counts\n"
        "  2 ranks have launched up to operation 8\n  2 ranks have launched up to operation 7\n"
    )
    warnings += named(1, 12) + named(3, 14, "10.0.0.2")
    (row,) = text_answer(text(version="2.24.3", warnings=warnings)).rows
    assert [(one.op, one.times, [each.pid for each in one.members]) for one in row.counts] == [
        ("operations", 8, []),
        ("operations", 7, [12, 14]),
    ]


def test_whatever_text_comes_is_rows_or_no_answer() -> None:
    rng = random.Random(2247)
    lines = [named(2, 13), named(3, 14, did=LAUNCHED), "DEAD\n", "#0-0 (00000000000000ab) MISMATCH\n"]
    lines += ["  Missing communicator data from 2 ranks\n", "  99999999 ranks have status INIT\n"]
    lines += [
        "  Communicator ranks have different AllReduce operation counts\n",
        "#9-9 (ffffffffffffffff) ERROR\n",
    ]
    lines += ["  2 ranks have not launched any operations\n", "  7 ranks reported Unhandled CUDA error\n"]
    lines += [
        named(999_999, 999_999_999, "fe80::1%eth0"),
        named(1, 2, "\x1b[2J"),
        "  Rank 1 reported \x1b[2J\n",
    ]
    for _ in range(1000):
        some = "".join(rng.choice(lines) for _ in range(rng.randrange(40)))
        try:
            told = text_answer(text(some))
        except Malformed:
            continue
        assert "\x1b" not in str(told)
        assert read(RasAnswer, {"at": 1.0, "rows": plain(told.rows)}).rows == told.rows


def test_where_another_job_listens_too_text_tells_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(monkeypatch, nccl(text(), json=False)) as server:
        other = [sys.executable, "-m", "tests.recorder.ras", str(server.port)]
        with subprocess.Popen(other, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"listens\n"
            assert ask().kind == "other"
            process.communicate(b"")
        assert ask().kind == ""


def says(data: bytes) -> Talk:
    """It says this whatever it is asked, and closes."""

    def talk(connection: socket.socket, asked: list[str]) -> None:
        next(iter(lines(connection, asked)), None)
        connection.sendall(data)

    return talk


def drips(connection: socket.socket, asked: list[str]) -> None:
    """A byte now and then, for ever."""
    while True:
        connection.sendall(b"S")
        threading.Event().wait(0.02)


def endless(connection: socket.socket, asked: list[str]) -> None:
    """RAS, with an answer that never ends."""
    nccl(b'{"communicators": [')(connection, asked)
    while True:
        connection.sendall(b" " * 65536)


def slow(connection: socket.socket, asked: list[str]) -> None:
    """RAS, with an answer that comes byte by byte."""
    nccl(b"{")(connection, asked)
    drips(connection, asked)


@pytest.mark.parametrize(
    ("talk", "kind"),
    [
        (mute, "silent"),
        (closes, "silent"),
        (drips, "silent"),
        (slow, "silent"),
        (endless, "odd"),
        (says(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"), "odd"),
        (says(b"SSH-2.0-OpenSSH_9.2\r\n"), "odd"),
        (says(b"\x00" * 100_000), "odd"),
        (says(b"SERVER PROTOCOL 2\nERROR: no\n"), "odd"),
        (nccl(b""), "odd"),
        (nccl(b"NCCL version 2.29.2\n"), "odd"),
        (nccl(b"NCCL version 2.27.7 compiled with CUDA 12.9\n", json=False), "odd"),
        (nccl(body(job([ME]))[:-200]), "odd"),
        (nccl(b'{"communicators": [' + b"[" * 200_000), "odd"),
        (nccl(b'{"communicators": [' + b"{" * 200_000 + b"}" * 200_000 + b"]}"), "odd"),
        (nccl(b'{"communicators": [' + b"{}," * 400_000 + b"{}]}"), "odd"),
        (nccl(body(job([ME])).replace(b'"size": 1', b'"size": -1')), "odd"),
        (nccl(body(job([ME])).replace(b"1205", b"9" * 5000)), "odd"),
        (nccl(body(job([ME])).replace(b"10.0.0.1", b"\\u001b[2J")), "odd"),
        (nccl(body(job([ME])).replace(b"AllReduce", b"All Reduce\\n")), "odd"),
        (nccl(body(job([ME])).replace(b"0xae94423cfbb2ef4a", b"0x\\u202e")), "odd"),
    ],
)
def test_what_is_no_answer_of_ras_is_none(monkeypatch: pytest.MonkeyPatch, talk: Talk, kind: str) -> None:
    monkeypatch.setattr(module, "GREETING_S", 0.1)
    monkeypatch.setattr(module, "LEFT_S", 0.5)
    patient = kind == "odd"
    with listening(monkeypatch, talk) as server:
        told = ask(limit_s=60.0 if patient else 0.5)
        assert (told.kind, told.rows, server.connections >= 1) == (kind, (), True)
        assert told.what.isprintable()


def test_ras_may_finish_what_nobody_waits_for_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it turns in a circle until it has collected everything."""
    collected = threading.Event()
    kept: list[bytes | None] = []

    def collects(connection: socket.socket, asked: list[str]) -> None:
        nccl(b"")(connection, asked)
        collected.wait(PATIENCE_S)
        connection.settimeout(0.2)
        try:
            kept.append(connection.recv(1))
        except TimeoutError:
            kept.append(None)

    with listening(monkeypatch, collects):
        assert ask(limit_s=0.3).kind == "silent"
        collected.set()
        until(lambda: kept)
        until(lambda: all("_leave" not in str(one.name) for one in threading.enumerate()))
    assert kept == [None]


def test_whatever_comes_is_rows_or_no_answer() -> None:
    rng = random.Random(28028)
    lost = [Missing(3, 14), Missing(4, 15, dead=True)]
    whole = body([*job([11, 12, 13], behind=1), Comm([Rank(0, 11, abort=True)], lost)])
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(rng.choice((1, 1, 2, 30))):
            at = rng.randrange(len(data))
            data[at : at + rng.choice((0, 1, 1, 40))] = rng.choice(
                (b"", b'"', b"{", b"]", b"\xff", b"-1", b"1e9")
            )
        try:
            told = answer(bytes(data))
        except Malformed:
            continue
        assert all(isinstance(row, rows.Communicator) for row in told.rows)
    with pytest.raises(Malformed):
        answer(b" " * (ANSWER + 1))
