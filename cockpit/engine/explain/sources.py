"""What is to be read: files, plain or compressed, the logs in folders, a pipe; as blocks of bytes."""

from __future__ import annotations

import bz2
import errno
import importlib
import lzma
import os
import re
import stat
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cockpit.engine.files import open_regular
from cockpit.errors import CockpitError, os_error
from cockpit.lang import Phrase

BLOCK = 1 << 20
"""Bytes that are read at once."""
FILES_MOST = 1 << 14
"""Files of a folder that are looked at."""
DEEP = 8
BOMB_BYTES, BOMB_RATIO = 256 << 20, 500
"""So much out of so little is no log."""

_LOG = re.compile(
    r"(?:\.(?:log|txt|out|err|console)|(?:^|/)(?:stdout|stderr|console|output|slurm-[^/]*|rank[^/]*))(?:\.\d{1,3})?"
    r"(?:\.(?:gz|bz2|xz|zst))?$"
)
_PACKED = re.compile(r"\.(?:gz|bz2|xz|zst)$")
_RANK = re.compile(
    r"(?:^|[/._-])rank[._-]?(\d{1,6})(?=[._-]|$)|(?:^|/)(\d{1,6})\.(?:log|txt|out|err)$|(?:^|/)(\d{1,6})/std(?:out|err)"
)
_TEXT = bytes({7, 8, 9, 10, 12, 13, 27, *range(0x20, 0x100)} - {0x7F})
_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


@dataclass(frozen=True)
class Item:
    """One file.

    :param name: as it is shown
    :param rank: whose log it is, by its name; None: that of several, or of nobody
    :param given: whether it was named; else it was found in a folder, and is left out if it is no log
    :param size: bytes on the disk; 0: not known
    """

    path: str
    name: str
    rank: int | None = None
    given: bool = True
    size: int = 0
    plain: bool = False


class NotALog(CockpitError):
    """It holds something else."""


def items(words: list[str]) -> list[Item]:
    """The files that are meant.

    :raises CockpitError: there is no such file, or a folder has no logs
    """
    found: list[Item] = []
    for word in words:
        if word == "-":
            found.append(Item("-", "stdin"))
            continue
        try:
            mode = os.stat(word)
        except OSError as error:
            raise os_error("cannot read", word, error) from None
        if stat.S_ISDIR(mode.st_mode):
            found += _in_folder(word)
        else:
            found.append(_item(word, word, mode, given=True))
    return found


def _item(path: str, name: str, about: os.stat_result, *, given: bool) -> Item:
    regular = stat.S_ISREG(about.st_mode)
    rank = _RANK.search(_PACKED.sub("", path))
    number = next((int(group) for group in rank.groups() if group), None) if rank else None
    return Item(
        path, name, number, given, about.st_size if regular else 0, regular and not _magic(path, given)
    )


def _magic(path: str, given: bool) -> str:
    try:
        with opened(path, given=given) as file:
            return _kind(file.read(8))
    except OSError:
        return ""


def _kind(start: bytes) -> str:
    return next((name for magic, name in _MAGIC.items() if start.startswith(magic)), "")


def _in_folder(folder: str) -> list[Item]:
    found: list[Item] = []
    seen = 0
    for path, folders, files in os.walk(folder, onerror=None):
        if path[len(folder) :].count(os.sep) >= DEEP:
            folders.clear()
        folders.sort()
        for name in sorted(files, key=_natural):
            seen += 1
            whole = os.path.join(path, name)
            if not _LOG.search(whole) or seen > FILES_MOST:
                continue
            try:
                about = os.stat(whole)
            except OSError:
                continue
            if stat.S_ISREG(about.st_mode) and about.st_size:
                found.append(_item(whole, whole, about, given=False))
    if not found:
        raise CockpitError(
            "no logs in this folder",
            where=folder,
            hint="logs end in .log, .txt, .out or .err, or begin with rank or slurm-; name the files",
        )
    return found


