"""Which host keys are trusted: known_hosts files as ssh reads them, and what narrows them.

Files that are missing or unreadable count as empty, and so do lines that make no sense.
Sources: asyncssh 2.24 (``known_hosts.py``, ``connection.py``); OpenSSH 9.2: ``sshd(8)``, ``ssh_config(5)``.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import asyncssh
from asyncssh.connection import _select_host_key_algs
from asyncssh.public_key import get_default_certificate_algs, get_default_public_key_algs

from cockpit.transport.base import LinkError, NoLogin
from cockpit.transport.sshconfig import HostConfig

_BINARY_LIST = b"SSHKRL\n\0"
"""How a key revocation list of ssh-keygen begins, as opposed to a file of public keys."""

_WEAK_SIGNATURES = ("ssh-rsa", "ssh-dss")
"""What ssh accepts from no authority unless CASignatureAlgorithms says so."""


class Trust:
    """The host keys that a configuration trusts; asyncssh calls it with a host, an address and a port.

    :raises LinkError: a list of revoked keys cannot be honoured
    """

    def __init__(self, config: HostConfig, name: str) -> None:
        self._known = _known((*config.user_known_hosts, *config.global_known_hosts))
        self._revoked = _revoked(config.revoked, name) if config.revoked else []
        self._check_ip = config.check_ip
        self._rsa_bits = config.rsa_bits
        self._authorities = config.authorities
        self._wanted = config.options.get("HostKeyAlgorithms", ())
        port = None if config.port == 22 or config.alias else config.port
        self.place = (config.alias or config.host).lower(), port
        """What known_hosts calls the host; as in ssh, an alias stands for the port too."""

    def algorithms(self) -> list[str]:
        """The algorithms of host keys to ask for, those of known keys first.

        asyncssh would ask for nothing else, and ends up without a host key to show a person.

        :raises ValueError: the configuration names none that there is
        """
        host, port = self.place
        keys, authorities, *_ = self(host, "", port)
        known = {algorithm for key in keys for algorithm in key.sig_algorithms}

        def order(algorithm: bytes) -> int:
            if algorithm in known:
                return 1
            return 0 if authorities and b"-cert-" in algorithm else 2

        default = [*get_default_certificate_algs(), *get_default_public_key_algs()]
        found = _select_host_key_algs((), self._wanted, default)  # type: ignore[arg-type]
        return [each.decode() for each in sorted(found, key=order)]

    def __call__(self, host: str, address: str, port: int | None) -> Sequence[Any]:
        """Known keys, authorities, revoked keys, then those of X.509.

        As in ssh, an address counts only where CheckHostIP asks for it, and then only narrows.
        """
        host = host.lower()
        keys, authorities, revoked, *rest = self._known.match(host, "", port)
        if port:
            # asyncssh drops what is revoked for a port when it finds keys for the host without one.
            revoked = [*revoked, *self._known.match(f"[{host}]:{port}", "", None)[2]]
        if self._check_ip and address and (known := self._known.match("", address, port)[0]):
            keys = [key for key in keys if key in known]
        return (keys, authorities, [*revoked, *self._revoked], *rest)

    def plain(self, data: bytes, host: str, port: int | None) -> bytes:
        """The host key in a certificate of an authority that nobody knows; anything else unchanged.

        As in ssh, such a certificate counts for nothing, and its key for what it is.
        """
        _, authorities, revoked, *_ = self(host, "", port)
        try:
            certificate: Any = asyncssh.import_certificate(_text_of(data))
        except asyncssh.KeyImportError:
            return data
        if certificate.is_x509 or certificate.signing_key in [*authorities, *revoked]:
            return data
        key: bytes = certificate.key.public_data
        return key

    def objection(self, data: bytes) -> str:
        """Why a host key, or a host's certificate, must not be trusted whoever knows it; empty: nothing."""
        text = _text_of(data)
        keys: list[asyncssh.SSHKey] = []
        try:
            if b"-cert-" in text.partition(b" ")[0]:
                certificate: Any = asyncssh.import_certificate(text)
                keys = [certificate.key, certificate.signing_key]
                signature = _signature_algorithm(data, certificate.signing_key.public_data)
                if not self._accepts(signature):
                    return f"CASignatureAlgorithms excludes {signature}, which its certificate is signed with"
            else:
                keys = [asyncssh.import_public_key(text)]
        except asyncssh.KeyImportError:
            return ""  # asyncssh refuses it
        for key in keys:
            bits = getattr(key.pyca_key, "key_size", 0) if key.algorithm == b"ssh-rsa" else 0
            if 0 < bits < self._rsa_bits:
                return f"an RSA key of {bits} bits, and RequiredRSASize is {self._rsa_bits}"
        return ""

    def _accepts(self, signature: str) -> bool:
        if self._authorities is None:
            return signature not in _WEAK_SIGNATURES
        return signature in self._authorities


def _text_of(data: bytes) -> bytes:
    """A key or certificate as a file has it: ``ssh-ed25519 AAAA…``."""
    return data[4 : 4 + int.from_bytes(data[:4], "big")] + b" " + base64.b64encode(data)


def _signature_algorithm(certificate: bytes, authority: bytes) -> str:
    """The algorithm that a certificate is signed with: its last field, after the authority's key."""
    signature = certificate[certificate.rindex(authority) + len(authority) + 4 :]
    return signature[4 : 4 + int.from_bytes(signature[:4], "big")].decode(errors="replace")


def _known(names: Iterable[str]) -> asyncssh.SSHKnownHosts:
    """The entries of known_hosts files, read once for all nodes and again when a file has changed."""
    files = []
    for name in names:
        try:
            found = os.stat(name)
        except OSError:
            continue
        files.append((name, found.st_ino, found.st_mtime_ns, found.st_size))
    return _parsed(tuple(files))


@lru_cache(maxsize=16)
def _parsed(files: tuple[tuple[str, int, int, int], ...]) -> asyncssh.SSHKnownHosts:
    text = "\n".join(_text(name) for name, *_ in files)
    try:
        return asyncssh.import_known_hosts(text)
    except ValueError:
        return asyncssh.import_known_hosts("\n".join(filter(_is_entry, text.splitlines())))


def _text(name: str) -> str:
    try:
        return Path(name).read_text(errors="replace")
    except OSError:
        return ""


def _is_entry(line: str) -> bool:
    try:
        asyncssh.import_known_hosts(line)
    except ValueError:
        return False
    return True


def _revoked(file: str, name: str) -> list[asyncssh.SSHKey]:
    """The keys in a RevokedHostKeys file.

    :raises LinkError: it cannot be read, for which ssh trusts no host at all, or it is binary
    """
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        what = f"RevokedHostKeys {file}: {error.strerror}: no host is trusted without it"
        raise LinkError(
            what, where=name, hint="restore that file, as ssh needs it too", retry=False
        ) from None
    if data.startswith(_BINARY_LIST):
        what = f"RevokedHostKeys {file} is a binary list, which cockpit cannot read"
        raise NoLogin(what, where=name, hint="use ssh itself: --transport openssh", refused=False)
    keys = []
    for line in data.decode(errors="replace").splitlines():
        try:
            keys.append(asyncssh.import_public_key(line))
        except asyncssh.KeyImportError:
            continue
    return keys
