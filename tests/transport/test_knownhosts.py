"""Which host keys are trusted, by servers in this process and by files."""

from __future__ import annotations

import asyncio
import base64
import subprocess
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from asyncssh.packet import NameList, UInt32

from cockpit.transport import hostkeys
from cockpit.transport.base import LinkError, UnknownHostKey
from cockpit.transport.knownhosts import Trust
from cockpit.transport.ssh import SshHops, SshOptions
from cockpit.transport.sshconfig import Asked, read_config
from tests.needs import require
from tests.transport.sshserver import Place


def trust(folder: Path, text: str, *options: str) -> Trust:
    """What a known_hosts file and options make trusted."""
    (folder / "known_hosts").write_text(text)
    file = folder / "config"
    lines = [f"UserKnownHostsFile {folder}/known_hosts", "GlobalKnownHostsFile none", *options]
    file.write_text("\n".join(lines) + "\n")
    return Trust(read_config(Asked("x"), file, 20), "x")


def line(key: asyncssh.SSHKey) -> str:
    """A public key in one line."""
    return key.export_public_key().decode().strip()


def keys(count: int, kind: str = "ssh-ed25519", **options: Any) -> list[asyncssh.SSHKey]:
    """New keys."""
    return [asyncssh.generate_private_key(kind, **options).convert_to_public() for _ in range(count)]


async def error_of(hops: SshHops, name: str) -> LinkError:
    """How a connection fails."""
    with pytest.raises(LinkError) as caught:
        await hops.connect(name)
    await hops.close()
    return caught.value


