"""The keys that a login offers: the user's, and for host-based login this machine's own.

As in ssh, a file that is missing, unreadable or no key is passed over. Sources: asyncssh 2.24
(``public_key.py``, ``keysign.py``); OpenSSH 9.2: ``ssh_config(5)``, ``ssh-keysign(8)``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import asyncssh

from cockpit.transport.sshconfig import HostConfig

KEYSIGN = tuple(
    f"{folder}/ssh-keysign" for folder in ("/usr/lib/openssh", "/usr/libexec/openssh", "/usr/lib/ssh")
)
"""Where Debian, Fedora and SUSE have it."""

_HOST_KEYS = tuple(f"/etc/ssh/ssh_host_{kind}_key" for kind in ("ed25519", "ecdsa", "rsa"))


def login_keys(config: HostConfig) -> tuple[dict[str, Any], list[str]]:
    """asyncssh's options for keys, and a sentence about each file without a usable key."""
    told: dict[str, Any] = {} if config.agent is None else {"agent_path": config.agent}
    if config.identity_files is None and not config.certificate_files:
        return told, []
    certificates = _each(asyncssh.read_certificate, config.certificate_files)
    if config.identity_files is None:
        return {**told, "client_certs": certificates}, []
    pairs: list[asyncssh.SSHKeyPair] = []
    missing = []
    for file in config.identity_files:
        try:
            found = asyncssh.load_keypairs([file], None, certificates, True, True)
            if not found:
                missing.append(f"{file} needs ssh-add")  # it has a passphrase, or is a public key
            pairs += found
        except OSError as error:
            missing.append(f"{file}: {error.strerror}")
        except asyncssh.KeyImportError as error:
            missing.append(f"{file}: {error}")
    # Of an empty list, asyncssh makes the default keys; of an iterator without any, no keys.
    told |= {"client_keys": pairs or iter(()), "ignore_encrypted": True}
    if config.identities_only:
        public = [f"{file}{end}" for file in config.identity_files for end in ("", ".pub")]
        held = [f"{file}{end}" for file in config.identity_files for end in ("", "-cert.pub")]
        known = [
            *(pair.public_data for pair in pairs),
            *(key.public_data for key in _each(asyncssh.read_public_key, public)),
            *(each.public_data for each in (*_each(asyncssh.read_certificate, held), *certificates)),
        ]
        told["agent_identities"] = known
        if not known:
            told["agent_path"] = ""  # to asyncssh, no identity means every one of the agent
    return told, missing


def host_keys(config: HostConfig) -> dict[str, Any]:
    """asyncssh's options for host-based login, in which this machine's sshd key signs for the user.

    Only ``ssh-keysign``, which is setuid root, can use that key. Empty: there is no such login.
    """
    keysign = next((program for program in KEYSIGN if os.access(program, os.X_OK)), "")
    if not config.host_based or not keysign:
        return {}
    wanted = config.host_based_algorithms
    keys = [
        key
        for key in _each(asyncssh.read_public_key, [f"{name}.pub" for name in _HOST_KEYS])
        if wanted is None or not {each.decode() for each in key.sig_algorithms}.isdisjoint(wanted)
    ]
    return {"client_host_keysign": keysign, "client_host_keys": keys} if keys else {}


def _each(read: Callable[[str], Any], files: Iterable[str]) -> list[Any]:
    """Those of these files that can be read."""
    found = []
    for file in files:
        try:
            found.append(read(file))
        except (OSError, ValueError):  # asyncssh.KeyImportError is one
            continue
    return found
