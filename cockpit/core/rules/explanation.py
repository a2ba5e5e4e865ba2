"""Which rule explains the end of a rank: what is recorded of it counts first, then words, then lines near."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from cockpit.core.finding import Finding, Step
from cockpit.core.rules.row import Row
from cockpit.core.rules.table import Table, table


def explanation(
    words: bytes, near: Iterable[bytes] = (), facts: frozenset[str] = frozenset(), rules: Table | None = None
) -> Row | None:
    """The rule that explains an end; None: no rule knows it, and nothing is said.

    :param words: what the rank says of its end; empty: nothing
    :param near: lines of its log near those words, the nearest first
    :param facts: what is recorded of its end
    """
    rules = rules or table()
    if not words:
        facts |= {"silent"}
    recorded = next(rules.found_after(facts), None)
    if recorded is not None:
        return recorded
    for line in (*words.splitlines(), *near):
        for row in rules.found_in(line):
            if row.severity == "error" and row.ends <= facts:
                return row
    return None


def meant(found: Finding, row: Row | None) -> Finding:
    """The finding, with what a rule says of it."""
    if row is None:
        return found
    return replace(found, rule=row.id, meaning=row.meaning(), steps=(*row.steps(), *found.steps))


def recognised(
    found: Finding, about: str = "", typed: Callable[[Step], Iterable[Step]] = lambda step: (step,)
) -> Finding:
    """What a check has found, with what the rule says that knows it; its own steps come first.

    :param about: words for what it is about, of which rules may know one
    :param typed: a step of the rule as it is typed there, or several; nothing: it is of no use there
    """
    known = table().by_check
    keys = (*(f"{found.id} {word}" for word in about.split()), found.id)
    row = next((known[key] for key in keys if key in known), None)
    if row is None:
        return found
    own = {step.reason for step in found.steps}
    more = dict.fromkeys(each for step in row.steps() if step.reason not in own for each in typed(step))
    return replace(found, rule=row.id, meaning=row.meaning(), steps=(*found.steps, *more))


def translated(found: Finding, lang: str) -> Finding:
    """The finding with what its rule says in a language; else it is English."""
    row = table().by_id.get(found.rule)
    if row is None:
        return found
    # By what it is for: a step may name the very interface, and stand elsewhere.
    reasons = {one.reason: one.zh if lang == "zh" else one.reason for one in row.next}
    reasons |= {one.zh: reasons[one.reason] for one in row.next}
    steps = tuple(replace(step, reason=reasons.get(step.reason, step.reason)) for step in found.steps)
    return replace(found, meaning=row.meaning(lang), steps=steps)
