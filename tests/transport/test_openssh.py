"""The ssh program as a transport, against servers in this process; and what it says, put into sentences."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from cockpit import paths
from cockpit.base import verbs
from cockpit.engine.links import payload
from cockpit.engine.links.link import Link
from cockpit.transport import child
from cockpit.transport.base import ConnectStage, LinkError, Progress
from cockpit.transport.openssh import OpensshWays
from cockpit.transport.openssh_config import OpensshConfig
from cockpit.transport.openssh_process import HANDSHAKES_PER_HOP
from cockpit.transport.openssh_words import Failure, StderrReader
from tests.needs import require
from tests.transport.sshserver import Place
from tests.waiting import PATIENCE_S, soon, until


@pytest.fixture(autouse=True)
def real_ssh() -> Iterator[None]:
    """The real ssh, of which none is left."""
    require("ssh")
    yield
    until(lambda: not ssh_children(), "no ssh is left, nor one that has ended and nobody waits for")


def ssh_children() -> list[int]:
    """The pids of the ssh processes that this one has started."""
    found = []
    for one in psutil.Process().children():
        with suppress(psutil.Error):  # it has been waited for meanwhile
            if one.name() == "ssh":
                found.append(one.pid)
    return found


def ways(place: Place, patience_s: float = 30) -> OpensshWays:
    """Ways by a place's configuration."""
    return OpensshWays(str(place.config), patience_s)


async def refused(ways: OpensshWays, name: str) -> LinkError:
    """The error of opening anything on a server."""
    transport = await ways.to(name)
    with pytest.raises(LinkError) as caught:
        await transport.open("true")
    await transport.close()
    await ways.close()
    return caught.value


def test_an_agent_over_the_ssh_program(tmp_path: Path) -> None:
    async def main() -> None:
        place = Place(tmp_path)
        async with place.server("alpha") as counts:
            link = Link("alpha", await ways(place).to("alpha"), [sys.executable])
            assert (await link.open()).format == 1
            assert (await link.call(verbs.Ping())).t > 0
            assert link.transport.kind == "openssh"
            await link.close()
            assert counts.commands == [payload.COMMAND]

    asyncio.run(main())


def test_what_the_command_says_and_nothing_of_ssh_itself(tmp_path: Path) -> None:
    async def main() -> None:
        place = Place(tmp_path)
        async with place.server("alpha"):
            transport = await ways(place).to("alpha")
            pipe = await transport.open("cat; echo out; echo err >&2; sleep 0.2; exit 3")
            await pipe.write(b"~.\n~?\n")
            pipe._process.stdin.write_eof()  # type: ignore[attr-defined]
            said = b""
            while data := await pipe.read(100):
                said += data
            assert said == b"~.\n~?\nout\n"
            assert pipe.last_words() == "err"
            await transport.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "option",
    ["UserKnownHostsFile none", "StrictHostKeyChecking no", "StrictHostKeyChecking accept-new"],
    ids=str,
)
def test_no_configuration_turns_host_keys_off(tmp_path: Path, option: str) -> None:
    async def main() -> None:
        place = Place(tmp_path)
        async with place.server("alpha", option, "NoHostAuthenticationForLocalhost yes", trusted=False):
            error = await refused(ways(place), "alpha")
            assert str(error).startswith("alpha: host key is not known: ssh-ed25519 SHA256:")
            typed = f"accept it with: ssh -F {place.config} alpha true"
            assert error.hint.endswith(typed if "none" not in option else "give it a UserKnownHostsFile")
            assert not error.retry

    asyncio.run(main())


def test_a_changed_host_key(tmp_path: Path) -> None:
    async def main() -> None:
        place = Place(tmp_path)
        async with place.server("beta"):
            other = place.known_hosts.read_text().split(" ", 1)[1]
        async with place.server("alpha", trusted=False):
            entry = f"[127.0.0.1]:{place.port}"
            place.known_hosts.write_text(f"{entry} {other}")
            error = await refused(ways(place), "alpha")
            assert "host key changed: a different machine" in error.what
            assert "(it shows ssh-ed25519 SHA256:" in error.what
            assert error.hint.endswith(f"ssh-keygen -f {place.known_hosts} -R '{entry}'")
            assert not error.retry

    asyncio.run(main())


