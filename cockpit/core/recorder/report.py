"""What the recorders of all ranks say, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from cockpit.base.recorder.trace import Call, Group
from cockpit.core.masks import ranks_of
from cockpit.core.ranks import mask_text, ranks_named, ranks_text
from cockpit.core.recorder.late import lasts
from cockpit.core.recorder.merge import Collective, Difference, Look
from cockpit.core.recorder.pairs import Pair

SHOWN_US = 1_000_000
"""A wait shorter than this is how training goes."""

_SHOWN = 8
"""Waits that are printed."""

_PLACES = 3
"""Lines of the program that are printed for one collective."""

_GROUPS = 3
"""Groups of which it is printed who arrives last."""


def as_lines(look: Look, silent: Mapping[int, str]) -> list[str]:
    """Who has not entered what others wait for, what does not match, who is not known."""
    lines = ["collectives:", *_waits(look)]
    for found, difference in look.differences()[:_SHOWN]:
        lines.append(f"  {title(found.group, found.number)}: {difference_text(difference)}")
    lasting = [pair for pair in look.pairs if pair.waited_us >= SHOWN_US]
    lines += [f"  {_pair_text(pair)}" for pair in sorted(lasting, key=lambda one: not one.alone)[:_SHOWN]]
    if len(lines) == 1 and look.heard:
        lines.append(f"  no rank waits for another one ({ranks_text(ranks_of(look.heard))} inspected)")
    lines += _lasts(look)
    why: dict[str, list[int]] = {}
    for rank, text in silent.items():
        why.setdefault(text, []).append(rank)
    return [*lines, *(f"  unknown for {ranks_named(ranks)}: {text}" for text, ranks in why.items())]


def _waits(look: Look) -> Iterator[str]:
    found = sorted(look.open(SHOWN_US), key=lambda one: (one.group, one.going, one.absent, one.number))
    alike = [list(each) for _, each in groupby(found, key=lambda one: (one.group, one.going, one.absent))]
    alike.sort(key=lambda each: -each[0].waited_us)
    if missing := look.missing(SHOWN_US):
        yield f"  {_named(missing)} {_has(missing)} not entered what others wait for"
    for several in alike[:_SHOWN]:
        more = f"; {len(several) - 1} more like it" if len(several) > 1 else ""
        yield f"  {wait_text(several[0])}{more}"
    if len(alike) > _SHOWN:
        yield f"  and {len(alike) - _SHOWN} more"


def title(group: Group, number: int) -> str:
    """``number 13 of all ranks (group 0)``, ``number 50 of group 4 (tp)``."""
    return f"number {number} of {group_title(group)}"


def group_title(group: Group) -> str:
    """``all ranks (group 0)``, ``group 4 (tp)``."""
    if group.everybody:
        return f"all ranks (group {group.name})"
    desc = f" ({group.desc})" if group.desc not in ("", "undefined") else ""
    return f"group {group.name}{desc}"


def call_text(call: Call) -> str:
    """``all_reduce of 2,000 Float``."""
    size = max(call.inputs, call.outputs)
    return f"{call.op} of {size:,} {call.dtype}" if size else call.op


def wait_text(found: Collective) -> str:
    """Who waits in one collective, for how long, and who has not entered it."""
    going, absent = found.going, found.absent
    seconds = f"{found.waited_us / 1e6:.1f} s"
    text = f"{call_text(found.call)}, {title(found.group, found.number)}: {_named(going)} {_has(going)}"
    if absent:
        text += f" waited {seconds}; {_named(absent)} {_has(absent)} not entered"
    else:
        text += f" been in it for {seconds}"
        if not found.unknown:
            all_of_them = "all" if found.sure else "all known members of this group"
            text += f", and {all_of_them} have entered"
    text += f"; unknown for {_named(found.unknown)}" if found.unknown else ""
    return text + places_text(found, going)


def places_text(found: Collective, ranks: int) -> str:
    """``; called at train.py:7 step``: where these ranks did, if dumps say so; else empty."""
    places = found.places(ranks)[:_PLACES]
    if len(places) == 1:
        return f"; called at {places[0][0]}"
    return f"; called at {', '.join(f'{place} ({_named(mask)})' for place, mask in places)}" if places else ""


def difference_text(difference: Difference) -> str:
    """``sizes differ: 10 Float (ranks 0,2-3), 12 Float (rank 1)``."""
    parts = ", ".join(f"{_differing(difference, call)} ({_named(mask)})" for mask, call in difference.calls)
    return f"{difference.what}s differ: {parts}"


def _differing(difference: Difference, call: Call) -> str:
    if difference.what == "operation":
        return call.op
    return call.dtype if difference.what == "type" else f"{call.inputs:,} {call.dtype} [{call.shapes}]"


def _pair_text(pair: Pair) -> str:
    call = pair.entry.call
    peer = "another rank" if pair.peer is None else f"rank {pair.peer}"
    way, other = ("to", "received") if call.op == "send" else ("from", "sent")
    text = f"rank {pair.rank} has been in a {call.op} {way} {peer} for {pair.waited_us / 1e6:.1f} s"
    text += f", {title(call.group, pair.entry.number)}"
    text += f"; {peer} has not {other}" if pair.alone else ""
    return text + (f"; called at {pair.entry.source}" if pair.entry.source else "")


def _lasts(look: Look) -> Iterator[str]:
    """Who arrives last; nobody is said to be slow."""
    found = lasts(look.collectives)[:_GROUPS]
    for one in found:
        group = "all ranks" if one.group.everybody else f"group {one.group.name}"
        by = "arrives" if one.group.timed else "enqueues"
        text = f"  {by} last in {group}: rank {one.rank}, in {one.times} of the last {one.looked} collectives"
        yield f"{text}, {one.lag_us / 1000:.0f} ms after the others"
    if found:
        yield "  (the last one may itself have waited for another rank: 'cockpit ps' says which one is slow)"


def _named(mask: int) -> str:
    return ranks_named(ranks_of(mask))


def _has(mask: int) -> str:
    return "has" if mask.bit_count() == 1 else "have"


def as_json(look: Look, silent: Mapping[int, str]) -> dict[str, Any]:
    """The same for programs: sets of ranks as text, times in seconds."""
    return {
        "heard": mask_text(look.heard),
        "silent": {str(rank): why for rank, why in sorted(silent.items())},
        "missing": mask_text(look.missing(SHOWN_US)),
        "waits": [_collective_json(one) for one in look.open()],
        "differences": [
            {
                **_collective_json(found),
                "what": difference.what,
                "calls": [{"ranks": mask_text(mask), **_call_json(call)} for mask, call in difference.calls],
            }
            for found, difference in look.differences()
        ],
        "last": [
            {
                "backend": one.group.backend,
                "group": one.group.name,
                "description": one.group.desc,
                "collectives": one.looked,
                "waited": one.waited,
                "rank": one.rank,
                "times": one.times,
                "lag_s": one.lag_us / 1e6,
            }
            for one in lasts(look.collectives)
        ],
        "pairs": [
            {
                "rank": pair.rank,
                "peer": pair.peer,
                "group": pair.entry.call.group.name,
                "number": pair.entry.number,
                "alone": pair.alone,
                "waited_s": pair.waited_us / 1e6,
                "source": pair.entry.source,
                **_call_json(pair.entry.call),
            }
            for pair in look.pairs
        ],
    }


def _collective_json(found: Collective) -> dict[str, Any]:
    return {
        "backend": found.group.backend,
        "group": found.group.name,
        "description": found.group.desc,
        "number": found.number,
        **_call_json(found.call),
        "members": mask_text(found.members),
        "members_sure": found.sure,
        "waiting": mask_text(found.going),
        "absent": mask_text(found.absent),
        "unknown": mask_text(found.unknown),
        "waited_s": found.waited_us / 1e6,
        "sources": {place: mask_text(mask) for place, mask in found.places(found.going)},
    }


def _call_json(call: Call) -> dict[str, Any]:
    return {
        "op": call.op,
        "shapes": call.shapes,
        "inputs": call.inputs,
        "outputs": call.outputs,
        "type": call.dtype,
    }
