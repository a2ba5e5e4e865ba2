"""Connections of our own to jump hosts, over the real ssh: one for all nodes behind each; none is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from cockpit import paths
from cockpit.transport import die_with_parent, openssh_masters
from cockpit.transport.login_prompts import Desk, NeedsPerson
from cockpit.transport.openssh import OpensshWays
from cockpit.transport.openssh_masters import Hop
from tests.needs import require
from tests.transport.sshserver import Place, Wants
from tests.transport.test_asking import CODE, PASSWORD, SECRET, Person
from tests.transport.test_openssh_asking import who
from tests.waiting import PATIENCE_S, gone, soon, until


def ours() -> list[psutil.Process]:
    """The shared connections of this process."""
    return [child for child in psutil.Process().children() if _is_master(child)]


def _is_master(child: psutil.Process) -> bool:
    try:
        return child.name() == "ssh" and "-M" in child.cmdline()
    except psutil.NoSuchProcess:
        return False  # it has ended just now


def sockets() -> list[Path]:
    """Theirs."""
    folder = paths.ssh()
    return [path for path in folder.iterdir() if path.is_socket()] if folder.exists() else []


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    require("ssh")
    yield
    assert (ours(), sockets()) == ([], [])


def ways(place: Place, person: Any = None) -> OpensshWays:
    return OpensshWays(str(place.config), desk=Desk(person))


def test_a_code_once_for_all_nodes_and_then_by_a_person_only(tmp_path: Path) -> None:
    async def main() -> None:
        place, person = Place(tmp_path), Person([SECRET], ["1"], ["2"])
        wants = Wants(rounds=[(PASSWORD, [SECRET]), (CODE, ["1"])])
        async with AsyncExitStack() as stack:
            jump = await stack.enter_async_context(place.server("jump", admits=False, wants=wants))
            connections = place.connections
            for name in "abc":
                await stack.enter_async_context(place.server(name, "ProxyJump jump"))
            made = ways(place, person)
            assert await who(made, "a", "b") == {}
            assert [each.kind for each in person.asked] == ["password", "code"]
            assert person.asked[0].of in (
                "jump host jump, on the way to a",
                "jump host jump, on the way to b",
            )
            # A link that is lost, or a node that comes later, goes through what is open.
            assert await who(made, "a", "c", unasked=True) == {}
            assert (jump.connections, len(person.asked)) == (1, 2)
            for connection in list(connections):
                connection.abort()
            await soon(lambda: not ours())
            for _ in range(2):
                errors = await who(made, "a", "b", unasked=True)
                assert [type(error) for error in errors.values()] == [NeedsPerson] * 2, errors
            assert (wants.begun, len(person.asked)) == (1, 2)
            # A refusal is the end for all of them, and is not repeated.
            made.desk.reopen()
            place.config.write_text("NumberOfPasswordPrompts 1\n" + place.config.read_text())
            errors = await who(made, "a", "b")
            assert [type(error) for error in errors.values()] == [NeedsPerson] * 2, errors
            assert wants.tried == [SECRET, "1", SECRET, "2"]
            await made.close()

    asyncio.run(main())


def test_chains_of_jump_hosts_have_one_connection_each(tmp_path: Path) -> None:
    """In one line, or hop by hop; with users and ports of their own."""

    async def main() -> None:
        place = Place(tmp_path)
        async with place.server("first") as first:
            port = place.port
            async with (
                place.server("second", "ProxyJump first") as second,
                place.server("a", "ProxyJump second"),
                place.server("b", f"ProxyJump ada@127.0.0.1:{port},second"),
            ):
                made = ways(place)
                assert await who(made, "a", "b") == {}
                assert len(ours()) == 4, "a's chain and b's, who logs in as somebody else"
                assert (first.connections, second.connections) == (2, 2)
                assert await who(made, "a", "b") == {}
                assert (first.connections, second.connections) == (2, 2)
                await made.close()

    asyncio.run(main())


def test_a_jump_host_behind_itself(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for name, jump in (("a", "b"), ("b", "c"), ("c", "b"), ("d", "c")):
        place.knows(name, 1, f"ProxyJump {jump}")

    async def main() -> None:
        made = ways(place)
        errors = await who(made, "a", "d")
        for name, error in errors.items():
            said = str(error)
            assert said.startswith(f"{name}: ssh configuration: jump host "), said
            assert "is reached through itself; give " in said
        assert len(errors) == 2
        await made.close()

    asyncio.run(main())


def test_a_node_that_its_jump_host_cannot_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the shared connection is told why."""
    monkeypatch.setattr(openssh_masters, "_WHY_S", PATIENCE_S)

    async def main() -> None:
        place = Place(tmp_path)
        async with place.server("jump"):
            place.knows("down", 1, "ProxyJump jump")
            made = ways(place)
            error = (await who(made, "down"))["down"]
            assert error.what.startswith("no connection to it: [Errno 111] Connect call failed"), error.what
            await made.close()
        place.knows("far", 1, "ProxyJump gone")
        place.knows("gone", 1)
        made = ways(place)
        errors = await who(made, "far", "down")
        assert errors["far"].what == "connection refused: no sshd listens there (jump host gone)"
        assert errors["far"].where == "far"
        await made.close()

    asyncio.run(main())


