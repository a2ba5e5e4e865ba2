"""Bundles: a run's folder as one file, packed by somebody's cockpit, opened here as data alone.

A bundle is a gzipped tar archive of regular files. Whoever made it may be anybody: names, kinds, numbers and
sizes of what is in it are checked before anything is written, links and all else but files are refused, and
nodes that it names are never contacted.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from cockpit import config, paths
from cockpit.base import gate
from cockpit.base.gate import Definition, Malformed, bound, read
from cockpit.engine.files import create, read_small
from cockpit.engine.quotas import QuotaReached, Space
from cockpit.engine.records import ustar
from cockpit.errors import CockpitError, os_error
from cockpit.private import private_dir

HEAD = "bundle.json"
"""The first file of a bundle; a folder that has it was unpacked from one."""

FORMAT = 1
"""Version of it; a reader refuses a newer one."""

FILES, FILE_BYTES, ALL_BYTES = 1 << 16, 256 << 20, 4 << 30
"""Of one bundle at most: files, bytes of each, and of all together, unpacked."""
JSON_BYTES, HEAD_BYTES = 32 << 20, 1 << 16
"""Of a file that is read as a whole, and of the head."""

KEPT, KEPT_S = 8, 86400.0
"""Bundles that stay unpacked here, the newest; one that was opened within so many seconds stays too."""

CLOSED = "it was opened from a bundle"
"""Why the nodes of such a run are not contacted."""

_PART = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,254}"
_NAME = re.compile(
    rf"(?:bundle|manifest|code|environ)\.json|code\.diff|(?:journal|now|pace|measured)\.jsonl|(?:spool|stacks|profiles)/{_PART}/{_PART}"
)
_BROKEN = (EOFError, zlib.error, gzip.BadGzipFile)
"""What reading a damaged archive raises."""


class Head(Definition):
    """``bundle.json``.

    :param made: when it was packed, unix seconds
    :param log_bytes: bytes of each log's end that are in it at most
    :param taken: secrets that were taken out
    """

    format: int = bound(gate.COUNT)
    version: str = bound(gate.WORD)
    run: str = bound(gate.RUN_NAME)
    made: float = bound(gate.TIME)
    log_bytes: int = bound(gate.SIZE, 0)
    taken: int = bound(gate.COUNT, 0)


def is_bundle(word: str) -> bool:
    """Whether a word names a bundle: a gzipped archive that begins with its head."""
    try:
        if not os.path.isfile(word):  # a FIFO would block
            return False
        with _unzipped(word) as file:
            found = _sized(file)
            return found is not None and found[0] == HEAD
    except (OSError, Malformed, ValueError, *_BROKEN):
        return False


def _named(path: str | Path) -> BinaryIO:
    """A file that a person named: a link may be meant."""
    return open(path, "rb")


@contextmanager
def _unzipped(path: str | Path) -> Iterator[BinaryIO]:
    with _named(path) as packed, gzip.GzipFile(fileobj=packed) as file:
        yield cast(BinaryIO, file)


def is_meant(word: str) -> bool:
    """Whether a word names a bundle, or a file that is called as if it were one."""
    return is_bundle(word) or (word.endswith((".tar.gz", ".tgz")) and os.path.isfile(word))


def is_opened(folder: Path) -> bool:
    """Whether a run's folder was unpacked from a bundle."""
    return os.path.lexists(folder / HEAD)


def opened(path: Path) -> Path:
    """The run's folder of a bundle, unpacked here unless it is already.

    :raises CockpitError: it cannot be read, is damaged, made by a newer cockpit, or no bundle
    """
    try:
        with _named(path) as file:
            digest = hashlib.sha256()
            while data := file.read(1 << 20):
                digest.update(data)
        root = private_dir(paths.bundles())
        place = root / digest.hexdigest()[:32]
        if not place.is_dir():
            _tidy(root)
            _unpack(path, place)
        os.utime(place)
        return place / _head(place).run
    except OSError as error:
        raise os_error("cannot be opened", error.filename or path, error) from None


def _unpack(path: Path, place: Path) -> None:
    beside = Path(tempfile.mkdtemp(prefix=".new.", dir=place.parent))
    try:
        with _unzipped(path) as file:
            _take(file, beside / "run")
        head = _head(beside)
        os.rename(beside / "run", beside / head.run)
        os.rename(beside, place)
    except QuotaReached as error:
        raise CockpitError(error.what, where=error.where, hint="free some space, and open it again") from None
    except (Malformed, ValueError, *_BROKEN) as error:
        what = f"is damaged, or not a bundle: {error}"
        raise CockpitError(what, where=str(path), hint="have it made, or copied, again") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _head(place: Path) -> Head:
    """The head of the one run in a folder.

    :raises Malformed: it is none, or a newer cockpit made it
    """
    inner = next((each for each in place.iterdir() if each.is_dir()), place)
    try:
        head = read(Head, gate.parsed(read_small(inner / HEAD, HEAD_BYTES)))
    except (OSError, Malformed):
        raise Malformed(f"no {HEAD}") from None
    if head.format > FORMAT:
        raise Malformed(f"made by cockpit {head.version}, which is newer than this one")
    return head


def _take(file: BinaryIO, folder: Path) -> None:
    """Write all files of an archive.

    :raises Malformed: one of them may not be in a bundle
    """
    folder.mkdir(mode=0o700)
    space = Space(folder, config.load().quotas)
    seen: set[str] = set()
    left = ALL_BYTES
    while (found := _sized(file)) is not None:
        name, size = found
        left -= size
        most = JSON_BYTES if name.endswith(".json") else FILE_BYTES
        if name in seen or len(seen) >= FILES or size > most or left < 0:
            raise Malformed(f"{name}: duplicate entry, or bundle too large")
        seen.add(name)
        space.check(size)
        target = folder / name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with create(target) as into:
            _copy(file, into, size)
        _exactly(file, -size % ustar.BLOCK)
    if "manifest.json" not in seen:
        raise Malformed("no manifest.json")
    while file.read(1 << 20):  # up to its checksum
        pass


def _copy(file: BinaryIO, into: BinaryIO, size: int) -> None:
    while size:
        data = file.read(min(size, 1 << 20))
        if not data:
            raise EOFError("its end is missing")
        into.write(data)
        size -= len(data)


def _exactly(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise EOFError("its end is missing")
    return data


def _sized(file: BinaryIO) -> tuple[str, int] | None:
    """The next file of an archive; None: there is no other."""
    found = ustar.member(_exactly(file, ustar.BLOCK))
    if found is not None and not _NAME.fullmatch(found[0]):
        raise Malformed(f"may not be in a bundle: {found[0][:100]!a}")
    return found


def _tidy(root: Path) -> None:
    """Remove what was unpacked long ago."""
    with suppress(OSError):
        known = sorted(root.iterdir(), key=lambda each: each.stat().st_mtime, reverse=True)
        for old in known[KEPT - 1 :]:
            if time.time() - old.stat().st_mtime > KEPT_S:
                shutil.rmtree(old, ignore_errors=True)