def test_hashed_entries_entries_with_a_port_and_what_is_no_entry(tmp_path: Path) -> None:
    one, two, three, four = keys(4)
    file = tmp_path / "hashed"
    file.write_text(f"gpu01 {line(one)}\n[gpu02]:2222 {line(two)}\n")
    subprocess.run([require("ssh-keygen"), "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    assert "gpu" not in file.read_text()
    mess = "rubbish\n@nonsense a b\n|1|notbase64|x ssh-ed25519 AAAA\n\x00\xff\n"
    known = trust(tmp_path, f"{mess}{file.read_text()}gpu* {line(three)}\n[10.0.0.1]:2222 {line(four)}\n")
    assert set(known("gpu01", "", None)[0]) == {one, three}
    assert set(known("GPU02", "", 2222)[0]) == {two}
    assert known("gpu02", "10.0.0.1", 2222)[0] == [two]


def test_an_address_makes_no_name_trusted_and_narrows_if_asked_to(tmp_path: Path) -> None:
    """The key of the machine at an address says nothing of who bears the name."""
    one, two = keys(2)
    text = f"gpu01 {line(one)}\n10.0.0.1 {line(two)}\n"
    assert trust(tmp_path, text)("gpu02", "10.0.0.1", None)[0] == []
    assert trust(tmp_path, text)("gpu01", "10.0.0.1", None)[0] == [one]
    assert trust(tmp_path, text, "CheckHostIP yes")("gpu01", "10.0.0.1", None)[0] == []
    assert trust(tmp_path, text, "CheckHostIP yes")("gpu01", "10.0.0.2", None)[0] == [one]


def test_a_revoked_key_stays_revoked_where_the_host_without_a_port_is_known(tmp_path: Path) -> None:
    (one,) = keys(1)
    known = trust(tmp_path, f"@revoked [gpu01]:2222 {line(one)}\ngpu01 {line(one)}\n")
    assert known("gpu01", "", 2222)[2] == [one]


@pytest.mark.parametrize("how", ["RevokedHostKeys", "@revoked"])
def test_a_revoked_host_key_is_refused(tmp_path: Path, how: str) -> None:
    async def main() -> LinkError:
        place = Place(tmp_path)
        async with place.server("alpha", f"RevokedHostKeys {tmp_path}/revoked"):
            key = place.known_hosts.read_text().split(" ", 1)[1]
            (tmp_path / "revoked").write_text("# a comment\n" + (key if how == "RevokedHostKeys" else ""))
            if how == "@revoked":
                place.known_hosts.write_text(f"@revoked * {key}{place.known_hosts.read_text()}")
            hops = SshHops(SshOptions(config=place.config, accept_new=True))
            return await error_of(hops, "alpha")

    said = str(asyncio.run(main()))
    assert "host key refused: Host key is revoked" in said
    assert "ask its admin" in said


def test_lists_of_revoked_keys_that_cannot_be_honoured(tmp_path: Path) -> None:
    (one,) = keys(1)
    with pytest.raises(LinkError, match="no host is trusted without it"):
        trust(tmp_path, "", f"RevokedHostKeys {tmp_path}/nowhere")
    (tmp_path / "key.pub").write_text(line(one) + "\n")
    words = [require("ssh-keygen"), "-q", "-k", "-f", str(tmp_path / "krl"), str(tmp_path / "key.pub")]
    subprocess.run(words, check=True)
    with pytest.raises(LinkError, match=r"binary list.*--transport openssh"):
        trust(tmp_path, "", f"RevokedHostKeys {tmp_path}/krl")


def test_a_short_rsa_key(tmp_path: Path) -> None:
    (short,) = keys(1, "ssh-rsa", key_size=1024)
    data = base64.b64decode(line(short).split()[1])
    assert trust(tmp_path, "", "RequiredRSASize 1024").objection(data) == ""
    said = trust(tmp_path, "", "RequiredRSASize 2048").objection(data)
    assert said == "an RSA key of 1024 bits, and RequiredRSASize is 2048"


@pytest.mark.parametrize(("signature", "objects"), [("ssh-rsa", True), ("rsa-sha2-512", False)])
def test_weak_signatures_of_authorities(tmp_path: Path, signature: str, objects: bool) -> None:
    authority = asyncssh.generate_private_key("ssh-rsa", key_size=2048)
    (host,) = keys(1)
    certificate = authority.generate_host_certificate(host, "id", principals=["gpu01"], sig_alg=signature)
    data = base64.b64decode(certificate.export_certificate().decode().split()[1])
    assert bool(trust(tmp_path, "").objection(data)) == objects
    require("ssh")
    assert "CASignatureAlgorithms" in trust(tmp_path, "", "CASignatureAlgorithms ssh-ed25519").objection(data)


def test_a_certificate_of_a_known_authority(tmp_path: Path) -> None:
    async def main() -> None:
        place = Place(tmp_path)
        authority = asyncssh.generate_private_key("ssh-ed25519")
        async with place.server("alpha", trusted=False, authority=authority):
            place.known_hosts.write_text(f"@cert-authority [127.0.0.1]:* {line(authority)}\n")
            (await place.hops().connect("alpha")).abort()
            # As in ssh, the certificate of an unknown authority is a plain key.
            place.known_hosts.write_text("")
            unknown = await error_of(place.hops(), "alpha")
            assert isinstance(unknown, UnknownHostKey)
            assert unknown.about == "host-key"
            hostkeys.trust([unknown])
            (await place.hops().connect("alpha")).abort()

    asyncio.run(main())


def test_a_plain_key_where_an_authority_is_known(tmp_path: Path) -> None:
    """As in ssh, it counts for itself: it is unknown, may be accepted, and is then trusted."""

    async def main() -> None:
        place = Place(tmp_path)
        async with place.server("alpha", trusted=False) as counts:
            place.known_hosts.write_text(f"@cert-authority [127.0.0.1]:* {line(keys(1)[0])}\n")
            unknown = await error_of(place.hops(), "alpha")
            assert isinstance(unknown, UnknownHostKey)
            assert unknown.about == "host-key"
            assert "not known: it has no certificate of the @cert-authority in known_hosts" in str(unknown)
            assert counts.connections == 1
            hostkeys.trust([unknown])
            (await place.hops().connect("alpha")).abort()

    asyncio.run(main())


def test_a_host_key_of_another_type_than_the_known_one(tmp_path: Path) -> None:
    """The server may have the known one besides, which is then asked for; if not, that is no changed key."""

    async def main() -> str:
        place = Place(tmp_path)
        (other,) = keys(1, "ssh-rsa", key_size=2048)
        async with place.server("alpha", "StrictHostKeyChecking accept-new", trusted=False):
            place.known_hosts.write_text(f"[127.0.0.1]:{place.port} {line(other)}\n")
            return str(await error_of(SshHops(SshOptions(config=place.config, accept_new=True)), "alpha"))

    said = asyncio.run(main())
    assert "its ssh-ed25519 host key is not known, but only ssh-rsa; verify with its admin, then" in said


@pytest.mark.parametrize(
    "wanted", ["", "HostKeyAlgorithms rsa-sha2-512,ssh-ed25519", "ServerAliveInterval 1m"]
)
def test_algorithms_of_known_keys_come_first(tmp_path: Path, wanted: str) -> None:
    if "1m" in wanted:
        require("ssh")  # is asked, and tells all its default algorithms
    known, authority = keys(1)[0], keys(1)[0]
    options = [wanted] if wanted else []
    assert trust(tmp_path, f"x {line(known)}\n", *options).algorithms()[0] == "ssh-ed25519"
    text = f"x {line(known)}\n@cert-authority x {line(authority)}\n"
    first = trust(tmp_path, text, *options).algorithms()[0]
    assert ("-cert-" in first) == ("HostKey" not in wanted)


def test_an_sshd_whose_host_keys_are_not_wanted(tmp_path: Path) -> None:
    """Like OpenSSH's, it hangs up without a word; nothing is tried again."""
    tried = 0

    async def sshd(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal tried
        tried += 1
        await reader.readline()
        kex, cipher, mac = (
            NameList([name]) for name in (b"curve25519-sha256", b"aes128-ctr", b"hmac-sha2-256")
        )
        rest = [
            cipher,
            cipher,
            mac,
            mac,
            NameList([b"none"]),
            NameList([b"none"]),
            NameList([]),
            NameList([]),
        ]
        lists = b"".join([kex, NameList([b"ssh-ed25519", b"x\x1b[31m"]), *rest])
        payload = b"\x14" + bytes(16) + lists + bytes(5)
        pad = 8 - (len(payload) + 5) % 8 + 8
        writer.write(b"SSH-2.0-x\r\n" + UInt32(len(payload) + 1 + pad) + bytes([pad]) + payload + bytes(pad))
        await reader.read(1)
        writer.close()

    async def main() -> LinkError:
        place = Place(tmp_path)
        async with await asyncio.start_server(sshd, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            place.knows("alpha", port, "HostKeyAlgorithms ssh-rsa")
            return await error_of(place.hops(), "alpha")

    error = asyncio.run(main())
    assert (tried, error.retry) == (1, False)
    assert (
        "no common ssh algorithm: HostKeyAlgorithms wants ssh-rsa, but its host keys are for ssh-ed25519"
        in str(error)
    )
    assert "\x1b" not in str(error)


@pytest.mark.parametrize("by", ["configuration", "option"])
@pytest.mark.parametrize("hashed", ["yes", "no"])
def test_a_new_host_key_is_kept_where_that_is_wanted(tmp_path: Path, by: str, hashed: str) -> None:
    async def main() -> None:
        place = Place(tmp_path)
        accept = "StrictHostKeyChecking accept-new" if by == "configuration" else "StrictHostKeyChecking yes"
        async with place.server("alpha", accept, f"HashKnownHosts {hashed}", trusted=False) as counts:
            hops = SshHops(SshOptions(config=place.config, accept_new=by == "option"))
            (await hops.connect("alpha")).abort()
            kept = place.known_hosts.read_text()
            assert kept.count("\n") == 1
            assert kept.startswith("|1|" if hashed == "yes" else f"[127.0.0.1]:{place.port} ssh-ed25519 ")
            (await SshHops(SshOptions(config=place.config)).connect("alpha")).abort()
            assert place.known_hosts.read_text() == kept
            assert counts.connections == 2

    asyncio.run(main())


def test_a_changed_host_key_is_never_accepted(tmp_path: Path) -> None:
    async def main() -> tuple[LinkError, str, str]:
        place = Place(tmp_path)
        async with place.server("alpha", "StrictHostKeyChecking accept-new"):
            before = f"[127.0.0.1]:{place.port} {line(keys(1)[0])}\n"
            place.known_hosts.write_text(before)
            hops = SshHops(SshOptions(config=place.config, accept_new=True))
            return await error_of(hops, "alpha"), before, place.known_hosts.read_text()

    error, before, after = asyncio.run(main())
    assert "host key changed" in str(error)
    assert error.about == "changed-key"
    assert f"-f {tmp_path}/known_hosts" in str(error)
    assert after == before


def test_a_new_key_that_cannot_be_kept_is_not_trusted(tmp_path: Path) -> None:
    async def main() -> list[str]:
        place = Place(tmp_path)
        said = []
        for file in (tmp_path, "/dev/null"):
            async with place.server("alpha", f"UserKnownHostsFile {file}", trusted=False):
                hops = SshHops(SshOptions(config=place.config, accept_new=True))
                said.append(str(await error_of(hops, "alpha")))
        return said

    unwritable, null = asyncio.run(main())
    assert "host key cannot be saved" in unwritable
    assert "the ssh configuration stores none" in null


def test_strict_checking_asks_nobody(tmp_path: Path) -> None:
    async def main() -> LinkError:
        place = Place(tmp_path)
        async with place.server("alpha", "StrictHostKeyChecking yes", trusted=False):
            return await error_of(place.hops(), "alpha")

    error = asyncio.run(main())
    assert not isinstance(error, UnknownHostKey)
    assert "host key is not known, and StrictHostKeyChecking is yes" in str(error)


def test_an_alias_stands_for_the_port_too(tmp_path: Path) -> None:
    async def main() -> None:
        place = Place(tmp_path)
        async with place.server("alpha", "HostKeyAlias Cluster", trusted=False):
            unknown = await error_of(place.hops(), "alpha")
            assert isinstance(unknown, UnknownHostKey)
            assert unknown.about == "host-key"
            assert unknown.entry == "cluster"
            hostkeys.trust([unknown])
            (await place.hops().connect("alpha")).abort()

    asyncio.run(main())
