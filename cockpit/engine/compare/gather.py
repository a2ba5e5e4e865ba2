"""Reads two runs, or two profiles, from their folders here; no node is asked."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from cockpit.core.compare.comparing import compare
from cockpit.core.compare.model import Comparison, Profiles
from cockpit.core.compare.profiles import Profiled, comparable, profiles
from cockpit.core.pace.phases import NAMES
from cockpit.core.profile import reader
from cockpit.engine.profile.known import store_of
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.report.gather import report_of
from cockpit.engine.report.numbers import CURVES
from cockpit.errors import CockpitError

POINTS = 2048
"""Of a curve: it is to be seen where two of them part."""

COLUMNS = {**CURVES, **{f"{name}_s": (name, "s") for name in NAMES}}


class Taken(NamedTuple):
    """A profile of a run."""

    folder: RunFolder
    number: int


async def comparison_of(before: RunFolder, after: RunFolder) -> Comparison:
    """Two runs side by side, as far as they are known here. Does much reading.

    :raises CockpitError: a manifest or a journal cannot be read
    """
    was = await report_of(before, short=True, columns=COLUMNS, points=POINTS)
    now = await report_of(after, short=True, columns=COLUMNS, points=POINTS)
    return compare(was, now, _newest(before, after))


def _newest(before: RunFolder, after: RunFolder) -> Profiles | None:
    """Their newest profiles that can be compared; None: there are none."""
    for number in reversed(store_of(after).numbers()):
        for other in reversed(store_of(before).numbers()):
            with suppress(CockpitError):  # one that is damaged hides no other
                one, against = store_of(after).load(number), store_of(before).load(other)
                if comparable(against, one):
                    return profiles(Profiled(against, reader.read(against)), Profiled(one, reader.read(one)))
    return None


def profiles_of(before: Taken, after: Taken) -> Profiles:
    """Two profiles side by side.

    :raises CockpitError: one is not here, or they have nothing in common
    """
    each = [store_of(folder).load(number) for folder, number in (before, after)]
    was, now = (Profiled(one, reader.read(one)) for one in each)
    return profiles(was, now)


def before_it(taken: Taken) -> Taken:
    """The profile of the same run before this one that it can be compared with.

    :raises CockpitError: there is none
    """
    store = store_of(taken.folder)
    kind = store.head(taken.number)
    for number in reversed([each for each in store.numbers() if each < taken.number]):
        with suppress(CockpitError):
            if comparable(store.head(number), kind):
                return Taken(taken.folder, number)
    name = taken.folder.name
    hint = f"name another one: cockpit compare {name}#{taken.number} RUN#N"
    raise CockpitError("no profile before it to compare it with", where=f"{name}#{taken.number}", hint=hint)
