"""Dumps of torch's flight recorder: the JSON of its handlers, and the pickles that NCCL's watchdog writes."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, Tuple

from cockpit.base.gate import RANK_LIMIT, Malformed, shown
from cockpit.base.recorder import pickles
from cockpit.base.recorder.batches import Batches, passed
from cockpit.base.recorder.sources import with_sources
from cockpit.base.recorder.trace import (
    DONE,
    GOING,
    GROUPS,
    MEMBERS,
    PAIRWISE,
    TENSORS,
    Call,
    Entry,
    Group,
    Trace,
    integer,
    lows,
    text,
)

DUMP = 24 << 20
"""Bytes of a dump: a full ring of torch's default size (2,000 entries) has 0.9 MB."""

ENTRIES = 50_000
"""Entries of a dump."""

CONTAINERS, VALUES = 400_000, 1_500_000
"""Lists and objects, and what is in them, of a JSON dump: 20,000 entries have 160,000 and 400,000."""

KNOWN = "2."
"""Versions of dumps begin with this: within them only fields are added (``FlightRecorder.hpp``)."""

_DIMENSIONS = 32
_NUMBERS = 4_000_000
"""Sizes of tensors in one dump: a pickle may hold one list many times."""

_PAIR = re.compile(r"(send|recv) (\d{1,9})(->|<-)(\d{1,9})")
_RANKS = re.compile(r"\[(\d{1,6}(?:, ?\d{1,6})*)\]")


def read_json(data: bytes, source: str) -> Trace:
    """The trace in the answer of ``fr_trace_json`` or ``dump_nccl_trace_json``.

    :raises Malformed: it is something else, of a version that is not known, or too large
    """
    # Empty lists would take thirty times their size in memory. In texts these characters are counted too.
    if data.count(b"[") + data.count(b"{") > CONTAINERS or data.count(b",") > VALUES:
        raise Malformed("more than %d lists and objects, or %d values" % (CONTAINERS, VALUES))
    return _Reading(source).trace(parsed(data, DUMP))


def read_pickle(data: bytes, source: str = "file") -> Trace:
    """The trace in a file that NCCL's watchdog wrote.

    :raises Malformed: as :func:`read_json`
    """
    if len(data) > DUMP:
        raise Malformed("more than %d bytes" % DUMP)
    return _Reading(source).trace(pickles.load(data))


def parsed(data: bytes, most: int) -> Any:
    """JSON whose size, depth and numbers are bounded.

    :raises Malformed: it is not
    """
    if len(data) > most:
        raise Malformed("more than %d bytes" % most)
    try:
        return json.loads(data.decode(), parse_int=_integer, parse_constant=_constant)
    except RecursionError:
        raise Malformed("nested too deeply") from None
    except ValueError as error:
        raise Malformed("not JSON: %s" % str(error)[:200]) from None


def _integer(digits: str) -> int:
    # Python 3.8 needs minutes for a million digits.
    if len(digits) > 20:
        raise ValueError("an integer of %d digits" % len(digits))
    return int(digits)


def _constant(name: str) -> float:
    raise ValueError(name)