def test_an_open_connection_of_a_person_s_own_is_used(tmp_path: Path, sockets_of_ssh: Path) -> None:
    """To the jump host, or to the node, for which no jump host is asked then; and neither is closed."""

    async def main() -> None:
        place, wants = Place(tmp_path), Wants(SECRET)
        mine, node = sockets_of_ssh / "mine", sockets_of_ssh / "node"
        async with (
            place.server("jump", f"ControlPath {mine}", "ControlMaster auto") as jump,
            place.server("a", "ProxyJump jump"),
            place.master("jump", mine),
        ):
            made = ways(place)
            assert await who(made, "a") == {}
            assert jump.connections == 1
            await made.close()
            assert mine.exists()
        async with (
            place.server("wants", admits=False, wants=wants),
            place.server("b", f"ControlPath {node}", "ProxyJump wants") as b,
        ):
            place.config.write_text(place.config.read_text().replace("  ProxyJump wants\n", ""))
            async with place.master("b", node):
                place.config.write_text(f"Host b\n  ProxyJump wants\n{place.config.read_text()}")
                made = ways(place)
                assert await who(made, "b") == {}
                assert (b.connections, wants.tried) == (1, [])
                await made.close()

    asyncio.run(main())


@pytest.mark.parametrize("temporary_too", [False, True])
def test_a_long_path_is_no_hindrance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, temporary_too: bool
) -> None:
    long = tmp_path / ("x" * 90)
    long.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(long))
    if temporary_too:
        monkeypatch.setattr(tempfile, "tempdir", str(long))

    async def main() -> None:
        place = Place(tmp_path)
        async with place.server("jump") as jump, place.server("a", "ProxyJump jump"):
            made = ways(place)
            assert await who(made, "a") == {}
            assert jump.connections == 1
            (master,) = ours()
            path = Path(master.cmdline()[master.cmdline().index("-S") + 1])
            assert path.parent.stat().st_mode & 0o777 == 0o700
            await made.close()
            assert not path.parent.exists()

    asyncio.run(main())
    assert [each.name for each in long.iterdir()] == ["cockpit"]


def test_where_no_socket_can_be_made_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ("x" * 90)))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    monkeypatch.setattr(openssh_masters, "SHORT", ())
    place = Place(tmp_path)
    place.knows("jump", 1)
    place.knows("a", 1, "ProxyJump jump")

    async def main() -> None:
        made = ways(place)
        error = (await who(made, "a"))["a"]
        assert error.what == "no socket for the connection to its jump host: No such file or directory"
        assert error.hint == "set another folder: TMPDIR=DIR"
        await made.close()

    asyncio.run(main())


def test_it_ends_with_whoever_has_started_it() -> None:
    """However that ends."""
    words = [sys.executable, "-I", "-S", die_with_parent.__file__]
    code = (
        f"import subprocess, os, time; p = subprocess.Popen({words!r} + [str(os.getpid()), 'sleep', '600']);"
    )
    code += "print(p.pid, flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        child = psutil.Process(int(parent.stdout.readline()))
        until(lambda: child.name() == "sleep", "it has become the program")
        parent.send_signal(signal.SIGKILL)
    until(lambda: gone(child), "it has ended, too")
    assert subprocess.run([*words, str(os.getpid() + 1), "true"], check=False).returncode == 1


@pytest.mark.parametrize(
    ("text", "hop"),
    [
        ("login", Hop("login")),
        ("ada@login:2222", Hop("login", "ada", "2222")),
        ("ada@[fe80::1]:22", Hop("fe80::1", "ada", "22")),
        ("fe80::1", Hop("fe80::1")),
        ("a@b@login", Hop("login", "a@b")),
        ("[x", None),
        ("", None),
    ],
)
def test_how_jump_hosts_are_written(text: str, hop: Hop | None) -> None:
    assert Hop.of(text) == hop