def test_a_jump_host_is_checked_as_strictly(tmp_path: Path) -> None:
    async def main() -> None:
        place = Place(tmp_path)
        lax = "StrictHostKeyChecking no"
        async with place.server("jump", lax, trusted=False) as jump, place.server("alpha", "ProxyJump jump"):
            error = await refused(ways(place), "alpha")
            assert "host key is not known" in error.what
            assert not error.retry
            assert jump.commands == []

    asyncio.run(main())


def test_through_a_jump_host(tmp_path: Path) -> None:
    async def main() -> None:
        place = Place(tmp_path)
        async with place.server("jump") as jump, place.server("alpha", "ProxyJump jump") as alpha:
            made = ways(place)
            transport = await made.to("alpha")
            pipe = await transport.open("echo there; cat")
            assert await pipe.read(100) == b"there\n"
            await transport.close()
            await made.close()
            assert (jump.connections, alpha.connections) == (1, 1)

    asyncio.run(main())


def test_nothing_of_the_configuration_is_forwarded_or_run(tmp_path: Path, sockets_of_ssh: Path) -> None:
    """Each of these would add something to the connection, or end it."""
    wishes = ["ForwardAgent yes", "ForwardX11 yes", "LocalForward 127.0.0.1:1 127.0.0.1:1", "Tunnel yes"]
    wishes += ["PermitLocalCommand yes", f"LocalCommand touch {tmp_path}/ran", "RemoteCommand echo other"]
    wishes += ["RequestTTY force", "ControlMaster yes", f"ControlPath {sockets_of_ssh}/master"]
    wishes += ["ControlPersist yes", "LogLevel QUIET", "BatchMode no", "UpdateHostKeys yes"]

    async def main() -> None:
        place = Place(tmp_path)
        async with place.server("alpha", *wishes) as counts:
            made = ways(place)
            asked = await made.config.ask("alpha")
            no = ["forwardagent", "forwardx11", "permitlocalcommand", "controlmaster", "requesttty"]
            no += ["tunnel", "updatehostkeys", "localforward"]
            assert {asked.get(name, "no") for name in no} <= {"no", "false"}
            assert {asked["batchmode"], asked["clearallforwardings"]} == {"yes"}
            transport = await made.to("alpha")
            pipe = await transport.open("echo there; cat")
            assert (await pipe.read(100)).splitlines()[0] == b"there"
            await transport.close()
            assert counts.commands == ["echo there; cat"]
            assert not (tmp_path / "ran").exists()
            assert not (tmp_path / "master").exists()

    asyncio.run(main())


