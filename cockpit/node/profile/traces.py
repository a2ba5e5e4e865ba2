"""Sum up the trace that torch's profiler wrote for a rank: ``sum FILE``.

On stdout comes JSON: the fields of :class:`cockpit.base.profile.summary.RankProfile` that the trace can
tell, and the file's checksum, which takes as long as its program made it large. Of each event a few integers
are kept, so a file of 150 MB takes some 60 MB; see :mod:`cockpit.node.profile.events` for what is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from typing import IO, Any, Dict, List, Optional

from cockpit.base.gate import RANK_LIMIT, SIZE
from cockpit.base.profile.summary import LENGTH, NS
from cockpit.node import safefiles
from cockpit.node.profile.events import MOST_BYTES, MOST_EVENTS, BadTrace, Trace
from cockpit.node.profile.rank_events import (
    ANNOTATION,
    COPYING,
    FUNCTION,
    KERNEL,
    OF_GPU,
    OPERATOR,
    PAIRWISE,
    RUNTIME,
    Call,
    RankEvents,
    Where,
    hashed,
)
from cockpit.node.profile.sums import About, Sum

_CATEGORIES = {
    "cpu_op": OPERATOR,
    "user_annotation": ANNOTATION,
    "python_function": FUNCTION,
    "cuda_runtime": RUNTIME,
    "cuda_driver": RUNTIME,
    "kernel": KERNEL,
    "gpu_memcpy": COPYING,
    "gpu_memset": COPYING,
    # Before torch 2.0.
    "Operator": OPERATOR,
    "Runtime": RUNTIME,
    "Kernel": KERNEL,
    "Memcpy": COPYING,
    "Memset": COPYING,
}
"""Of events with a length, as Kineto names them. Others are about the profiler, or repeat these."""

_STEP = re.compile(r"ProfilerStep#([0-9]{1,12})\Z")
NCCL_KERNEL = re.compile(r"nccl(?:Dev)?Kernel_([A-Za-z]+)")
"""The kernel of a collective, which NCCL names so."""
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_UNTITLED = "undefined"
"""How torch describes a group of which its program says nothing."""
_BYTES = {
    "double": 8, "long": 8, "float": 4, "int": 4, "half": 2, "bfloat16": 2, "short": 2, "byte": 1, "char": 1,
    "bool": 1, "complex<float>": 8, "complex<double>": 16, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
"""Of one element, by torch's names, without C++'s ``c10::``, ``int`` and ``unsigned``."""

_SHOWN = 100
"""Characters of the sizes of a collective."""
_NICE = 10
_CHUNK = 1 << 20
_BESIDE = frozenset(("baseTimeNanoseconds", "distributedInfo", "cockpit"))


def main(argv: List[str]) -> int:
    """Sum up the file, print JSON; a sentence on stderr and 1 if that cannot be done."""
    os.nice(_NICE)
    try:
        with os.fdopen(safefiles.opened(argv[0]), "rb") as file:
            found = summed(file)
            found["sha256"] = _sha256(file)
    except BadTrace as error:
        return _failed(str(error))
    except OSError as error:
        return _failed(error.strerror or str(error))
    except MemoryError:
        return _failed("there is not enough memory for it")
    sys.stdout.write(json.dumps(found, separators=(",", ":")))
    sys.stdout.flush()
    return 0


def _sha256(file: IO[bytes]) -> str:
    """Of all of it."""
    digest = hashlib.sha256()
    file.seek(0)
    for chunk in iter(lambda: file.read(_CHUNK), b""):
        digest.update(chunk)
    return digest.hexdigest()


def _failed(why: str) -> int:
    sys.stderr.write("cockpit: the trace cannot be read: %s\n" % why)
    return 1


def summed(
    file: IO[bytes], *, most_bytes: int = MOST_BYTES, most_events: int = MOST_EVENTS
) -> Dict[str, Any]:
    """What the trace tells, as JSON.

    :param file: open for reading, at its start; packed with gzip or not
    :raises BadTrace: it is none, or too large
    :raises OSError: it cannot be read
    """
    trace = Trace(file, _BESIDE, most_bytes=most_bytes, most_events=most_events)
    kept = RankEvents()
    for event in trace.events():
        if event.get("ph") == "X":
            _keep(kept, event)
    spread, ours = _object(trace.beside.get("distributedInfo")), _object(trace.beside.get("cockpit"))
    world = _whole(spread.get("world_size"))
    about = About(
        "trace",
        _whole(trace.beside.get("baseTimeNanoseconds")),
        trace.count,
        _text(spread.get("backend"))[:100],
        _text(ours.get("torch"))[:100],
        _whole(ours.get("first")),
        _whole(ours.get("steps")),
        world if _whole(spread.get("pg_count")) == 1 and world <= RANK_LIMIT else 0,
    )
    found = Sum(kept, about).told()
    theirs, own = spread.get("rank"), ours.get("rank")
    if isinstance(theirs, str) and isinstance(own, str) and theirs != own:
        found["notes"].append(
            "torch.distributed calls this rank %s, cockpit rank %s" % (theirs[:20], own[:20])
        )
    return found


def _keep(kept: RankEvents, event: Dict[str, Any]) -> None:
    """Keep one; it is unusable if its numbers are none."""
    category = event.get("cat")
    place = _CATEGORIES.get(category) if isinstance(category, str) else None
    if place is None:
        return
    start, length = nanoseconds(event.get("ts")), nanoseconds(event.get("dur"))
    text, pid, tid = event.get("name"), event.get("pid"), event.get("tid")
    if start is None or length is None or length > LENGTH.most:
        kept.unusable += 1
        return
    if not (isinstance(text, str) and isinstance(pid, str) and isinstance(tid, str)):
        kept.unusable += 1
        return
    where = (place in OF_GPU, pid[:40], tid[:40])
    if place == ANNOTATION and text.startswith("ProfilerStep#"):
        found = _STEP.match(text)
        if found and kept.mark(start, length, int(found.group(1)), where):
            return
    if place == FUNCTION and " at 0x" in text:
        text = _ADDRESS.sub("", text)
    collective = kept.add(place, start, length, where, text)
    if place in (KERNEL, ANNOTATION):
        args = _object(event.get("args"))
        if place == KERNEL and (_whole(args.get("graph node id")) or _whole(args.get("graph id"))):
            kept.graphs += 1
        if collective:
            kept.call(_call(kept, start, length, where, text, args))


def _call(kept: RankEvents, start: int, length: int, lane: Where, text: str, args: Dict[str, Any]) -> Call:
    """A collective."""
    if lane[0]:
        symbol = NCCL_KERNEL.match(text)
        name = _text(args.get("Collective name")) or (symbol.group(1) if symbol else text)
        elements = _whole(args.get("In msg nelems"))
        size = elements * _bytes(_text(args.get("dtype")))
        shapes = str(elements) if elements else ""
    else:
        name = text.partition(":")[2]
        dims, types = args.get("Input Dims"), args.get("Input type")
        shapes = _shapes(dims)
        size = _size(dims, types)
    op = kept.op(name)
    group = _text(args.get("Process Group Name"))[:60]
    title = _text(args.get("Process Group Description"))[:60]
    number = _text(args.get("Seq"))[:20] if group else ""
    ends = [_text(args.get(name))[:20] for name in ("Src Rank", "Dst Rank")]
    if op in PAIRWISE:
        # Each rank counts these by itself.
        number = ""
    same = " ".join((group, number)) if number else " ".join(one for one in (group, op, shapes) if one)
    if op in PAIRWISE and all(ends):
        same = " ".join((group, ">".join(ends), shapes))
    ranks = _whole(args.get("Group size"))
    return Call(
        start, length, lane, op, group if title in ("", _UNTITLED) else title + " " + group,
        same, bool(number), bool(shapes), SIZE.nearest(size), ranks if ranks <= RANK_LIMIT else 0,
    )  # fmt: skip


def nanoseconds(text: Any) -> Optional[int]:
    """Of microseconds as a trace writes them, exactly; None: not a length, or of more than a century."""
    if not isinstance(text, str) or len(text) > 40:
        return None
    try:
        if text[-4:-3] == "." and text[-3:].isdigit():
            found = int(text[:-4] + text[-3:])
        elif text.isdigit():
            found = 1000 * int(text)
        else:
            # What is not finite is no integer.
            found = round(1000 * float(text))
    except (ValueError, OverflowError):
        return None
    return found if 0 <= found <= NS.most else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _object(value: Any) -> Dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _whole(value: Any) -> int:
    """A number that counts something; 0 if it is none."""
    return int(value) if isinstance(value, str) and len(value) < 20 and value.isdecimal() else 0


def _bytes(dtype: str) -> int:
    """Of one element; 0: not known."""
    plain = dtype.lower().replace("c10::", "").replace("unsigned ", "").replace("signed ", "")
    return _BYTES.get(plain[:-4] if plain.endswith(" int") else plain, 0)


def _shapes(dims: Any, depth: int = 0) -> str:
    """``128x64,10``; empty: the trace has none."""
    if not isinstance(dims, list) or not dims or depth > 3:
        return ""
    if all(isinstance(one, str) for one in dims):
        found = "x".join(dims)
    else:
        found = ",".join(_shapes(one, depth + 1) for one in dims[:_SHOWN])
    return found if len(found) <= _SHOWN else "%s… %s" % (found[: _SHOWN - 10], hashed([found])[:8])


def _size(dims: Any, types: Any) -> int:
    """Bytes of tensors; 0: not known."""
    if not isinstance(dims, list) or not isinstance(types, list):
        return 0
    found = 0
    for one, dtype in zip(dims, types):
        elements = 1
        for length in one if isinstance(one, list) else ():
            elements = SIZE.nearest(elements * _whole(length))
        found += elements * _bytes(_text(dtype))
    return found
