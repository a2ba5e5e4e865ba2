"""Store host keys that a person has accepted where ssh looks for them."""

from __future__ import annotations

import base64
import hmac
import os
from collections.abc import Iterable
from pathlib import Path

from cockpit.errors import CockpitError
from cockpit.transport.base import UnknownHostKey


def trust(keys: Iterable[UnknownHostKey]) -> None:
    """Append keys to their known_hosts files, as ssh does when you answer yes.

    :raises CockpitError: a file cannot be written
    """
    lines: dict[str, dict[str, None]] = {}
    for key in keys:
        lines.setdefault(key.file, {})[f"{_hash(key.entry) if key.hashed else key.entry} {key.key}\n"] = None
    for file, new in lines.items():
        try:
            Path(file).parent.mkdir(0o700, parents=True, exist_ok=True)
            number = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            with os.fdopen(number, "r+b", buffering=0) as known:
                size = os.fstat(number).st_size
                # A last line without a newline would swallow ours.
                start = "\n" if size and os.pread(number, 1, size - 1) != b"\n" else ""
                known.write((start + "".join(new)).encode())
        except OSError as error:
            raise CockpitError(f"cannot write it: {error.strerror}", where=file) from None


def _hash(entry: str) -> str:
    """A name as ``HashKnownHosts`` keeps it: ``|1|salt|HMAC-SHA1 of it``."""
    salt = os.urandom(20)
    digest = hmac.digest(salt, entry.encode(), "sha1")
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"