def _natural(name: str) -> list[Any]:
    return [
        (0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part
    ]


def blocks(
    item: Item, start: int = 0, end: int | None = None, notes: list[Phrase] | None = None
) -> Iterator[bytes]:
    """The bytes of a file, as they are once unpacked.

    :param start: of a plain file alone, as ``end``
    :param notes: gets what was wrong with it, in sentences
    :raises CockpitError: it cannot be read, or is not a log
    """
    notes = [] if notes is None else notes
    try:
        with _open(item) as file:
            if start:
                file.seek(start)
            first = file.read(BLOCK if end is None else min(BLOCK, end - start))
            kind = _kind(first) if not start else ""
            if kind:
                yield from _checked(_unpacked(item, file, first, kind, notes), item)
            else:
                yield from _checked(
                    _plain(file, first, None if end is None else end - start), item, start=start
                )
    except BrokenPipeError:
        raise
    except OSError as error:
        raise os_error("cannot read", item.name, error) from None


def _open(item: Item) -> Any:
    if item.path == "-":
        if sys.stdin is None:
            raise CockpitError("nothing to read: stdin is closed", where="stdin")
        return open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)
    return opened(item.path, given=item.given)


def opened(path: str, *, given: bool) -> Any:
    """A file, open.

    :param given: a person named it: a FIFO, or a link, may be meant
    :raises OSError: it cannot be opened
    """
    return open(path, "rb", buffering=0) if given else os.fdopen(open_regular(path), "rb", buffering=0)


def _plain(file: Any, data: bytes, left: int | None) -> Iterator[bytes]:
    while data:
        yield data
        if left is not None:
            left -= len(data)
        data = file.read(BLOCK if left is None else min(BLOCK, left))


def _unpacker(kind: str, item: Item) -> Any:
    if kind == "gzip":
        return zlib.decompressobj(31)
    if kind == "bzip2":
        return bz2.BZ2Decompressor()
    if kind == "xz":
        return lzma.LZMADecompressor(memlimit=128 << 20)
    try:
        return importlib.import_module("compression.zstd").ZstdDecompressor()
    except ImportError:
        hint = f"type: zstd -dc {item.name} | cockpit explain -"
        raise CockpitError("this Python cannot unpack zstd", where=item.name, hint=hint) from None


def _unpacked(item: Item, file: Any, data: bytes, kind: str, notes: list[Phrase]) -> Iterator[bytes]:
    """Unpack, one block at a time; what is broken ends it."""
    unpacker = _unpacker(kind, item)
    taken = given = 0
    errors = (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError)
    while data:
        taken += len(data)
        while data or not getattr(unpacker, "needs_input", True):
            try:
                if kind == "gzip":
                    out = unpacker.decompress(data, BLOCK)
                    data = unpacker.unconsumed_tail
                else:
                    out = unpacker.decompress(data, BLOCK)
                    data = b""
            except errors as error:
                if not given:
                    raise NotALog(f"damaged {kind} file: {error}", where=item.name) from None
                notes.append(Phrase("damaged: only the beginning could be unpacked ({})", (str(error),)))
                return
            if out:
                given += len(out)
                yield out
            if given > BOMB_BYTES and given > BOMB_RATIO * max(taken, 1):
                words = "stopped at {} bytes: {} compressed bytes expand too far for a log"
                notes.append(Phrase(words, (f"{given:,}", f"{taken:,}")))
                return
            if unpacker.eof:
                data = unpacker.unused_data
                if _kind(data[:8]) != kind:
                    data = b""
                    break
                unpacker = _unpacker(kind, item)
            elif not out and not data:
                break
        data = file.read(BLOCK // 4)
        if data and unpacker.eof:
            if _kind(data) != kind:
                return
            unpacker = _unpacker(kind, item)
    if not unpacker.eof:
        notes.append(Phrase("cut off: its end is missing, and only the rest could be unpacked"))


def _checked(data: Iterator[bytes], item: Item, *, start: int = 0) -> Iterator[bytes]:
    """Blocks, if the first is text."""
    first = not start
    for block in data:
        if first:
            sample = block[: 64 << 10]
            odd = len(sample.translate(None, _TEXT))
            if odd > len(sample) // 20:
                raise NotALog("not a log: it holds binary data", where=item.name)
            first = False
        yield block


def is_path(word: str) -> bool:
    """Whether a word names something that exists."""
    try:
        return word == "-" or Path(word).exists()
    except OSError as error:
        return error.errno == errno.EACCES
