"""When ``auto`` takes the ssh program to a node where asyncssh cannot log in, and when it does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh
import pytest

from cockpit.transport import fallback
from cockpit.transport.base import LinkError, NoLogin, Progress
from cockpit.transport.fallback import FallbackTransport, FallbackWays
from cockpit.transport.openssh import OpensshWays
from cockpit.transport.srun import SrunWays
from tests.needs import require
from tests.transport.sshserver import Place


@pytest.fixture(autouse=True)
def without_a_ticket(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real ssh, and no Kerberos ticket."""
    require("ssh")

    async def none() -> bool:
        return False

    monkeypatch.setattr(fallback, "_has_ticket", none)


def either(place: Place) -> FallbackWays:
    """Both ways by a place's configuration."""
    return FallbackWays(place.hops(), OpensshWays(str(place.config)), lambda job: SrunWays({"job": job}))


async def failure(ways: FallbackWays, name: str) -> LinkError:
    """The error of opening anything on a server."""
    transport = await ways.to(name)
    with pytest.raises(LinkError) as caught:
        await transport.open("true")
    await ways.close()
    return caught.value


@asynccontextmanager
async def master(place: Place, name: str, socket: Path) -> AsyncIterator[None]:
    """A ControlMaster connection, opened with a key that is not there any more."""
    async with place.master(name, socket):
        asyncssh.generate_private_key("ssh-ed25519").write_private_key(place.folder / "id")
        yield


def test_a_refused_login_is_not_tried_again(tmp_path: Path, sockets_of_ssh: Path) -> None:
    async def main() -> None:
        place = Place(tmp_path)
        wishes = (f"ControlPath {sockets_of_ssh}/nobody", "GSSAPIAuthentication yes")
        async with place.server("alpha", *wishes, admits=False) as counts:
            ways = either(place)
            error = await failure(ways, "alpha")
            assert isinstance(error, NoLogin)
            assert error.refused
            assert counts.connections == 1
            assert not ways.by_program

    asyncio.run(main())


def test_an_open_master_lets_us_in_where_the_key_does_not(tmp_path: Path, sockets_of_ssh: Path) -> None:
    async def main() -> None:
        place = Place(tmp_path)
        socket = sockets_of_ssh / "m"
        async with place.server("alpha", f"ControlPath {socket}") as counts, master(place, "alpha", socket):
            ways = either(place)
            transport = await ways.to("alpha")
            assert isinstance(transport, FallbackTransport)
            progress = transport.progress = Progress()
            pipe = await transport.open("echo there; cat")
            assert await pipe.read(100) == b"there\n"
            assert transport.kind == "openssh"
            said = "reached by the ssh program: a ControlMaster connection is open"
            assert (progress.remark, transport.progress) == (said, progress)
            # The master's, and the one that was refused; the next link is not refused first.
            assert counts.connections == 2
            again = await ways.to("alpha")
            assert again.kind == "openssh"
            pipe = await again.open("echo there; cat")
            assert await pipe.read(100) == b"there\n"
            assert counts.connections == 2
            await asyncio.gather(transport.close(), again.close())
            await ways.close()

    asyncio.run(main())


def test_a_master_to_the_jump_host_counts(tmp_path: Path, sockets_of_ssh: Path) -> None:
    """The jump host refuses asyncssh; the node behind it accepts the key."""

    async def main() -> None:
        place = Place(tmp_path)
        socket = sockets_of_ssh / "m"
        jump = (f"ControlPath {socket}", f"IdentityFile {tmp_path}/other", "IdentitiesOnly yes")
        async with place.server("alpha", "ProxyJump jump"), place.server("jump", *jump) as hop:
            text = place.config.read_text()
            (tmp_path / "other").write_bytes((tmp_path / "id").read_bytes())
            (tmp_path / "other").chmod(0o600)
            place.config.write_text(text.replace("Host *\n", "Host !jump *\n"))
            with_user = f"Host jump\n  User tester\n  UserKnownHostsFile {place.known_hosts}\n"
            place.config.write_text(with_user + place.config.read_text())
            async with master(place, "jump", socket):
                # `master` has put another key in the place of that of alpha: the right one is back now.
                (tmp_path / "id").write_bytes((tmp_path / "other").read_bytes())
                asyncssh.generate_private_key("ssh-ed25519").write_private_key(tmp_path / "other")
                ways = either(place)
                transport = await ways.to("alpha")
                pipe = await transport.open("echo there; cat")
                assert await pipe.read(100) == b"there\n"
                assert transport.kind == "openssh"
                await transport.close()
                await ways.close()
                assert hop.connections == 2

    asyncio.run(main())


