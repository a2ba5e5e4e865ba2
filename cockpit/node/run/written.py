"""What a wrapper writes into the run folder, or tells the supervisor where it cannot.

Without json and socket, which cost memory: there is one wrapper per rank.
"""

from __future__ import annotations

import errno
import os

from cockpit.base import record

RECORD_SIZE = 1024
"""More bytes than a record has."""
NEW = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
"""Of a file: a FIFO of its name, which nobody reads, is an error."""

_TOLD_S = 10.0
"""Seconds for the supervisor to take what there is no room for."""


def complain(text: str) -> None:
    """Say something in the launcher's log."""
    try:  # noqa: SIM105 (contextlib costs memory)
        os.write(2, os.fsencode("cockpit: rankwrap: %s\n" % text))
    except OSError:
        pass  # the launcher's log may be on a full disk: no rank may end because of that


def _json(facts: dict[str, int | float | str | None]) -> bytes:
    pairs = ['"%s": %s' % (key, "null" if value is None else value) for key, value in facts.items()]
    return ("{%s}\n" % ", ".join(pairs)).encode("ascii")


def write_record(folder: str, name: str, facts: dict[str, int | float | str | None]) -> None:
    """Write a record, or tell it where there is no room; the training process does not depend on it.

    :param facts: a text is JSON already
    """
    text = _json(facts)
    try:
        write(folder, name, text)
    except OSError as error:
        if not tell(folder, record.TELL_RECORD, name, text.decode("ascii")):
            complain("cannot write %s: %s" % (name, error))


def write(folder: str, name: str, text: bytes) -> None:
    """Write a file whole or not at all.

    :raises OSError: not at all
    """
    path = os.path.join(folder, name)
    number = os.open(path + ".tmp", NEW, 0o600)
    try:
        # Overwrite, then truncate: reserved space is released last.
        if os.write(number, text) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.ftruncate(number, len(text))
    finally:
        os.close(number)
    os.rename(path + ".tmp", path)


def tell(folder: str, kind: str, *words: str) -> bool:
    """Tell the supervisor what there is no room for; return whether it has taken it."""
    # Without json and socket, which cost memory.
    escaped = [word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for word in (kind, *words)]
    try:
        import _socket

        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        peer = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        try:
            peer.settimeout(_TOLD_S)
            # The plain path may exceed the limit of 107 bytes.
            peer.connect("/proc/self/fd/%d/%s" % (place, record.SOCKET))
            peer.send(('["%s"]' % '", "'.join(escaped)).encode("ascii", "replace"))
            return bool(peer.recv(64))
        finally:
            peer.close()
            os.close(place)
    except (ImportError, OSError):
        return False
