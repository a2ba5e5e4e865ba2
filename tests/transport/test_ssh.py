"""The ssh transport against servers in this process."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import asyncssh
import pytest

from cockpit.base import verbs
from cockpit.engine.links import payload
from cockpit.engine.links.link import Link
from cockpit.transport.base import LinkError, NoLogin
from cockpit.transport.ssh import HANDSHAKES_PER_HOP, SshHops, SshOptions
from cockpit.transport.sshfaults import jump_host, typed
from tests.needs import require
from tests.transport.sshserver import Place
from tests.waiting import until


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
    assert unknown == f"alpha: host key is not known; check it and accept it with: {typed}"
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


@pytest.mark.parametrize("given", [True, False], ids=["with -F", "without"])
def test_commands_of_the_configuration_run_as_ssh_runs_them_and_with_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    ssh = require("ssh")
    home = tmp_path / "home"
    own = home / ".ssh" / "config"
    own.parent.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    async def main() -> None:
        place = Place(tmp_path)
        async with place.server("alpha"):
            command = f'Match exec "echo %n >>{tmp_path}/ran; test %n = alpha"\n  User tester\n'
            if given:
                place.config.write_text(command + place.config.read_text())
                own.write_text(f"Host *\n  ProxyCommand false\n  Ciphers 3des-cbc\n{command}")
            else:
                own.write_text(command + place.config.read_text())
                # ssh itself looks for the file in the home folder of the password database.
                (tmp_path / "ssh").write_text(f'#!/bin/sh\nexec {ssh} -F {own} "$@"\n')
                (tmp_path / "ssh").chmod(0o700)
            hops = SshHops(SshOptions(config=place.config if given else None))
            (await hops.connect("alpha")).abort()

    asyncio.run(main())
    assert (tmp_path / "ran").read_text() == "alpha\n"


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


def test_a_pkcs11_provider_that_asyncssh_cannot_use_hides_no_other_key(tmp_path: Path) -> None:
    """The agent may hold the card, too."""

    async def main() -> None:
        place = Place(tmp_path)
        async with place.server("alpha", "PKCS11Provider /usr/lib/none.so") as counts:
            (await place.hops().connect("alpha")).abort()
            assert counts.connections == 1
        async with place.server("beta", "PKCS11Provider /usr/lib/none.so", admits=False):
            with pytest.raises(NoLogin, match=r"PKCS11Provider needs ssh-add -s"):
                await place.hops().connect("beta")

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
    assert error.about == "login"
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


def test_jump_hosts_behind_jump_hosts(tmp_path: Path) -> None:
    """One connection to each, whether the chain is written in one line or hop by hop."""

    async def main() -> None:
        place = Place(tmp_path)
        async with (
            place.server("outer") as outer,
            place.server("inner", "ProxyJump outer") as inner,
            place.server("n*", "ProxyJump inner") as nodes,
            place.server("m*", "ProxyJump tester@outer,inner") as more,
        ):
            hops = place.hops()
            pipes = await asyncio.gather(
                *[(await hops.to(name)).open("echo yes; exec cat") for name in ("n1", "n2", "n3")]
            )
            assert [await pipe.read(100) for pipe in pipes] == [b"yes\n"] * 3
            assert (outer.connections, inner.connections, nodes.connections) == (1, 1, 3)
            connections = await asyncio.gather(hops.connect("m1"), hops.connect("m2"))
            assert (outer.connections, inner.connections, more.connections) == (2, 2, 2)
            for connection in connections:
                connection.abort()
            await hops.close()

    asyncio.run(main())


def test_jump_hosts_in_a_circle(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.config.write_text("Host *\n  ProxyJump bastion\n")
    said = str(refused(place, "alpha"))
    assert "jump host bastion is reached through itself" in said
    assert "ProxyJump none" in said


def test_what_fails_at_a_jump_host_names_it_and_a_command_that_works(tmp_path: Path) -> None:
    async def main() -> tuple[str, str]:
        place = Place(tmp_path)
        async with (
            place.server("outer"),
            place.server("inner", admits=False),
            place.server("other", trusted=False),
            place.server("alpha", "ProxyJump outer,ada@inner"),
            place.server("beta", "ProxyJump other"),
        ):
            said = []
            for name in ("alpha", "beta"):
                with pytest.raises(LinkError) as caught:
                    await place.hops().connect(name)
                said.append(str(caught.value))
            return said[0], said[1]

    login, key = asyncio.run(main())
    file = tmp_path / "config"
    assert "jump host ada@inner: login refused: no key of ada is accepted" in login
    assert f"try: ssh-copy-id -F {file} -o ProxyJump=outer ada@inner" in login
    assert f"jump host other: host key is not known; check it and accept it with: ssh -F {file} other" in key


@pytest.mark.parametrize(
    ("hop", "words"),
    [
        ("bastion", "ssh bastion"),
        ("ada@bastion:2222", "ssh -p 2222 ada@bastion"),
        ("ssh://ada@bastion:2222/", "ssh -p 2222 ada@bastion"),
        ("[fe80::1]:2222", "ssh -p 2222 fe80::1"),
        ("fe80::1", "ssh fe80::1"),
    ],
)
def test_how_a_jump_host_may_be_written(hop: str, words: str) -> None:
    assert typed(jump_host(hop, "gpu01")) == words


def test_a_jump_host_with_a_bad_port() -> None:
    with pytest.raises(LinkError, match="gpu01: ssh configuration: ProxyJump bastion:many: bad port"):
        jump_host("bastion:many", "gpu01")


PROXY = (
    "import os, socket, sys, threading\n"
    "link = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
    "def up():\n"
    "    while data := os.read(0, 65536): link.sendall(data)\n"
    "    link.shutdown(socket.SHUT_WR)\n"
    "threading.Thread(target=up, daemon=True).start()\n"
    "while data := link.recv(65536): os.write(1, data)\n"
)


def test_a_proxy_command_may_write_what_it_likes_to_stderr(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It runs in the user's shell, as ssh runs it, and its stderr is no part of the connection."""
    (tmp_path / "proxy.py").write_text(PROXY)

    async def main() -> None:
        place = Place(tmp_path)
        begin = f"echo $$ > {tmp_path}/pid; echo noise >&2"
        command = f"sh -c '{begin}; exec {sys.executable} {tmp_path}/proxy.py %p || exit 1'"
        async with place.server("alpha", f"ProxyCommand {command}") as counts:
            hops = place.hops()
            transport = await hops.to("alpha")
            pipe = await transport.open("head -c 1000000 /dev/zero; exec cat")
            size = 0
            while size < 1_000_000:
                size += len(await pipe.read(1 << 16))
            await transport.close()
            await hops.close()
            assert counts.connections == 1
        pid = int((tmp_path / "pid").read_text())
        await asyncio.to_thread(until, lambda: not Path(f"/proc/{pid}").exists(), "its end")

    asyncio.run(main())
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_a_proxy_command_that_fails_has_the_last_word(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.knows("alpha", 22, "ProxyCommand echo no way there >&2; exit 1")
    error = refused(place, "alpha")
    assert "alpha: ProxyCommand ended: no way there" in str(error)
    assert f"try: ssh -F {tmp_path}/config alpha true" in str(error)


@pytest.mark.slow
def test_a_proxy_command_ends_with_its_connection(tmp_path: Path) -> None:
    (tmp_path / "proxy.py").write_text(PROXY)

    async def main() -> None:
        place = Place(tmp_path)
        command = f"echo $$ > {tmp_path}/pid; exec {sys.executable} {tmp_path}/proxy.py %p"
        async with place.server("alpha", f"ProxyCommand sh -c '{command}'"):
            transport = await place.hops().to("alpha")
            await transport.open("exec cat")
            pid = int((tmp_path / "pid").read_text())
            assert Path(f"/proc/{pid}").exists()
            await transport.close()
            await asyncio.to_thread(until, lambda: not Path(f"/proc/{pid}").exists(), "its end")

    asyncio.run(main())


def test_a_server_that_asks_for_no_key_is_refused(tmp_path: Path) -> None:
    async def main() -> LinkError:
        place = Place(tmp_path)
        async with place.server("alpha", "HostbasedAuthentication yes", asks=False):
            with pytest.raises(LinkError) as caught:
                await place.hops().connect("alpha")
            return caught.value

    error = asyncio.run(main())
    assert "login refused: its sshd accepts anyone without authentication" in str(error)
    assert not error.retry


def test_ways_to_log_in_that_are_switched_off_are_not_tried(tmp_path: Path) -> None:
    async def main() -> None:
        place = Place(tmp_path)
        for line in ("PubkeyAuthentication no", "PreferredAuthentications hostbased,password"):
            async with place.server("alpha", line):
                with pytest.raises(LinkError, match="login refused"):
                    await place.hops().connect("alpha")

    asyncio.run(main())


def test_host_based_login_that_cannot_work_is_named(tmp_path: Path) -> None:
    async def main() -> str:
        place = Place(tmp_path)
        async with (
            place.server("jump"),
            place.server("alpha", "HostbasedAuthentication yes", "ProxyJump jump", admits=False),
        ):
            hops = place.hops()
            with pytest.raises(LinkError) as caught:
                await hops.connect("alpha")
            await hops.close()
            return str(caught.value)

    assert "; host-based login needs ssh-keysign here, and no jump host" in asyncio.run(main())