@pytest.mark.parametrize("trouble", ["host key", "nobody listens", "a typing mistake"])
def test_no_other_failure_is_tried_by_another_way(tmp_path: Path, sockets_of_ssh: Path, trouble: str) -> None:
    async def main() -> None:
        place = Place(tmp_path)
        socket = sockets_of_ssh / "m"
        async with place.server("alpha", f"ControlPath {socket}") as counts, master(place, "alpha", socket):
            if trouble == "host key":
                place.known_hosts.write_text("")
            elif trouble == "nobody listens":
                place.config.write_text(f"Host alpha\n  Port 1\n{place.config.read_text()}")
            else:
                place.config.write_text(f"Host alpha\n  Port many\n{place.config.read_text()}")
            ways = either(place)
            await failure(ways, "alpha")
            assert not ways.by_program
            assert counts.commands == []

    asyncio.run(main())


class Refusing:
    """A transport that fails in one way."""

    kind = "ssh"
    job = ""

    def __init__(self, error: LinkError) -> None:
        self.progress = Progress()
        self._error = error

    async def open(self, command: str) -> None:
        raise self._error

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("refused", [False, True], ids=["not tried", "refused"])
def test_what_asyncssh_does_not_understand_is_left_to_ssh(tmp_path: Path, refused: bool) -> None:
    """Where no login was refused, none can be refused too often."""

    async def main() -> None:
        place = Place(tmp_path)
        async with place.server("alpha") as counts:
            ways = either(place)
            error = NoLogin("no common ssh algorithm", where="alpha", refused=refused)
            transport = FallbackTransport("alpha", Refusing(error), ways)  # type: ignore[arg-type]
            if refused:
                with pytest.raises(NoLogin):
                    await transport.open("true")
                assert counts.connections == 0
            else:
                await transport.open("cat")
                assert transport.progress.remark == "reached by the ssh program: no common ssh algorithm"
                await transport.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("option", "module", "ticket", "reason"),
    [
        ("GSSAPIAuthentication yes", "gssapi", True, "a Kerberos ticket"),
        ("GSSAPIAuthentication yes", "gssapi", False, ""),
        ("GSSAPIAuthentication yes", "", True, ""),
        ("GSSAPIAuthentication no", "gssapi", True, ""),
        ("PKCS11Provider /usr/lib/p.so", "pkcs11", False, "PKCS11Provider"),
        ("PKCS11Provider /usr/lib/p.so", "", False, ""),
        ("PKCS11Provider none", "pkcs11", False, ""),
    ],
    ids=str,
)
def test_what_the_configuration_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, module: str, ticket: bool, reason: str
) -> None:
    """``module`` is a package that asyncssh would need and that is not there."""

    async def held() -> bool:
        return ticket

    monkeypatch.setattr(fallback, "_has_ticket", held)
    monkeypatch.setattr(fallback, "find_spec", lambda name: None if name == module else object())
    place = Place(tmp_path)
    place.knows("alpha", 22, option)
    error = NoLogin("login refused", where="alpha", refused=True)
    found = asyncio.run(fallback.lacking(error, "alpha", OpensshWays(str(place.config)).config))
    assert (reason in found) if reason else (found == "")
