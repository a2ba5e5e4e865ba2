"""The run whose ranks are profiled, as the screen and its question need it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from cockpit.core.profile.collection import Collection
from cockpit.core.profile.gain import Ahead
from cockpit.core.ranks import ranks_named, ranks_text
from cockpit.engine.links.pool import LinkPool
from cockpit.engine.profile.choose import Wish
from cockpit.engine.profile.store import Store
from cockpit.engine.profile.taking import Taking
from cockpit.engine.records.folder import RunFolder
from cockpit.tui.look.units import clock_text
from cockpit.tui.panes.finder import Item


@dataclass(frozen=True, eq=False)
class Job:
    """One run.

    :param store: of its profiles
    :param pool: lends links to its nodes
    :param prepare: asks the nodes what a profile would meet, and chooses
    :param why_not: why there can be no new one; empty: there can
    :param noted: adds to the list of commands: a title, and the words to type
    :param local: of each rank its place among those of its node
    :param marked: ranks that are marked, or chosen, by what they are called
    :param ahead: what is left of the run
    """

    folder: RunFolder
    store: Store
    pool: LinkPool
    prepare: Callable[[Wish], Awaitable[Taking]]
    why_not: Callable[[], str] = str
    noted: Callable[[str, Sequence[str]], None] = lambda title, words: None
    local: Mapping[int, int] = field(default_factory=dict)
    marked: Callable[[], Mapping[str, frozenset[int]]] = dict
    ahead: Callable[[], Ahead] = Ahead


def about(one: Collection) -> str:
    """``profile 2 (12:04, steps 700-704)``."""
    if one.first is None:
        what = f"{one.kind}, {one.seconds or 0.0:g} s"
    else:
        what = steps_text(range(one.first, one.first + max(1, one.steps)))
    return f"profile {one.number} ({clock_text(one.at, 5)}, {what})"


def steps_text(steps: Iterable[int]) -> str:
    """``steps 1,212-1,216``; with gaps ``steps 700,702``."""
    some = sorted(steps)
    if len(some) == 1:
        return f"step {some[0]:,}"
    whole = some and some[-1] - some[0] == len(some) - 1
    return f"steps {some[0]:,}-{some[-1]:,}" if whole else f"steps {ranks_text(some)}"


def earlier_items(job: Job, show: Callable[[int], object]) -> Iterator[Item]:
    """The profiles that are here, to find one by name."""
    for one in reversed(job.store.heads()):
        run = partial(show, one.number)
        yield Item(f"profile {one.number}", about(one), run, "", "Profiles", ranks_named(one.results))


def words_of(wish: Wish) -> list[str]:
    """The options with which the command line takes the same."""
    words = ["--kind", wish.kind] if wish.kind else []
    words += ["--ranks", ranks_text(wish.ranks)] if wish.ranks is not None else []
    words += ["--steps", str(wish.steps)] if wish.steps is not None else []
    words += ["--seconds", f"{wish.seconds:g}"] if wish.seconds is not None else []
    flags = {"--stack": wish.stack, "--memory": wish.memory, "--no-shapes": not wish.shapes}
    return [*words, *(flag for flag, given in flags.items() if given)]
