"""What servers ask of a person: once, at one machine first, and never again after a refusal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from cockpit.engine.links.pool import settle
from cockpit.errors import CockpitError
from cockpit.transport import login_prompts
from cockpit.transport.base import NoLogin, Progress
from cockpit.transport.login_prompts import Challenge, Desk, NeedsPerson, Nobody, kind_of
from cockpit.transport.ssh import SshHops
from tests.transport.sshserver import Counts, Place, Wants
from tests.waiting import soon

SECRET = "s3cret-Horse"
PASSWORD = [("Password: ", False)]
CODE = [("Verification code: ", False)]


class Person:
    """Answers as a test says, and remembers what was asked.

    :param slow: the first answer waits for this
    :param others: and until so many others wait for theirs
    """

    absent = ""

    def __init__(
        self, *answers: Sequence[str] | None, slow: asyncio.Event | None = None, others: int = 0
    ) -> None:
        self._others = others
        self.answers = list(answers)
        self.asked: list[Challenge] = []
        self.waiting: list[int] = []
        self.at_once = 0
        self._slow = slow

    async def ask(self, challenge: Challenge) -> Sequence[str] | None:
        assert self.at_once == 0
        self.at_once += 1
        self.asked.append(challenge)
        try:
            if self._slow is not None:
                await self._slow.wait()
            await asyncio.sleep(0.02)
            if len(self.asked) == 1:
                await soon(lambda: len(challenge.waiting()) >= self._others)
            self.waiting.append(len(challenge.waiting()))
            return self.answers.pop(0)
        finally:
            self.at_once -= 1


async def who(hops: SshHops, *names: str, unasked: bool = False) -> dict[str, CockpitError]:
    """Log in to all of these at once; the errors by name."""

    async def one(name: str) -> None:
        progress = Progress()
        progress.unasked = unasked
        (await hops.connect(name, progress)).abort()

    return (await settle({name: one(name) for name in names}))[1]


def played(
    folder: Path,
    names: Iterable[str],
    wants: Wants,
    play: Callable[[Place, dict[str, Counts]], Coroutine[Any, Any, None]],
    *options: str,
) -> None:
    """Play against servers that want the same and accept no key."""

    async def main() -> None:
        place = Place(folder)
        async with AsyncExitStack() as stack:
            seen = {
                name: await stack.enter_async_context(place.server(name, *options, admits=False, wants=wants))
                for name in names
            }
            await play(place, seen)

    asyncio.run(main())


@pytest.mark.parametrize("rounds", [[], [(PASSWORD, [SECRET])]], ids=["password", "keyboard-interactive"])
def test_one_answer_for_all_nodes(
    tmp_path: Path, rounds: list[tuple[list[tuple[str, bool]], list[str]]]
) -> None:
    wants = Wants(rounds=rounds) if rounds else Wants(SECRET)

    async def play(place: Place, seen: dict[str, Counts]) -> None:
        person = Person([SECRET], others=2)
        hops = place.hops(Desk(person))
        assert await who(hops, *seen) == {}
        assert [each.kind for each in person.asked] == ["password"]
        assert person.waiting == [2]
        assert wants.tried == [SECRET] * 3
        # A lost link comes back without a question.
        assert await who(hops, *seen, unasked=True) == {}
        assert len(person.asked) == 1

    played(tmp_path, ["a", "b", "c"], wants, play)


def test_a_refused_password_is_tried_nowhere_else(tmp_path: Path) -> None:
    wants = Wants(SECRET)

    async def play(place: Place, seen: dict[str, Counts]) -> None:
        person = Person(["wrong"], [SECRET])
        desk = Desk(person)
        hops = place.hops(desk)
        errors = await who(hops, *seen)
        assert set(errors) == {"a", "b", "c"}
        assert all(isinstance(error, NeedsPerson) and not error.retry for error in errors.values())
        assert sorted(error.what.partition(":")[0] for error in errors.values()) == [
            "login failed",
            "login not attempted",
            "login not attempted",
        ]
        assert all(" refused the password" in error.what for error in errors.values())
        assert "wrong" not in "".join(f"{error}{error!r}" for error in errors.values())
        assert wants.tried == ["wrong"]
        # Nothing by itself, and nothing for somebody else of this process.
        assert set(await who(place.hops(desk), *seen)) == {"a", "b", "c"}
        assert wants.tried == ["wrong"]
        desk.reopen()
        assert await who(hops, *seen) == {}
        assert wants.tried == ["wrong", *[SECRET] * 3]

    played(tmp_path, ["a", "b", "c"], wants, play, "NumberOfPasswordPrompts 1")


def test_a_person_may_mistype(tmp_path: Path) -> None:
    wants = Wants(SECRET)

    async def play(place: Place, seen: dict[str, Counts]) -> None:
        person = Person(["wrong"], [SECRET])
        assert await who(place.hops(Desk(person)), *seen) == {}
        assert [each.refused for each in person.asked] == ["", "Refused; this is try 2 of 3."]
        assert wants.tried == ["wrong", SECRET, SECRET]

    played(tmp_path, ["a", "b"], wants, play)


def test_a_kept_password_that_is_refused_later_is_tried_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_prompts, "PROVEN_S", 0.0)
    wants = Wants(SECRET)

    async def play(place: Place, seen: dict[str, Counts]) -> None:
        person = Person([SECRET])
        hops = place.hops(Desk(person))
        assert await who(hops, *seen) == {}
        wants.password = "changed"
        errors = await who(hops, *seen, unasked=True)
        assert len(errors) == 3
        assert wants.tried == [SECRET] * 4
        assert len(person.asked) == 1

    played(tmp_path, ["a", "b", "c"], wants, play)


def test_codes_are_asked_for_each_login_and_never_kept(tmp_path: Path) -> None:
    wants = Wants(rounds=[(PASSWORD, [SECRET]), (CODE, ["123456"])], told="Welcome\x1b]0;x\x07")

    async def play(place: Place, seen: dict[str, Counts]) -> None:
        person = Person([SECRET], *[["123456"]] * 3, others=2)
        hops = place.hops(Desk(person))
        assert await who(hops, *seen) == {}
        assert [each.kind for each in person.asked] == ["password", "code", "code", "code"]
        assert person.asked[0].told == ("Welcome\\x1b]0;x\\x07",)
        assert [each.number for each in person.asked[1:]] == [0, 1, 2]
        assert person.waiting[1:] == [2, 1, 0]
        # Nobody is asked, and not even a message sent to a phone, for a link that comes back.
        begun = wants.begun
        errors = await who(hops, *seen, unasked=True)
        assert len(errors) == 3
        assert "needs a password or code" in errors["a"].what
        assert (len(person.asked), wants.begun) == (4, begun)

    played(tmp_path, ["a", "b", "c"], wants, play)


def test_giving_up_gives_up_on_all_that_wait(tmp_path: Path) -> None:
    wants = Wants(rounds=[(CODE, ["1"])])

    async def play(place: Place, seen: dict[str, Counts]) -> None:
        person = Person(["1"], None)
        errors = await who(place.hops(Desk(person)), *seen)
        assert len(errors) == 2
        assert all("was cancelled" in error.what for error in errors.values())
        assert wants.tried == ["1"]

    played(tmp_path, ["a", "b", "c"], wants, play)


def test_a_jump_host_asks_once_for_all_nodes_behind_it(tmp_path: Path) -> None:
    async def main() -> None:
        place = Place(tmp_path)
        wants = Wants(rounds=[(CODE, ["7"])])
        names = ["a", "b", "c"]
        async with AsyncExitStack() as stack:
            for name in names:
                await stack.enter_async_context(place.server(name, "ProxyJump jump"))
            await stack.enter_async_context(
                place.server("jump", "NumberOfPasswordPrompts 1", admits=False, wants=wants)
            )
            person = Person(["7"], ["8"])
            desk = Desk(person)
            hops = place.hops(desk)
            assert await who(hops, *names) == {}
            assert len(person.asked) == 1
            assert person.asked[0].hop == f"tester@jump:{place.port}"
            assert person.asked[0].of.startswith("jump host jump, on the way to ")
            await hops.close()
            # The wrong code: one question, and one connection to it for all.
            wants.tried.clear()
            begun = wants.begun
            errors = await who(hops, *names)
            assert len(errors) == 3
            assert wants.tried == ["8"]
            assert wants.begun == begun + 1
            await hops.close()

    asyncio.run(main())


def test_who_cannot_be_asked_is_told_what_to_type(tmp_path: Path) -> None:
    wants = Wants(SECRET, rounds=[(CODE, ["1"])])

    async def play(place: Place, seen: dict[str, Counts]) -> None:
        hops = place.hops(Desk(Nobody("--headless never asks")))
        error = (await who(hops, "a"))["a"]
        assert isinstance(error, NoLogin)
        assert error.refused
        assert "wants a password or a code, but --headless never asks" in error.what
        assert "ssh-add" in error.hint
        assert f"ssh -fNM -F {place.config} a" in error.hint
        assert "--transport openssh" in error.hint
        assert (wants.tried, wants.begun) == ([], 0)

    played(tmp_path, ["a"], wants, play)


@pytest.mark.parametrize(
    "options",
    [
        ("BatchMode yes",),
        ("NumberOfPasswordPrompts 0",),
        ("PasswordAuthentication no", "KbdInteractiveAuthentication no"),
        ("PreferredAuthentications publickey,hostbased",),
    ],
)
def test_what_the_configuration_forbids(tmp_path: Path, options: tuple[str, ...]) -> None:
    async def play(place: Place, seen: dict[str, Counts]) -> None:
        person = Person()
        error = (await who(place.hops(Desk(person)), "a"))["a"]
        assert isinstance(error, NoLogin)
        assert person.asked == []

    played(tmp_path, ["a"], Wants(SECRET, rounds=[(CODE, ["1"])]), play, *options)


def test_nothing_is_asked_where_a_key_suffices(tmp_path: Path) -> None:
    async def main() -> None:
        place = Place(tmp_path)
        person = Person()
        async with place.server("a", wants=Wants(SECRET, rounds=[(CODE, ["1"])])):
            assert await who(place.hops(Desk(person)), "a") == {}
        assert person.asked == []

    asyncio.run(main())


def test_a_person_is_asked_only_if_there_is_no_other_way(tmp_path: Path) -> None:
    async def play(place: Place, seen: dict[str, Counts]) -> None:
        person = Person()
        hops = place.hops(Desk(person))

        async def there_is(node: str) -> bool:
            return node == "a"

        hops.instead = there_is
        assert isinstance((await who(hops, "a"))["a"], NoLogin)
        assert person.asked == []

    played(tmp_path, ["a"], Wants(SECRET), play)


def test_an_answer_that_comes_too_late_for_one_connection_goes_to_the_next(tmp_path: Path) -> None:
    async def main() -> None:
        place = Place(tmp_path)
        slow = asyncio.Event()
        person = Person([SECRET], slow=slow)
        wants = Wants(SECRET)
        async with place.server("a", admits=False, wants=wants) as seen:
            login = asyncio.create_task(who(place.hops(Desk(person)), "a"))
            assert await soon(lambda: bool(person.asked))
            place.hang_up()
            slow.set()
            assert await login == {}
            assert seen.connections == 2
            assert wants.tried == [SECRET]
            assert len(person.asked) == 1

    asyncio.run(main())


def test_what_a_server_asks_is_bounded_and_drives_no_terminal(tmp_path: Path) -> None:
    evil = "\x1b]0;x\x07\u202e" + "A" * 5000
    wants = Wants(rounds=[([(evil, True)], ["1"]), (CODE * 9, ["1"] * 9)], told=f"{evil}\n" * 50)

    async def play(place: Place, seen: dict[str, Counts]) -> None:
        person = Person(["1"])
        error = (await who(place.hops(Desk(person)), "a"))["a"]
        assert isinstance(error, NeedsPerson)
        assert "asks for 9 answers at once" in error.what
        (asked,) = person.asked
        assert len(asked.told) == login_prompts.TOLD_LINES
        shown = [*asked.told, asked.prompts[0].text]
        assert all(len(text) < login_prompts.TOLD_CHARS + 50 and text.isprintable() for text in shown)

    played(tmp_path, ["a"], wants, play)


@pytest.mark.parametrize(
    ("prompts", "kind"),
    [
        ([("Password: ", False)], "password"),
        ([("ada@gpu01's password:", False)], "password"),
        ([("Password: ", True)], "code"),
        ([("One-time password (OATH) for `ada': ", False)], "code"),
        ([("Verification code: ", False)], "code"),
        ([("New password: ", False)], "code"),
        ([("(current) UNIX password: ", False)], "code"),
        ([("Passcode or option (1-2): ", True)], "code"),
        ([("Password: ", False), ("Code: ", False)], "code"),
    ],
)
def test_what_may_be_kept(prompts: list[tuple[str, bool]], kind: str) -> None:
    assert kind_of(prompts) == kind
