"""One file that Perfetto opens: traces of several ranks on one timeline, as a .tar with a manifest.

Perfetto's page and its trace_processor read such an archive of traces as they are, and take from its manifest
which machine each is of and how far it is to be moved: https://perfetto.dev/docs/reference/perfetto-manifest.
So nothing in a trace is changed. It goes in unpacked, as a manifest cannot move a packed one, and in pieces.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

LARGE = 300 << 20
"""Bytes of traces, unpacked, from which on a browser may have too little memory for them."""
MOST = 4 << 30
"""Bytes of one trace, unpacked."""

_PIECE = 1 << 20
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*([0-9]{1,18}|[1-3][0-9]{18})\b')
_BLOCK = 512
_GZIP = b"\x1f\x8b"
_MANIFEST = "perfetto_manifest.json"


class TraceError(Exception):
    """A trace cannot be put into the archive; the text says which, and why."""


@dataclass(frozen=True)
class RankTrace:
    """The trace of a rank.

    :param file: open for reading, at its start; packed with gzip or not
    :param ahead: how far its node's clock is ahead of ours, seconds
    """

    rank: int
    node: str
    file: BinaryIO
    ahead: float = 0.0

    @property
    def member(self) -> str:
        """Its name in the archive: Perfetto reads files by name, and the first one's time is everybody's."""
        return f"rank-{self.rank:06}.json"


def write(traces: Sequence[RankTrace], archive: BinaryIO) -> int:
    """Write the archive; return how many bytes the traces are, unpacked.

    :param traces: of different ranks
    :param archive: open for writing, at its start; what is in it if this fails is of no use
    :raises TraceError: a trace is not whole, or too large
    :raises OSError: one cannot be read, or the archive not be written
    """
    traces = sorted(traces, key=lambda trace: trace.rank)
    manifest = json.dumps(_manifest(traces), indent=1).encode()
    archive.write(_header(_MANIFEST, len(manifest)) + manifest + bytes(-len(manifest) % _BLOCK))
    total = 0
    for trace in traces:
        # How long it is shows once it is unpacked.
        place = archive.tell()
        archive.write(bytes(_BLOCK))
        size = 0
        for piece in _unpacked(trace):
            size += len(piece)
            if size > MOST:
                raise TraceError(f"the trace of rank {trace.rank} is larger than {MOST >> 30} GB")
            archive.write(piece)
        archive.write(bytes(-size % _BLOCK))
        end = archive.tell()
        archive.seek(place)
        archive.write(_header(trace.member, size))
        archive.seek(end)
        total += size
    archive.write(bytes(2 * _BLOCK))
    return total


def warning(total: int) -> str:
    """A sentence where an archive of so many bytes is large; else empty."""
    if total <= LARGE:
        return ""
    return (
        f"The traces are {total / 1e6:,.0f} MB unpacked: a browser may run out of memory. "
        "Choose fewer ranks, or open the archive with Perfetto's trace_processor."
    )


def _manifest(traces: Sequence[RankTrace]) -> dict[str, object]:
    """Whose each trace is, and how much later its times are on the clock of the first one.

    Times in a trace count from its base, and say what the clock of its node showed.
    """
    bases = [_base(trace) for trace in traces]
    files = []
    for trace, base in zip(traces, bases, strict=True):
        entry: dict[str, object] = {
            "path": trace.member,
            "machine": {"name": f"rank {trace.rank} ({trace.node})" if trace.node else f"rank {trace.rank}"},
        }
        if trace is not traces[0]:
            later = base - bases[0] - round(1e9 * (trace.ahead - traces[0].ahead))
            entry["clocks"] = {"sync_to": {"file": traces[0].member}, "offset_ns": later}
        files.append(entry)
    return {"perfetto_manifest": {"version": 1, "files": files}}


def _base(trace: RankTrace) -> int:
    """Unix nanoseconds at which its times begin, which come before its events; 0: it does not say."""
    head = next(_unpacked(trace), b"").partition(b'"traceEvents"')[0]
    trace.file.seek(0)
    found = _BASE.search(head)
    return int(found.group(1)) if found else 0


def _unpacked(trace: RankTrace) -> Iterator[bytes]:
    """Its bytes in pieces."""
    packed = trace.file.read(2) == _GZIP
    trace.file.seek(0)
    file = gzip.GzipFile(fileobj=trace.file) if packed else trace.file
    try:
        while piece := file.read(_PIECE):
            yield piece
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"the trace of rank {trace.rank} is incomplete: {error}") from None


def _header(name: str, length: int) -> bytes:
    """The block in front of a file in a tar archive: names and octal numbers in fields of fixed width."""
    fields = (
        (name, 100), ("0000600", 8), ("0000000", 8), ("0000000", 8), (f"{length:011o}", 12), (11 * "0", 12),
        (8 * " ", 8), ("0", 1), ("", 100), ("ustar\x0000", 8), ("", 247),
    )  # fmt: skip
    block = b"".join(text.encode().ljust(width, b"\0") for text, width in fields)
    # The sum of all bytes, its own field taken as spaces.
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]
