"""What the real ssh program asks, over ``SSH_ASKPASS``: under the rules of every login."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from cockpit.engine.links.pool import settle
from cockpit.errors import CockpitError
from cockpit.transport import askpass
from cockpit.transport.base import Progress
from cockpit.transport.login_prompts import Desk, NeedsPerson, Nobody
from cockpit.transport.openssh import OpensshWays
from cockpit.transport.openssh_asking import destination
from tests.needs import require
from tests.transport.sshserver import Place, Wants
from tests.transport.test_asking import CODE, PASSWORD, SECRET, Person


@pytest.fixture(autouse=True)
def real_ssh() -> None:
    require("ssh")


async def who(ways: OpensshWays, *names: str, unasked: bool = False) -> dict[str, CockpitError]:
    """Start a command on all of these at once; the errors by name."""

    async def one(name: str) -> None:
        transport = await ways.to(name)
        transport.progress = Progress()
        transport.progress.unasked = unasked
        try:
            pipe = await transport.open("echo there; cat")
            assert await pipe.read(100) == b"there\n"
        finally:
            await transport.close()

    return (await settle({name: one(name) for name in names}))[1]


def ways(place: Place, person: Any) -> OpensshWays:
    return OpensshWays(str(place.config), desk=Desk(person))


@pytest.mark.parametrize("rounds", [[], [(PASSWORD, [SECRET])]], ids=["password", "keyboard-interactive"])
def test_one_answer_for_all_nodes(tmp_path: Path, rounds: list[Any]) -> None:
    async def main() -> None:
        place, person = Place(tmp_path), Person([SECRET], others=1)
        wants = Wants(rounds=rounds) if rounds else Wants(SECRET)
        async with AsyncExitStack() as stack:
            for name in "ab":
                await stack.enter_async_context(place.server(name, admits=False, wants=wants))
            made = ways(place, person)
            assert await who(made, "a", "b") == {}
            assert [(each.kind, each.hop.split(":")[0]) for each in person.asked] in (
                [("password", "tester@a")],
                [("password", "tester@b")],
            )
            assert wants.tried == [SECRET] * 2
            assert await who(made, "a", "b", unasked=True) == {}
            assert len(person.asked) == 1
            await made.close()

    asyncio.run(main())


def test_a_refused_or_missing_answer_is_the_end_everywhere(tmp_path: Path) -> None:
    async def main() -> None:
        place, person = Place(tmp_path), Person(["wrong"], None, others=1)
        wants = Wants(SECRET)
        async with AsyncExitStack() as stack:
            for name in "ab":
                once = "NumberOfPasswordPrompts 1"
                await stack.enter_async_context(place.server(name, once, admits=False, wants=wants))
            made = ways(place, person)
            errors = await who(made, "a", "b")
            assert len(errors) == 2
            assert all(isinstance(error, NeedsPerson) for error in errors.values()), errors
            assert wants.tried == ["wrong"]
            # Given up: ssh by itself would send an empty password.
            made.desk.reopen()
            errors = await who(made, "a", "b")
            assert all("was cancelled" in error.what for error in errors.values()), errors
            assert wants.tried == ["wrong"]
            await made.close()

    asyncio.run(main())


def test_a_password_and_a_code_after_a_mistake(tmp_path: Path) -> None:
    async def main() -> None:
        place, person = Place(tmp_path), Person([SECRET], ["1"], [SECRET], ["2"])
        wants = Wants(rounds=[(PASSWORD, [SECRET]), (CODE, ["2"])])
        async with place.server("a", admits=False, wants=wants):
            made = ways(place, person)
            assert await who(made, "a") == {}
            assert [each.kind for each in person.asked] == ["password", "code"] * 2
            assert [bool(each.refused) for each in person.asked] == [False, False, True, True]
            errors = await who(made, "a", unasked=True)
            assert isinstance(errors["a"], NeedsPerson)
            assert len(person.asked) == 4
            await made.close()

    asyncio.run(main())


def test_a_jump_host_gets_its_own_answer_and_the_node_its_own(tmp_path: Path) -> None:
    """Whatever a node's prompt says: which ssh asks decides who gets the answer."""

    async def main() -> None:
        place, person = Place(tmp_path), Person(["of-jump"], ["of-node"])
        at_jump = Wants("of-jump")
        at_node = Wants(rounds=[([("tester@jump's password: ", False)], ["of-node"])])
        async with (
            place.server("jump", admits=False, wants=at_jump),
            place.server("a", "ProxyJump jump", admits=False, wants=at_node),
        ):
            made = ways(place, person)
            assert await who(made, "a") == {}
            assert (at_jump.tried, at_node.tried) == (["of-jump"], ["of-node"])
            assert [each.of.partition(",")[0] for each in person.asked] == ["jump host jump", "a"]
            assert await who(made, "a", unasked=True) == {}
            assert len(person.asked) == 2
            await made.close()

    asyncio.run(main())


def test_where_nobody_is_asked(tmp_path: Path) -> None:
    async def main() -> None:
        place, person, wants = Place(tmp_path), Person(), Wants(SECRET)
        async with (
            place.server("a", admits=False, wants=wants),
            place.server("b", "BatchMode yes", admits=False, wants=wants),
            place.server("k", wants=wants),
        ):
            nobody = ways(place, Nobody("--headless never asks"))
            error = (await who(nobody, "a"))["a"]
            assert "login refused: tester is not accepted" in error.what
            assert "for a password or a code" in error.hint
            made = ways(place, person)
            assert "login refused" in (await who(made, "b"))["b"].what
            assert await who(made, "k") == {}
            assert (person.asked, wants.tried) == ([], [])
            await made.close()

    asyncio.run(main())


def test_a_passphrase_is_for_the_agent(tmp_path: Path) -> None:
    async def main() -> None:
        place, person = Place(tmp_path), Person()
        key = place.folder / "id"
        lock = [require("ssh-keygen"), "-q", "-p", "-P", "", "-N", "x", "-f", str(key)]
        await (await asyncio.create_subprocess_exec(*lock)).wait()
        async with place.server("a"):
            made = ways(place, person)
            assert "login refused" in (await who(made, "a"))["a"].what
            assert person.asked == []
            await made.close()

    asyncio.run(main())


@pytest.mark.slow
def test_somebody_else_gets_no_answer(tmp_path: Path) -> None:
    """A process that no ssh of ours has started, of whatever user."""

    async def main() -> None:
        place, person = Place(tmp_path), Person([SECRET])
        made = ways(place, person)
        name = (await made.askpass.start())[askpass.SOCKET]

        def ask() -> bytes:
            with socket.socket(socket.AF_UNIX) as link:
                link.connect("\0" + name)
                link.sendall(json.dumps({"prompt": "Password:", "kind": ""}).encode() + b"\n")
                return link.recv(100)

        for _ in range(2):
            assert await asyncio.to_thread(ask) == b""
        assert person.asked == []
        await made.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ("ssh -l ada -p 2222 -v -F /c -J a,b -W [10.0.0.1]:22 login", "ada@login:2222"),
        ("ssh -F /c -W [gpu01]:22 ada@login", "ada@login"),
        ("ssh -qp2222 -lada login nc gpu01 22", "ada@login:2222"),
        ("ssh -oBatchMode=no -- login exec -p 1", "login"),
    ],
)
def test_where_an_ssh_goes(words: str, place: str) -> None:
    assert destination(words.split()) == place
