"""Store host keys that a person has accepted where ssh looks for them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from cockpit import paths
from cockpit.errors import CockpitError
from cockpit.transport.base import UnknownHostKey


def trust(keys: Iterable[UnknownHostKey]) -> None:
    """Append keys to their known_hosts files, as ssh does when you answer yes.

    :raises CockpitError: a file cannot be written
    """
    lines: dict[str, dict[str, None]] = {}
    for key in keys:
        lines.setdefault(key.file, {})[f"{key.entry} {key.key}\n"] = None
    for file, new in lines.items():
        try:
            paths.private_dir(Path(file).parent)
            number = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            with os.fdopen(number, "r+b", buffering=0) as known:
                size = os.fstat(number).st_size
                # A last line without a newline would swallow ours.
                start = "\n" if size and os.pread(number, 1, size - 1) != b"\n" else ""
                known.write((start + "".join(new)).encode())
        except OSError as error:
            raise CockpitError(f"cannot write it: {error.strerror}", where=file) from None
