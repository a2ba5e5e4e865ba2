"""What the stack screen says in a line: whose stacks, how many answered, what is waited for, what moved."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from cockpit.core.masks import count, ranks_of
from cockpit.core.ranks import mask_text, nodes_text
from cockpit.core.stacks.snapshot import Sample
from cockpit.core.text import one_line
from cockpit.core.time_text import span_text
from cockpit.engine.stacks.take import Stacks
from cockpit.tui.look.units import clock_text
from cockpit.tui.panes.line import Part
from cockpit.tui.stacks.labels import count_text
from cockpit.tui.stacks.samples import SampleCursor
from cockpit.tui.stacks.view_model import Sight


def head(stacks: Stacks, samples: SampleCursor) -> Iterator[Part]:
    """The job, the sample that is shown, and how many ranks have answered."""
    snapshot, number = stacks.snapshot, samples.number
    yield _whose(one_line(snapshot.title))
    if number < 0:
        yield Part((("stacks", "strong"),), 1)
        return
    sample = snapshot.samples[number]
    yield Part((("stacks ", "dim"), (clock_text(sample.at, 8), "strong")), 1)
    if len(snapshot.samples) > 1:
        yield Part((("sample ", "dim"), (f"{number + 1} of {len(snapshot.samples)}", "strong")), 3)
    world, answered = len(snapshot.ranks), samples.answered(sample)
    style = "good" if answered == world else "warn" if answered else "bad"
    if samples.under_way(sample):
        style = "strong"
    took = f" in {span_text(sample.took_s)}" if sample.took_s is not None else ""
    short = Part(((f"{answered:,}/{world:,} answered", style),), 2)
    yield Part(((f"{answered:,} of {world:,} ranks answered", style), (took, "dim")), 2, short)


def _whose(title: str) -> Part:
    """The job; the part after a comma is dropped first if there is no room."""
    long, short = (
        Part((("cockpit ", "name"), (text, "strong")), 0) for text in (title, title.partition(",")[0])
    )
    return replace(long, less=short) if short != long else long


def waiting_text(stacks: Stacks, samples: SampleCursor, *, sampling: bool, key: str) -> str:
    """Why there is no verdict yet.

    :param sampling: a sample is being taken, or will be in a moment
    :param key: the one that takes a sample
    """
    if not stacks.snapshot.samples:
        if stacks.recorded:
            return "this snapshot has no samples"
        if sampling:
            return f"asking {stacks.asked:,} ranks\nwhat each of them is doing right now"
        return f"nobody has been asked yet\n{key} takes a sample of all ranks"
    sample = stacks.snapshot.samples[-1]
    if not samples.under_way(sample):
        return "working it out"
    text = samples.progress(sample)
    late = Counter(
        place.node
        for rank, place in stacks.snapshot.ranks.items()
        if not place.why and rank not in sample.dumps and place.node and place.node not in sample.silent
    )
    if not sample.dumps or not late:
        return f"asking every rank what it is doing\n{text}"
    return f"asking every rank what it is doing\n{text}; still to come: {nodes_text(late)}"


def notices(stacks: Stacks, sight: Sight, *, low: bool, again: str = "") -> Iterator[str]:
    """What stays on the screen: a recorded snapshot, a refusal, a snapshot that cannot be kept.

    :param low: few rows, in which the verdict leaves out what to do next
    :param again: how to ask the ranks of a recorded one again
    """
    snapshot = stacks.snapshot
    if stacks.recorded:
        taken = sight.sample.at if sight.sample is not None else 0.0
        day = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(taken)) if taken else snapshot.name
        yield f"RECORDED SNAPSHOT · taken {day} · {again or 'nothing here is live'}"
    if stacks.trouble:
        yield one_line(f"not saved to disk: {stacks.trouble}", limit=300)
    if sight.sample is not None:
        steps = sight.verdict.steps if sight.verdict is not None and not low else ()
        told = [step.command for step in steps]
        for hint, ranks in _refusals(sight.sample).items():
            if hint not in told:
                nodes = dict.fromkeys(snapshot.ranks[rank].node for rank in ranks_of(ranks))
                yield f"{count_text(ranks)} on {nodes_text(nodes)} may not be inspected · {hint}"


def _refusals(sample: Sample) -> dict[str, int]:
    """What to do about ranks that may not be inspected, and which these are."""
    hints: dict[str, int] = {}
    for rank, dump in sample.dumps.items():
        if dump.error == "denied" and dump.hint:
            hints[dump.hint] = hints.get(dump.hint, 0) | 1 << rank
    return hints


def movement_text(stacks: Stacks, sight: Sight, number: int) -> str:
    """What moved since the previous sample.

    :param number: the sample that is shown, from 0
    """
    if number < 0:
        return ""
    text = f"sample {number + 1} of {len(stacks.snapshot.samples)}"
    if number == 0 or not sight.tree.ranks:
        return text
    if not sight.moved:
        return f"{text} · nothing moved"
    which = mask_text(sight.moved)
    return f"{text} · {count_text(sight.moved)} moved" + (f": {which}" if len(which) < 24 else "")


def filter_text(sight: Sight, stacks: Stacks, pattern: str) -> str:
    """What is filtered for, and how many ranks match."""
    if not pattern:
        return ""
    return f"/{pattern} · {count(sight.shown):,} of {len(stacks.snapshot.ranks):,} ranks"


def why_empty(stacks: Stacks, samples: SampleCursor, pattern: str, keys: Mapping[str, str]) -> Sequence[str]:
    """Why there is no stack to show, line by line.

    :param keys: the key of each command, by its name
    """
    if pattern:
        return (f"nothing matches {pattern!r}", f"{keys['back']} shows all ranks again")
    if stacks.busy or not (stacks.recorded or stacks.snapshot.samples):
        return ("no rank has answered yet",)
    if any(sample.answered for sample in stacks.snapshot.samples[: max(0, samples.number)]):
        return (f"no rank answered; {keys['previous_sample']} shows the sample before",)
    return ("this snapshot has no answers" if stacks.recorded else "no rank answered",)
