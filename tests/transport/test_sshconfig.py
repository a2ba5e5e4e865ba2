"""The user's ssh configuration, read as ssh reads it: asyncssh's reader, ``ssh -G``, and what is refused."""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
import subprocess
from pathlib import Path

import pytest

from cockpit.transport import sshconfig
from cockpit.transport.base import LinkError
from cockpit.transport.sshconfig import Asked, HostConfig, read_config
from tests.needs import require
from tests.transport.sshserver import Place
from tests.transport.test_ssh import refused


def config(
    folder: Path, text: str, host: str = "gpu01", user: str = "", port: int | None = None
) -> HostConfig:
    """What these lines say about a host."""
    file = folder / "ssh_config"
    file.write_text(text)
    return read_config(Asked(host, user, port, host), file, 20)


def wrong(folder: Path, text: str) -> str:
    """How cockpit refuses these lines."""
    with pytest.raises(LinkError) as caught:
        config(folder, text)
    assert not caught.value.retry
    return str(caught.value)


@pytest.fixture
def without_ssh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without an ssh binary."""
    monkeypatch.setenv("PATH", str(tmp_path))


def test_missing_identity_and_known_hosts_files_are_passed_over(tmp_path: Path) -> None:
    async def main() -> list[str]:
        place = Place(tmp_path)
        nowhere = tmp_path / "nowhere"
        options = (
            f"IdentityFile {nowhere}",
            "IdentityFile /dev/null",
            f"CertificateFile {nowhere}",
            f"GlobalKnownHostsFile {nowhere} /dev/null {tmp_path}",
            f"UserKnownHostsFile {nowhere} {place.known_hosts}",
        )
        async with place.server("alpha", *options):
            pipe = await (await place.hops().to("alpha")).open("echo yes; exec cat")
            read = await pipe.read(100)
        async with place.server("beta", *options, "IdentitiesOnly yes"):
            pipe = await (await place.hops().to("beta")).open("echo yes; exec cat")
            return [read.decode(), (await pipe.read(100)).decode()]

    assert asyncio.run(main()) == ["yes\n", "yes\n"]


def test_a_refusal_names_the_user_and_the_keys_that_there_are_not(tmp_path: Path) -> None:
    words = ["-q", "-t", "ed25519", "-N", "secret", "-f", str(tmp_path / "locked")]
    subprocess.run([require("ssh-keygen"), *words], check=True)

    async def main() -> LinkError:
        place = Place(tmp_path)
        lines = f"IdentityFile {tmp_path}/nokey", f"IdentityFile {tmp_path}/locked", "User ada"
        async with place.server("alpha", *lines, admits=False):
            with pytest.raises(LinkError) as caught:
                await place.hops().connect("alpha")
            return caught.value

    said = str(asyncio.run(main()))
    assert "login refused: no key of ada is accepted" in said
    assert f"{tmp_path}/nokey: No such file or directory" in said
    assert f"{tmp_path}/locked needs ssh-add" in said
    assert f"try: ssh-copy-id -F {tmp_path}/config alpha" in said


def test_no_identity_file_means_no_key_and_not_the_default_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with ssh: whoever names an IdentityFile that is missing does not offer other keys."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()

    async def main() -> str:
        place = Place(tmp_path)
        os.link(tmp_path / "id", tmp_path / ".ssh/id_ed25519")
        place.config.write_text(place.config.read_text().replace(f"{tmp_path}/id", f"{tmp_path}/nokey"))
        async with place.server("alpha"):
            with pytest.raises(LinkError) as caught:
                await place.hops().connect("alpha")
            return str(caught.value)

    assert "login refused" in asyncio.run(main())


def test_tokens_variables_and_home_are_expanded_when_all_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PLACE", "/place")
    found = config(
        tmp_path,
        "Host gpu01\n  IdentityFile ~/%r@%h:%p\n  UserKnownHostsFile ~/known_%k ${PLACE}/%n\n"
        "  CertificateFile %d/%u-%%\n  IdentityAgent $SOCKET\n  HostKeyAlias alias\n"
        # What follows is part of the tokens above.
        "Host *\n  User ada\n  HostName 10.0.0.1\n  Port 2222\n",
    )
    assert found.identity_files == (f"{tmp_path}/ada@10.0.0.1:2222",)
    assert found.user_known_hosts == (f"{tmp_path}/known_alias", "/place/gpu01")
    assert found.certificate_files == (f"{tmp_path}/{getpass.getuser()}-%",)
    assert found.agent == ""


def test_whichever_of_jump_and_command_comes_first_counts(tmp_path: Path) -> None:
    jump = config(tmp_path, "Host *\n  ProxyJump %r@bastion\n  ProxyCommand nc %h %p\n  User ada\n")
    assert (jump.jump, jump.proxy_command) == ("ada@bastion", "")
    none = config(tmp_path, "Host *\n  ProxyJump none\n  ProxyCommand nc %h %p\n")
    assert (none.jump, none.proxy_command) == ("", "")
    command = config(tmp_path, "Host *\n  ProxyCommand nc %h %p 2>&1 | cat\n  ProxyJump bastion\n")
    assert (command.jump, command.proxy_command) == ("", "nc gpu01 22 2>&1 | cat")


def test_files_of_an_include_are_read_in_order(tmp_path: Path) -> None:
    for name in ("30", "10", "20"):
        (tmp_path / f"{name}.conf").write_text(f"Host *\n  Port {name}\n")
    assert config(tmp_path, f"Include {tmp_path}/*.conf\n").port == 10


ASKED = {
    "Match final": "Host gpu01\n  HostName 10.0.0.1\nMatch final host 10.0.0.1\n  Port 2222\n  User ada\n",
    "Match exec": 'Match exec "test %n = gpu01"\n  Port 2222\n  User ada\n',
    "a time": "Host *\n  ServerAliveInterval 10m\n  ConnectTimeout 1m\n  Port 2222\n  User ada\n",
    "canonical names": "Host *\n  CanonicalizeHostname yes\n  CanonicalDomains x\nMatch final\n  Port 2222\n"
    "  User ada\n",
    "a comment": "Host *\n  Port 2222 # as everywhere\n  User ada\n",
}


@pytest.mark.parametrize("text", ASKED.values(), ids=ASKED.keys())
def test_what_asyncssh_cannot_evaluate_is_asked_of_ssh(tmp_path: Path, text: str) -> None:
    require("ssh")
    found = config(
        tmp_path, text + "Host *\n  IdentityFile ~/none-%r\n  SetEnv A=1 B=2\n  ProxyJump a,b@c:3\n"
    )
    assert (found.port, found.user, found.jump) == (2222, "ada", "a,b@c:3")
    assert found.identity_files == (os.path.expanduser("~/none-ada"),)
    assert found.options.get("SetEnv") == ["A=1", "B=2"]
    assert found.strict == "ask"
    assert not found.has_ciphers
    by_hand = config(tmp_path, text, user="grace", port=22)
    assert (by_hand.port, by_hand.user) == (22, "grace")


def test_ssh_is_asked_for_the_nodes_that_need_it_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda words, **_: asked.append(words))
    assert config(tmp_path, "Host other\n  ServerAliveInterval 10m\nHost *\n  Port 2222\n").port == 2222
    assert not asked


@pytest.mark.usefixtures("without_ssh")
@pytest.mark.parametrize("text", ["Match final\n  Port 2222\n", "Host *\n  ServerAliveInterval 10m\n"])
def test_without_ssh_the_line_and_a_way_out_are_named(tmp_path: Path, text: str) -> None:
    said = wrong(tmp_path, text)
    assert f"{tmp_path}/ssh_config line" in said
    assert "install ssh" in said


def test_what_ssh_does_not_understand_either_is_said_in_its_words(tmp_path: Path) -> None:
    require("ssh")
    assert "ssh_config line 2: Bad port 'many'" in wrong(tmp_path, "Host gpu01\n  Port many\n")


def test_a_command_of_the_configuration_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require("ssh")
    file = tmp_path / "ssh_config"
    file.write_text('Match exec "sleep 60"\n  Port 2222\n')
    with pytest.raises(LinkError, match=r"no answer from ssh -G for 0\.2 s; does a Match exec hang"):
        read_config(Asked("gpu01", "", None, "gpu01"), file, 0.2)


@pytest.mark.parametrize(
    "line",
    [
        "KnownHostsCommand /usr/bin/ours %H",
        "ProxyUseFdpass yes",
        "GSSAPIServerIdentity host@x",
        "GSSAPIClientIdentity ada@X",
        "RefuseConnection node is in repair",
    ],
)
def test_what_cockpit_cannot_do_as_it_says_is_refused(tmp_path: Path, line: str) -> None:
    said = wrong(tmp_path, f"Host *\n  {line}\n")
    assert f"ssh configuration: {line.split()[0]}" in said
    assert "--transport openssh" in said


@pytest.mark.parametrize("value", ["no", "none"])
def test_the_same_lines_switched_off_are_fine(tmp_path: Path, value: str) -> None:
    line = "ProxyUseFdpass no" if value == "no" else "KnownHostsCommand none"
    assert config(tmp_path, f"Host *\n  {line}\n").host == "gpu01"


def test_no_keyword_of_ssh_that_asyncssh_skips_is_unheard_of() -> None:
    """A new OpenSSH may narrow trust by a keyword that nobody here has looked at."""
    require("ssh")
    answer = subprocess.run(
        ["ssh", "-G", "-F", "none", "x"], capture_output=True, text=True, check=True
    ).stdout
    known = {name.lower() for name in (*sshconfig._Reader._handlers, *HARMLESS)}
    assert {line.split()[0].lower() for line in answer.splitlines()} <= known


HARMLESS = (
    *("AddKeysToAgent", "ClearAllForwardings", "ConnectionAttempts", "ControlMaster"),
    *("ControlPersist", "EnableEscapeCommandline", "EscapeChar", "ExitOnForwardFailure", "FingerprintHash"),
    *("ForkAfterAuthentication", "ForwardX11", "ForwardX11Timeout", "GatewayPorts", "GSSAPIKexAlgorithms"),
    *("GSSAPIRenewalForcesRekey", "GSSAPITrustDns", "IPQoS", "LogLevel", "LogVerbose"),
    *("NoHostAuthenticationForLocalhost", "PermitLocalCommand"),
    *("PermitRemoteOpen", "SecurityKeyProvider", "SessionType", "StdinNull", "StreamLocalBindMask"),
    *("StreamLocalBindUnlink", "SyslogFacility", "Tunnel", "TunnelDevice", "UpdateHostKeys"),
    *("VerifyHostKeyDNS", "VisualHostKey", "XAuthLocation"),
    # Of later versions than 9.2:
    *("ChannelTimeout", "ObscureKeystrokeTiming", "VersionAddendum", "WarnWeakCrypto"),
)
"""They widen trust, which cockpit does not, or concern forwardings, terminals, logs and times."""


def test_a_default_file_of_the_system_does_not_end_it(tmp_path: Path) -> None:
    """A port that nobody listens on is refused as such, whatever /etc/ssh/ssh_config says here."""
    require("ssh")
    place = Place(tmp_path)
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        place.knows("alpha", holder.getsockname()[1], "ServerAliveInterval 10m")
        assert "connection refused" in str(refused(place, "alpha"))


def test_a_user_without_a_name_is_told_to_give_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert "knows no name for your user id" in wrong(tmp_path, "Host *\n")
    monkeypatch.setenv("USER", "ada")
    assert config(tmp_path, "Host *\n").user == "ada"