class _Reading:
    """One dump."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._calls: Dict[Any, Call] = {}
        self._numbers = _NUMBERS

    def trace(self, told: Any) -> Trace:
        if not isinstance(told, dict):
            raise Malformed("expected an object, got %s" % shown(told))
        version = text(told.get("version"))
        if not version.startswith(KNOWN):
            raise Malformed("a dump of version %s: only %s* is known" % (shown(version), KNOWN))
        # A rank that has done nothing has no entries at all.
        found = told.get("entries", [])
        if not isinstance(found, list) or len(found) > ENTRIES:
            raise Malformed(".entries: expected a list of at most %d" % ENTRIES)
        entries, batches, origins = [], Batches(), []
        for place, one in enumerate(found):
            try:
                entry = self._entry(one)
            except (Malformed, KeyError) as error:
                what = "%s is missing" % error if isinstance(error, KeyError) else str(error)
                raise Malformed(".entries[%d]: %s" % (place, what)) from None
            entries.append(entry)
            if batches.add(entry):
                origins.append(one)
        groups = lows(entries)
        # After a reset by the program its entries are counted from 0 again, those of a group are not.
        whole = not found or (found[0].get("record_id") == 0 and max(groups.values()) <= 1)
        from_us = 0 if whole else min(entry.at_us for entry in entries)
        rows = tuple(with_sources(passed(batches.entries), origins))
        return Trace(self._source, version, rows, from_us, whole, groups, _members(told.get("pg_config")))

    def _entry(self, told: Any) -> Entry:
        if not isinstance(told, dict):
            raise Malformed("expected an object, got %s" % shown(told))
        call = self._call(told)
        number = told["p2p_seq_id" if call.pairwise else "collective_seq_id"]
        done = told.get("retired") is True or told.get("state") == "completed"
        return Entry(call, integer(number), integer(told["time_created_ns"]) // 1000, DONE if done else GOING)

    def _call(self, told: Dict[str, Any]) -> Call:
        named = told["process_group"]
        if not isinstance(named, (list, tuple)) or len(named) != 2:
            raise Malformed(".process_group: expected a name and a description")
        name, desc, title = text(named[0]), text(named[1]), text(told["profiling_name"])
        inputs, in_shapes = self._sizes(told["input_sizes"])
        outputs, out_shapes = self._sizes(told["output_sizes"])
        dtype = _dtypes(told.get("input_dtypes")) or _dtypes(told.get("output_dtypes"))
        pairwise = told.get("is_p2p")
        if pairwise not in (True, False, None):
            raise Malformed(".is_p2p: expected true or false")
        key = (name, desc, title, in_shapes or out_shapes, inputs, outputs, dtype, pairwise)
        call = self._calls.get(key)
        if call is None:
            backend, _, op = title.rpartition(":")
            group = Group(backend, name, desc)
            op, peer = _pair(op)
            between = op in PAIRWISE if pairwise is None else pairwise is True
            call = self._calls[key] = Call(group, op, text(key[3]), inputs, outputs, dtype, peer, between)
        return call

    def _sizes(self, told: Any) -> Tuple[int, str]:
        """Elements of all tensors, and their shapes."""
        if not isinstance(told, list) or len(told) > TENSORS:
            raise Malformed("expected the sizes of at most %d tensors" % TENSORS)
        elements, shapes = 0, []
        for shape in told:
            if not isinstance(shape, list) or len(shape) > _DIMENSIONS:
                raise Malformed("expected a size of at most %d dimensions" % _DIMENSIONS)
            self._numbers -= 1 + len(shape)
            if self._numbers < 0:
                raise Malformed("more than %d sizes" % _NUMBERS)
            product = 1
            for dimension in shape:
                product *= integer(dimension, 1 << 48)
            elements += product
            shapes.append("x".join(map(str, shape)))
        return min(elements, 1 << 62), ",".join(shapes)


def _dtypes(told: Any) -> str:
    if told is None:
        return ""
    if not isinstance(told, list) or len(told) > TENSORS:
        raise Malformed("expected at most %d types" % TENSORS)
    return text(",".join(sorted({text(one) for one in told})))


def _pair(op: str) -> Tuple[str, int]:
    """The operation, and with whom: ``recv 0<-1`` is 1."""
    found = _PAIR.fullmatch(op)
    if found is None:
        return op, -1
    return found.group(1), integer(int(found.group(4)), RANK_LIMIT)


def _members(told: Any) -> Dict[str, Tuple[int, ...]]:
    """The ranks of each group; torch has an entry without a name or without ranks where it does not know."""
    found: Dict[str, Tuple[int, ...]] = {}
    left = MEMBERS
    if isinstance(told, dict) and len(told) > GROUPS:
        raise Malformed(".pg_config: more than %d groups" % GROUPS)
    for name, config in told.items() if isinstance(told, dict) else ():
        ranks = config.get("ranks") if isinstance(config, dict) else None
        if not (isinstance(name, str) and name and isinstance(ranks, str)):
            continue
        left -= 1 + len(ranks) // 2
        if left < 0:
            raise Malformed(".pg_config: more than %d ranks in groups" % MEMBERS)
        listed = _RANKS.fullmatch(ranks)
        numbers = list(map(int, listed.group(1).split(","))) if listed else []
        if numbers and max(numbers) < RANK_LIMIT:
            found[text(name)] = tuple(sorted(set(numbers)))
    return found