def test_nobody_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by ssh nor by a command that its configuration runs: no terminal, no window."""
    asked = tmp_path / "asked"
    asks = tmp_path / "asks"
    asks.write_text(f"#!/bin/sh\necho >> {asked}\n")
    asks.chmod(0o700)
    for name, value in (("SSH_ASKPASS", str(asks)), ("SSH_ASKPASS_REQUIRE", "force"), ("DISPLAY", ":77")):
        monkeypatch.setenv(name, value)

    async def main() -> None:
        place = Place(tmp_path)
        own = tmp_path / "own"
        async with place.server("jump", admits=False):
            own.write_text(place.config.read_text() + "  StrictHostKeyChecking ask\n")
            async with place.server("alpha", f"ProxyCommand ssh -F {own} -W 127.0.0.1:{place.port} jump"):
                place.known_hosts.write_text("")
                assert not (await refused(ways(place), "alpha")).retry
        assert not asked.exists()

    asyncio.run(main())


def test_a_refused_key_names_who_was_refused(tmp_path: Path) -> None:
    async def main() -> None:
        place = Place(tmp_path)
        async with place.server("alpha", admits=False):
            error = await refused(ways(place), "alpha")
            assert error.what == "login refused: tester is not accepted"
            assert f"ssh-copy-id -F {place.config} alpha" in error.hint
            assert not error.retry

    asyncio.run(main())


@pytest.mark.slow
def test_nobody_listens_and_nobody_answers(tmp_path: Path) -> None:
    async def main() -> None:
        place = Place(tmp_path)
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            place.knows("alpha", holder.getsockname()[1])
            closed = await refused(ways(place), "alpha")
            assert closed.what == "connection refused: no sshd listens there"
            assert closed.retry
            holder.listen()  # accepts, and never says a word
            made = ways(place)
            transport = await made.to("alpha")
            opening = asyncio.create_task(transport.open("true"))
            await soon(lambda: transport.progress.stage is ConnectStage.BANNER, "the connection is there")
            made.patience_s = 3
            with pytest.raises(LinkError) as silent:
                await opening
            assert silent.value.what == "no answer for 3 s: still waiting for sshd's banner"
            assert silent.value.retry
            await transport.close()
            await made.close()

    asyncio.run(main())


def test_a_name_that_nobody_knows(tmp_path: Path) -> None:
    error = asyncio.run(refused(ways(Place(tmp_path)), "no-such-host.invalid"))
    assert (error.what, error.retry) == ("name unknown", False)


def test_a_killed_ssh_is_a_lost_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "ENDS_S", PATIENCE_S)

    async def main() -> None:
        place = Place(tmp_path)
        async with place.server("alpha"):
            transport = await ways(place).to("alpha")
            pipe = await transport.open("cat")
            (pid,) = ssh_children()
            assert os.getsid(pid) == pid
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(LinkError, match="its ssh was ended here by signal 9") as caught:
                await pipe.read(100)
            assert caught.value.retry
            await transport.close()

    asyncio.run(main())


def test_few_logins_at_once_over_one_hop(tmp_path: Path) -> None:
    async def main() -> None:
        place = Place(tmp_path)
        async with place.server("n*", login_s=0.1) as counts:
            made = ways(place)
            transports = [await made.to(f"n{number}") for number in range(2 * HANDSHAKES_PER_HOP)]
            await asyncio.gather(*(transport.open("true") for transport in transports))
            assert counts.connections == 2 * HANDSHAKES_PER_HOP
            assert 1 < counts.most_handshakes <= HANDSHAKES_PER_HOP
            await asyncio.gather(*(transport.close() for transport in transports))

    asyncio.run(main())


def test_an_open_master_is_used(tmp_path: Path, sockets_of_ssh: Path) -> None:
    async def main() -> None:
        place = Place(tmp_path)
        socket_path = sockets_of_ssh / "m"
        wish = f"ControlPath {socket_path}"
        async with place.server("alpha", wish) as counts, place.master("alpha", socket_path):
            place.folder.joinpath("id").unlink()
            transport = await ways(place).to("alpha")
            pipe = await transport.open("echo there; cat")
            assert await pipe.read(100) == b"there\n"
            assert counts.connections == 1
            await transport.close()

    asyncio.run(main())


def test_configurations_that_cannot_be_used(tmp_path: Path) -> None:
    async def main() -> None:
        missing = await refused(OpensshWays(str(tmp_path / "nowhere")), "alpha")
        assert str(missing).startswith(f"{tmp_path}/nowhere: ssh configuration cannot be read; check it: ")
        assert not missing.retry
        wrong = tmp_path / "a config"
        wrong.write_text("Host alpha\n  Fort 22\n")
        wrong.chmod(0o666)
        error = await refused(OpensshWays(str(wrong)), "alpha")
        assert error.what == f"ssh configuration: {wrong}:2: Bad configuration option: fort"
        assert error.hint == f"correct it, then try: ssh -F '{wrong}' -G alpha"
        assert not error.retry

    asyncio.run(main())


def test_a_state_folder_that_ssh_cannot_quote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "my state"))
    error = asyncio.run(refused(OpensshWays(), "alpha"))
    assert "ssh cannot use a path with such characters" in str(error)
    assert "XDG_STATE_HOME" in error.hint


def test_a_name_is_never_an_option(tmp_path: Path) -> None:
    place = Place(tmp_path)
    error = asyncio.run(refused(ways(place), f"-oProxyCommand=touch {tmp_path}/ran"))
    assert not error.retry
    assert not (tmp_path / "ran").exists()


def test_without_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    error = asyncio.run(refused(OpensshWays(), "alpha"))
    assert error.what == "cannot start ssh: No such file or directory"
    assert "--transport ssh" in error.hint


@pytest.mark.parametrize(
    ("version", "has", "lacks"),
    [
        ("OpenSSH_7.4p1, OpenSSL 1.0.2k-fips", ("BatchMode yes",), ("RemoteCommand", "SessionType")),
        ("OpenSSH_8.0p1, OpenSSL 1.1.1k", ("RemoteCommand none",), ("SessionType",)),
        ("OpenSSH_for_Windows_9.5p1", ("RemoteCommand none", "SessionType default"), ()),
        ("another ssh", ("RemoteCommand none", "SessionType default"), ()),
    ],
    ids=str,
)
def test_older_versions_get_the_options_that_they_know(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    has: tuple[str, ...],
    lacks: tuple[str, ...],
) -> None:
    fake = tmp_path / "ssh"
    fake.write_text(f"#!/bin/sh\necho '{version}' >&2\n")
    fake.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    words = asyncio.run(OpensshConfig().words())
    file = Path(words[-1])
    assert words[:2] == ("ssh", "-F")
    assert file.parent == paths.ssh()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    lines = file.read_text().splitlines()
    assert set(has) <= set(lines)
    assert not [line for line in lines if line.split()[0] in lacks]
    # What comes first counts, so the user's own is last.
    assert lines[-2:] == ["Include ~/.ssh/config", "Include /etc/ssh/ssh_config"]


ASKED = {"hostname": "10.0.0.1", "user": "ada", "proxyjump": "bastion"}

SAYINGS = {
    "a job is needed": (
        "Access denied by pam_slurm_adopt: you have no active jobs on this node\n"
        "Connection closed by 10.0.0.1 port 22\n",
        "SLURM refuses logins without a job on that node: you have no active jobs on this node",
        "allocate the node first (salloc, sbatch), then use its job: --slurm JOBID",
        False,
    ),
    "7.4: refused": (
        "debug1: Authenticating to 10.0.0.1:22 as 'bob'\nPermission denied (publickey,password).\n",
        "login refused: bob is not accepted (publickey,password)",
        "try: ssh-copy-id gpu01 · for a password or a code, with a ControlPath in the ssh configuration, "
        "log in once and keep that open: ssh -fNM gpu01",
        False,
    ),
    "a second factor": (
        "debug1: Authenticating to 10.0.0.1:22 as 'bob'\n"
        'Authenticated using "publickey" with partial success.\n'
        "bob@10.0.0.1: Permission denied (keyboard-interactive).\n",
        "login refused: bob needs more than a key (keyboard-interactive)",
        "ssh -fNM gpu01",
        False,
    ),
    "refused at a jump host": (
        "debug1: Executing proxy command: exec ssh -W '[10.0.0.1]:22' bastion\n"
        "debug1: Authenticating to bastion.site:22 as 'bob'\n"
        "bob@bastion.site: Permission denied (publickey,keyboard-interactive).\n"
        "kex_exchange_identification: Connection closed by remote host\n",
        "login refused at jump host bastion: bob is not accepted (publickey,keyboard-interactive)",
        "try: ssh-copy-id bastion · for a password or a code, with a ControlPath in the ssh configuration, "
        "log in once and keep that open: ssh -fNM bastion",
        False,
    ),
    "too many keys": (
        "Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures\n"
        "Disconnected from 10.0.0.1 port 22\n",
        "too many keys offered",
        "IdentitiesOnly",
        False,
    ),
    "7.4: changed": (
        "@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\nECDSA host key for gpu01 has changed and you have requested "
        "strict checking.\nHost key verification failed.\n",
        "host key changed: a different machine, or somebody in between",
        "verify with its admin, then: ssh-keygen -R gpu01",
        False,
    ),
    "revoked": (
        "@       WARNING: REVOKED HOST KEY DETECTED!               @\nHost key verification failed.\n",
        "host key refused: it is revoked",
        "ask its admin",
        False,
    ),
    "another check": ("Host key verification failed.\n", "host key refused", "ssh gpu01 true", False),
    "no algorithm": (
        "Unable to negotiate with 10.0.0.1 port 22: no matching host key type found. Their offer: ssh-rsa\n",
        "no common ssh algorithm: no matching host key type found. Their offer: ssh-rsa",
        "ssh gpu01 true",
        False,
    ),
    "no way from here": (
        "ssh: connect to host 10.0.0.1 port 22: No route to host\n",
        "no route to it",
        "is the node up",
        True,
    ),
    "no way from the jump host": (
        "channel 0: open failed: connect failed: No route to host\nstdio forwarding failed\n"
        "Connection closed by UNKNOWN port 65535\n",
        "no route to it",
        "is the node up",
        True,
    ),
    "timed out": (
        "ssh: connect to host 10.0.0.1 port 22: Connection timed out\n",
        "no answer to the connection",
        "is the node up",
        True,
    ),
    "unknown to the jump host": (
        "channel 0: open failed: connect failed: Name or service not known\nstdio forwarding failed\n",
        "name unknown",
        "correct the hostfile",
        False,
    ),
    "busy": (
        "kex_exchange_identification: Connection closed by remote host\n"
        "Connection closed by 10.0.0.1 port 22\n",
        "connection lost: kex_exchange_identification: Connection closed by remote host",
        "sshd may be dropping parallel logins",
        True,
    ),
    "silent": (
        "Timeout, server 10.0.0.1 not responding.\n",
        "connection lost: no answer",
        "",
        True,
    ),
    "anything": ("** advice\nunforeseen words\n", "connection failed: unforeseen words", "ssh gpu01", True),
    "nothing": ("", "connection failed: ssh ended with 255 and no message", "ssh gpu01 true", True),
}


@pytest.mark.parametrize("name", SAYINGS)
def test_what_ssh_says_in_a_sentence(name: str) -> None:
    text, what, hint, retry = SAYINGS[name]
    said = StderrReader(Progress())
    for piece in (text[:7], text[7:]):
        said.add(piece.replace("\n", "\r\n").encode())
    error = Failure("gpu01", said, ASKED, ("ssh", "gpu01")).explain(255)
    assert error is not None
    assert (error.what, error.retry) == (what, retry)
    assert hint in error.hint
    known = {
        "login refused": "login",
        "too many keys": "many-keys",
        "host key changed": "changed-key",
        "host key is not known": "host-key",
        "name unknown": "name",
        "connection lost: kex": "dropped",
        "SLURM refuses": "job",
    }
    about = next((word for begin, word in known.items() if what.startswith(begin)), "")
    assert error.about == ("" if "more than a key" in what else about)


def test_the_end_of_the_command_is_not_a_failure_of_ssh() -> None:
    said = StderrReader(Progress())
    failure = Failure("gpu01", said, ASKED, ("ssh", "gpu01"))
    said.add(b"debug1: Sending command: x\n")
    assert failure.explain(0) is None
    assert failure.explain(3) is None
    assert failure.explain(None) is None
    assert failure.explain(255) is not None


def test_a_node_cannot_pretend_to_be_ssh_once_it_is_open() -> None:
    progress = Progress()
    said = StderrReader(progress)
    said.add(b"debug1: Sending command: x\ndebug1: Authenticating to evil:22 as 'root'\n")
    stage = progress.stage
    said.add(b"debug1: Connection established.\n")
    assert (said.host, said.user, progress.stage) == ("", "", stage)


def test_a_flood_without_a_newline_fills_no_memory() -> None:
    said = StderrReader(Progress())
    for _ in range(100):
        said.add(b"x" * 1000)
    assert len(said.text()) <= 2 * said.LIMIT + 1
