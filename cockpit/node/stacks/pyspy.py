"""py-spy on a node: its own, or the one that a cockpit sends; and running it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import zlib
from typing import Any, Dict, List, Optional, Tuple

from cockpit.base import owners, verbs
from cockpit.node import private_folder
from cockpit.node.calls import Call, NodeError

OLDEST = (0, 4, 0)
"""An older py-spy on the node is not used: it does not know current Python versions."""

BINARY_LIMIT = 256 << 20
"""Bytes of a binary that are taken in, unpacked."""

SEARCH_S = 3.0
"""How long the look for the node's own py-spy is waited for, before another one is used: PATH may have
folders on a silent server."""

SEARCH_LAST_S = 20.0
"""The same where there is no other one; also the time limit of ``py-spy --version`` on a busy node."""


class _Known:
    """What this agent has found so far; ``spy`` is the path of one that can be run."""

    lock = threading.Lock()
    spy: Optional[str] = None
    search: Optional[_Search] = None


class _Search:
    """The look for the node's own py-spy, in its own thread: a call on a silent file server never returns."""

    def __init__(self) -> None:
        self.found: Optional[str] = None
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        self.found = _own()

    @property
    def in_vain(self) -> bool:
        """Whether it is over and has found none: one may have been too busy to answer, or is new."""
        return not self._thread.is_alive() and self.found is None

    def wait(self, within_s: float) -> Optional[str]:
        """What it has found by then."""
        self._thread.join(within_s)
        return self.found


def spy(call: Call) -> Dict[str, Any]:
    """Whether there is a py-spy here: ``ready``.

    Request: ``sha256`` of the binary that the cockpit has (empty for none), and as payload that binary,
    compressed with zlib, if it was found missing before.

    :raises NodeError: what was sent is not that binary, or it cannot be kept here
    """
    wanted = call.asked(verbs.Spy).sha256.lower()
    if wanted and not re.match(r"[0-9a-f]{64}\Z", wanted):
        raise NodeError("protocol", "field sha256 is no SHA-256")
    with _Known.lock:
        if call.payload:
            _Known.spy = _take_in(call.payload, wanted)
        elif _Known.spy is None:
            _Known.spy = _searched() or (_cached(wanted) if wanted else None)
        return {"ready": _Known.spy is not None}


def ready() -> str:
    """The path of the py-spy of this agent.

    :raises NodeError: there is none
    """
    with _Known.lock:
        if _Known.spy is None:
            _Known.spy = _searched(SEARCH_LAST_S)
        if _Known.spy is None:
            raise NodeError("py-spy", "py-spy is not installed on this node", "python3 -m pip install py-spy")
        return _Known.spy


def kept() -> str:
    """The path of a py-spy for somebody without a cockpit: the node's own, or the newest that one has sent.

    :raises NodeError: there is none
    """
    found = _searched()
    for digest in () if found else _digests():
        found = found or _cached(digest)
    if found is None:
        raise NodeError("py-spy", "there is no py-spy on this node, and none has been sent yet")
    return found


def _digests() -> List[str]:
    """The beginnings of the checksums of those that were sent, the newest first."""
    folder = os.path.dirname(_place(""))
    times: Dict[str, float] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            fits = re.match(r"py-spy-([0-9a-f]{16})\Z", name)
            if fits:
                times[fits.group(1)] = os.lstat(os.path.join(folder, name)).st_mtime
    return sorted(times, key=lambda digest: -times[digest])


def _searched(within_s: float = 0.0) -> Optional[str]:
    """The node's own py-spy, if it is known by now; who begins a look waits for ``SEARCH_S``."""
    if _Known.search is None or _Known.search.in_vain:
        _Known.search = _Search()
        within_s = max(within_s, SEARCH_S)
    return _Known.search.wait(within_s)


def _own() -> Optional[str]:
    """The py-spy that is installed here, if it is new enough and nobody else could have put it there."""
    places = [
        shutil.which("py-spy"),
        os.path.join(os.path.dirname(sys.executable), "py-spy"),
        os.path.expanduser("~/.local/bin/py-spy"),
    ]
    for path in filter(None, places):
        try:
            status = os.stat(path)
            if status.st_uid not in (0, os.geteuid()) or not os.access(path, os.X_OK):
                continue
            version = _version(path)
        except OSError:
            continue
        if version is not None and version >= OLDEST:
            return path
    return None


def _version(path: str) -> Optional[Tuple[int, ...]]:
    try:
        told = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=SEARCH_LAST_S,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.match(rb"py-spy (\d+)\.(\d+)\.(\d+)", told)
    return tuple(map(int, found.groups())) if found else None


def _place(digest: str) -> str:
    return os.path.join(private_folder.base(), "bin", "py-spy-" + digest[:16])


def _sha256(data: bytes) -> str:
    import hashlib  # it brings OpenSSL: a sixth of an agent's memory, for nothing where the node has a py-spy

    return hashlib.sha256(data).hexdigest()


def _cached(digest: str) -> Optional[str]:
    """The binary that an earlier cockpit sent, if it is still that one.

    :param digest: its SHA-256, or the beginning of it that is in its name: the folder is ours alone
    """
    path = _place(digest)
    try:
        _private(path)
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    with os.fdopen(os.dup(number), "rb") as file:
        if _sha256(file.read()).startswith(digest):
            found = _tried(_held(number))
            if found is not None:
                return found
    os.close(number)
    return None


def _held(number: int) -> str:
    """The path of a file that we have open: that very file, even if its name is removed or used again."""
    return "/proc/%d/fd/%d" % (os.getpid(), number)


def _take_in(payload: bytes, digest: str) -> str:
    try:
        inflater = zlib.decompressobj()
        data = inflater.decompress(payload, BINARY_LIMIT)
        whole = inflater.eof
    except zlib.error:
        data, whole = b"", False
    if not whole or _sha256(data) != digest:
        raise NodeError("protocol", "the py-spy that arrived is not the one that was announced")
    with contextlib.suppress(OSError):
        _store(data, digest)
    # A folder that is not ours, that is full, or from which nothing may be run: then from memory.
    found = _cached(digest) or _tried(_in_memory(data))
    if found is None:
        raise NodeError(
            "py-spy", "the py-spy that was sent does not run on this node (%s)" % os.uname().machine
        )
    return found


def _tried(path: str) -> Optional[str]:
    return path if _version(path) else None


def _private(path: str) -> None:
    """Check that nobody else can replace the binary.

    :raises OSError: somebody can, or the folder cannot be made
    """
    base = os.path.dirname(os.path.dirname(path))
    owners.check(os.path.dirname(base))
    for folder in (base, os.path.dirname(path)):
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise PermissionError("others may write to %s" % folder)


def _store(data: bytes, digest: str) -> None:
    path = _place(digest)
    _private(path)
    number, temporary = tempfile.mkstemp(dir=os.path.dirname(path))
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            os.fchmod(number, 0o700)
        os.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _in_memory(data: bytes) -> str:
    try:
        number = os.memfd_create("py-spy")
    except (OSError, AttributeError) as error:
        raise NodeError("py-spy", "no place on this node for py-spy: %s" % error) from None
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(number, rest) :]
    return _held(number)
