"""The ssh transport against servers in this process."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import asyncssh
import pytest

from cockpit.base import verbs
from cockpit.engine.links import payload
from cockpit.engine.links.link import Link
from cockpit.transport.base import LinkError
from cockpit.transport.ssh import HANDSHAKES_PER_HOP, SshHops, SshOptions
from tests.transport.sshserver import Place


def refused(place: Place, name: str, hops: SshHops | None = None) -> LinkError:
    """The error of opening anything on a server."""

    async def main() -> LinkError:
        with pytest.raises(LinkError) as caught:
            await (await (hops or place.hops()).to(name)).open("true")
        return caught.value

    return asyncio.run(main())


def test_an_agent_over_ssh_and_the_command_is_constant(tmp_path: Path) -> None:
    async def main() -> None:
        place = Place(tmp_path)
        async with place.server("alpha") as counts:
            link = Link("alpha", await place.hops().to("alpha"), ["/no such python", sys.executable])
            assert (await link.open()).format == 1
            assert (await link.call(verbs.Ping())).t > 0
            await link.close()
            assert counts.commands == [payload.COMMAND]

    asyncio.run(main())


def test_host_keys_are_strict(tmp_path: Path) -> None:
    async def main() -> list[str]:
        place = Place(tmp_path)
        said = []
        async with place.server("alpha", trusted=False), place.server("beta"):
            for name in ("alpha", "beta"):
                if name == "beta":  # it was known, and now it has another key
                    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
                    place.known_hosts.write_text(f"[127.0.0.1]:{place.port} {other}")
                with pytest.raises(LinkError) as caught:
                    await (await place.hops().to(name)).open("true")
                assert not caught.value.retry
                said.append(str(caught.value))
        return said

    unknown, changed = asyncio.run(main())
    typed = f"ssh -F {tmp_path}/config alpha true"
    assert unknown == f"alpha: host key is not known; look at it and accept it with: {typed}"
    assert "host key changed" in changed
    assert "ssh-keygen -R '[127.0.0.1]:" in changed


@pytest.mark.parametrize("option", ["UserKnownHostsFile none", "StrictHostKeyChecking no"])
def test_no_configuration_turns_host_keys_off(tmp_path: Path, option: str) -> None:
    async def main() -> str:
        place = Place(tmp_path)
        async with place.server("alpha", option, trusted=False):
            with pytest.raises(LinkError) as caught:
                await (await place.hops().to("alpha")).open("true")
            return str(caught.value)

    assert "host key is not known" in asyncio.run(main())


def test_nothing_is_forwarded(tmp_path: Path) -> None:
    async def main() -> None:
        place = Place(tmp_path)
        wishes = ("ForwardAgent yes", "ForwardX11 yes", "ForwardX11Trusted yes")
        async with place.server("alpha", *wishes):
            connection = await place.hops().connect("alpha")
            assert connection._options.agent_forward_path is None
            assert connection._options.x11_forwarding is False
            connection.abort()

    asyncio.run(main())


def test_a_refused_key(tmp_path: Path) -> None:
    async def main() -> LinkError:
        place = Place(tmp_path)
        async with place.server("alpha", admits=False):
            with pytest.raises(LinkError) as caught:
                await (await place.hops().to("alpha")).open("true")
            return caught.value

    error = asyncio.run(main())
    assert "alpha: login refused: no key of tester is accepted" in str(error)
    assert f"ssh-copy-id -F {tmp_path}/config alpha" in str(error)
    assert not error.retry


def test_nobody_listens_and_nobody_answers(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
        place.config.write_text(
            f"Host alpha\n  HostName 127.0.0.1\n  Port {port}\n" + place.config.read_text()
        )
        closed = refused(place, "alpha")
        assert "connection refused: no sshd listens there" in str(closed)
        assert closed.retry
        holder.listen()  # accepts, and never says a word
        hops = SshHops(SshOptions(config=place.config, stage_timeout=0.3))
        silent = refused(place, "alpha", hops)
        assert silent.retry


def test_unreadable_and_broken_configurations(tmp_path: Path) -> None:
    place = Place(tmp_path)
    missing = refused(place, "alpha", SshHops(SshOptions(config=tmp_path / "nowhere")))
    assert "nowhere: ssh configuration cannot be read" in str(missing)
    place.config.write_text("Host alpha\n  Port many\n")
    assert "ssh configuration" in str(refused(place, "alpha"))


def test_few_handshakes_at_once_per_hop(tmp_path: Path) -> None:
    async def main() -> None:
        place = Place(tmp_path)
        async with place.server("n*", login_s=0.05) as counts:
            hops = place.hops()
            transports = [await hops.to(f"n{number}") for number in range(4 * HANDSHAKES_PER_HOP)]
            await asyncio.gather(*(transport.open("true") for transport in transports))
            assert counts.connections == 4 * HANDSHAKES_PER_HOP
            assert 1 < counts.most_handshakes <= HANDSHAKES_PER_HOP
            await asyncio.gather(*(transport.close() for transport in transports))

    asyncio.run(main())


def test_one_connection_to_a_jump_host_serves_all(tmp_path: Path) -> None:
    async def main() -> None:
        place = Place(tmp_path)
        async with place.server("jump") as jump, place.server("n*", "ProxyJump jump") as nodes:
            hops = place.hops()
            pipes = await asyncio.gather(
                *[(await hops.to(f"n{n}")).open("echo yes; exec cat") for n in range(5)]
            )
            assert [await pipe.read(100) for pipe in pipes] == [b"yes\n"] * 5
            assert (jump.connections, nodes.connections) == (1, 5)
            await hops.close()

    asyncio.run(main())
