"""Archives of regular files in the ustar format of POSIX.1-1988: one header of 512 bytes before each file.

The extended headers of later versions, of any size, and links are not part of it: such an archive is refused.
"""

from __future__ import annotations

from cockpit.base.gate import Malformed

BLOCK = 512
"""Bytes of a header; a file is padded to a multiple."""

END = bytes(2 * BLOCK)
"""The end of an archive."""

_NAME, _PREFIX = 100, 155
"""Bytes of a name after its last folders, and of these."""


def header(name: str, size: int) -> bytes:
    """What is before a file.

    :raises Malformed: the name is too long
    """
    at = max(0, len(name) - _NAME - 1)
    cut = name.find("/", at) if len(name) > _NAME else -1
    prefix, rest = ("", name) if len(name) <= _NAME else (name[: max(cut, 0)], name[cut + 1 :])
    if not name.isascii() or len(prefix) > _PREFIX or len(rest) > _NAME:
        raise Malformed(f"no room for the name {name[:300]!a}")
    numbers = b"0000600\0" + b"0000000\0" * 2 + b"%011o\0" % size + b"00000000000\0"
    block = rest.encode().ljust(_NAME, b"\0") + numbers + b" " * 8 + b"0" + bytes(100) + b"ustar\00000"
    block = (block + bytes(80) + prefix.encode().ljust(_PREFIX, b"\0")).ljust(BLOCK, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def member(block: bytes) -> tuple[str, int] | None:
    """Name and size of the file that follows a header; None: it is the end of the archive.

    :raises Malformed: it is no header, or of something else than a regular file
    """
    if not block.strip(b"\0"):
        return None
    try:
        told = int(block[148:156].strip(b" \0"), 8)
        size = int(block[124:136].strip(b" \0"), 8)
        name, prefix = (part.partition(b"\0")[0].decode("ascii") for part in (block[:100], block[345:500]))
    except ValueError:
        raise Malformed("no archive, or a damaged one") from None
    whole = f"{prefix}/{name}" if prefix else name
    if told != sum(block[:148]) + 8 * 32 + sum(block[156:]):
        raise Malformed("a header of it is damaged")
    if block[156:157] not in (b"0", b"\0") or size < 0:
        raise Malformed(f"may not be in a bundle: {whole[:100]!a}, which is no regular file")
    return whole, size
