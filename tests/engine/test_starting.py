"""The beginning of a start: unknown host keys of all nodes are one question."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from cockpit.engine.launch import start
from cockpit.engine.launch.preflight import Diagnosis
from cockpit.engine.links.pool import LinkPool
from cockpit.engine.links.roll import Roll
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.session import Listener
from cockpit.errors import ManyErrors
from cockpit.transport.base import Reach, UnknownHostKey
from tests.transport.sshserver import Place


class Person:
    """Answers the question in one way, and keeps what it was asked."""

    def __init__(self, *, trusts: bool) -> None:
        self.asked: list[list[str]] = []
        self._trusts = trusts

    async def trusts(self, keys: Sequence[UnknownHostKey]) -> bool:
        self.asked.append(sorted(key.where for key in keys))
        assert all(key.fingerprint.startswith("SHA256:") for key in keys)
        return self._trusts

    def connecting(self, roll: Roll) -> None:
        """Not of interest here."""

    def ready(self, notes: Sequence[str], preflight: Diagnosis) -> None:
        """Not of interest here."""

    def listener(self, folder: RunFolder) -> Listener:
        raise AssertionError("nothing is launched here")


async def open_two(place: Place, person: Person) -> list[str]:
    """Links to two servers whose keys nobody knows, by name."""
    async with LinkPool([sys.executable], Reach("ssh", {"config": str(place.config)})) as pool:
        return list(await start._open(pool, ["alpha", "beta"], person))


def test_one_question_for_all_nodes_and_it_is_remembered(tmp_path: Path) -> None:
    async def main() -> None:
        place, person = Place(tmp_path), Person(trusts=True)
        place.known_hosts.write_text("# a last line without its end")
        async with place.server("alpha", trusted=False), place.server("beta", trusted=False):
            assert await open_two(place, person) == ["alpha", "beta"]
            assert await open_two(place, person) == ["alpha", "beta"]
        assert person.asked == [["alpha", "beta"]]
        assert len(place.known_hosts.read_text().splitlines()) == 3

    asyncio.run(main())


def test_no_means_no(tmp_path: Path) -> None:
    async def main() -> None:
        place, person = Place(tmp_path), Person(trusts=False)
        async with place.server("alpha", trusted=False), place.server("beta", trusted=False):
            with pytest.raises(ManyErrors, match="host key is not known"):
                await open_two(place, person)
        assert person.asked == [["alpha", "beta"]]
        assert place.known_hosts.read_text() == ""

    asyncio.run(main())


def test_a_configuration_that_keeps_no_keys_is_not_asked_about_for_ever(tmp_path: Path) -> None:
    async def main() -> None:
        place, person = Place(tmp_path), Person(trusts=True)
        async with (
            place.server("alpha", "UserKnownHostsFile none", trusted=False),
            place.server("beta", trusted=False),
        ):
            with pytest.raises(ManyErrors, match="stores none"):
                await open_two(place, person)
        assert person.asked == []

    asyncio.run(main())
