"""Find commands and places by name: type to search; enter runs one; what cannot work says why."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.fuzzy import FuzzySearch
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from cockpit.core.text import one_line
from cockpit.tui.commands import Command, Id, shown

MOST = 200
"""How many lines are listed; a cluster has thousands of ranks."""

Run = Callable[[], object]


@dataclass(frozen=True)
class Item:
    """A line of the list.

    :param name: found by this name as well as by its title
    :param title: what it does, or where it leads
    :param run: what enter does
    :param keys: keys that do the same, as people write them
    :param group: its heading
    :param about: a sentence or two
    :param why_not: why it cannot work now; empty if it can
    :param changes: whether it changes the run: enter never runs it unless its name was typed
    """

    name: str
    title: str
    run: Run
    keys: str = ""
    group: str = ""
    about: str = ""
    why_not: str = ""
    changes: bool = False


def command_items(
    commands: Iterable[Command], why_not: Callable[[Id], str], run: Callable[[Id], object]
) -> Iterator[Item]:
    """The commands of a screen.

    :param why_not: why a command cannot work now; empty if it can
    :param run: does the command of this name
    """
    for command in commands:
        yield Item(
            command.id,
            command.title,
            partial(run, command.id),
            " ".join(map(shown, command.keys)),
            command.group,
            command.help or f"{command.title[:1].upper()}{command.title[1:]}.",
            why_not(command.id),
            command.changes,
        )


def found(items: Iterable[Item], query: str) -> list[Item]:
    """The matching items, best first; without a query all of them in their order.

    What cannot work now comes after what can, unless it is called just so.
    """
    words = query.lower().split()
    if not words:
        return list(items)
    ranked = [(rank, item) for item in items if (rank := _rank(item, words))]
    best = min((place for (place, _), _ in ranked), default=_EXACT)
    most = next(most for most in (_HELD, _FUZZY, _ABOUT) if best <= most)
    ranked = [(rank, item) for rank, item in ranked if rank[0] <= most]
    ranked.sort(key=lambda one: (one[0][0] > _EXACT and bool(one[1].why_not), one[0], one[1].changes))
    return [item for _, item in ranked]


_EXACT, _BEGINS, _WORDS, _HELD, _FUZZY, _ABOUT = range(1, 7)
"""Ranks, 1 is best: it is called so; it begins so; words of it do; the words stand in it, or its letters do,
or the words stand in what is said of it. Letters count where no words do, what is said where neither does."""

_ALSO = {"quit": "leave", "exit": "leave", "close": "leave", "switch": "another"}
"""Words by which other programs call something."""

Rank = tuple[int, float]


def _rank(item: Item, words: Sequence[str]) -> Rank | None:
    """How well an item matches, the least is best; None: not at all."""
    also = [_ALSO.get(word, word) for word in words]
    return _rank_by(item, words) or (None if also == words else _rank_by(item, also))


def _rank_by(item: Item, words: Sequence[str]) -> Rank | None:
    title = item.title.lower()
    query = " ".join(words)
    if query in (item.name, title, item.keys):
        return _EXACT, 0.0
    if title.startswith(query) or item.name.startswith(query):
        return _BEGINS, 0.0
    starts = [item.name, *re.findall(r"[\w.-]+", title)]
    if all(any(start.startswith(word) for start in starts) for word in words):
        return _WORDS, 0.0
    if all(word in f"{item.keys} {title} {item.name} {item.group}".lower() for word in words):
        return _HELD, 0.0
    letters = "".join(words)
    if score := max(2 * _likeness(letters, item.name), _likeness(letters, title)):
        return _FUZZY, -score
    return (_ABOUT, 0.0) if all(word in item.about.lower() for word in words) else None


SHORTEST = 3
"""Letters from which on those of a query may stand apart: nearly everything has any two."""


def _likeness(letters: str, text: str) -> float:
    """How well a text has these letters in their order; 0: it has not.

    The first one is at the start of a word, and so is each that is not in the same word as the one before.
    Of each word they are at least half, and there are at least five of them for two words.
    Textual's score, but of one place a word: its search tries all places of all letters, which takes for ever
    where they repeat.
    """
    best = 0.0
    for start in re.finditer(rf"\b{re.escape(letters[0])}", text) if len(letters) >= SHORTEST else ():
        places = [start.start()]
        for letter in letters[1:]:
            at = places[-1] + 1
            end = _WORD_END.search(text, at)
            here = text.find(letter, at, end.start() if end else len(text))
            begun = None if here >= 0 else re.compile(rf"\b{re.escape(letter)}").search(text, at)
            if here < 0 and begun is None:
                break
            places.append(begun.start() if begun else here)
        else:
            if _means(text, places):
                best = max(best, _SEARCH.score(text, places))
    return best


def _means(text: str, places: Sequence[int]) -> bool:
    """Whether who typed the letters at these places may mean the words that they are in."""
    words = (
        (sum(one.start() <= at < one.end() for at in places), len(one[0])) for one in _WORD.finditer(text)
    )
    typed = [(letters, size) for letters, size in words if letters]
    return all(2 * letters >= size for letters, size in typed) and 2 * len(places) >= 5 * len(typed)


_SEARCH = FuzzySearch()
_WORD = re.compile(r"\w+")
_WORD_END = re.compile(r"\W|$")


class Finder(ModalScreen[Run]):
    """A list that narrows as you type; dismissed with what to run, or None.

    :param title: what is listed
    :param items: under a heading, the items of one group are together
    :param enter: what enter does
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "close"),
        ("down", "move('cursor_down')"),
        ("up", "move('cursor_up')"),
        ("pagedown", "move('page_down')"),
        ("pageup", "move('page_up')"),
    ]

    AUTO_FOCUS = "#search"

    DEFAULT_CSS = """
    Finder { align: center middle; }
    Finder > Vertical {
        width: 100; max-width: 98%; height: 90%; border: round $key; background: $surface; padding: 0 1;
        border-title-color: $key; border-subtitle-color: $dim;
    }
    Finder Input { background: $surface; }
    Finder OptionList {
        height: 1fr; background: $surface; padding: 0; scrollbar-size-vertical: 1;
        text-wrap: nowrap; text-overflow: ellipsis;
    }
    Finder #about { height: auto; min-height: 2; max-height: 4; color: $dim; }
    """

    def __init__(self, title: str, items: Iterable[Item], enter: str = "runs it") -> None:
        super().__init__()
        self._title = title
        self._enter = enter
        self._items = list(items)
        self._listed: list[Item] = []
        # Kept, not looked up: if the app ends while this opens, none of them is in its tree.
        self._list = OptionList(id="list", compact=True)
        self._list.can_focus = False  # what is typed is always searched for
        self._about = Static("", id="about", markup=False)

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            yield Input(placeholder="type to search", id="search", compact=True)
            yield self._list
            yield self._about
        box.border_title = f" {self._title} "
        box.border_subtitle = f" enter {self._enter} · esc closes "

    def on_mount(self) -> None:
        self._list.add_options(self._options(""))
        self._point("")

    def _options(self, query: str) -> list[Option]:
        """The lines for the matching items, which are listed from now on."""
        meant = found(self._items, query)
        self._listed = meant[:MOST]
        options: list[Option] = []
        group = ""
        for at, item in enumerate(self._listed):
            if item.group != group and not query.strip():
                group = item.group
                options.append(Option(Text(group, style="bold"), disabled=True))
            options.append(Option(_line(item), id=str(at)))
        if len(meant) > MOST:
            options.append(Option(Text(f"  and {len(meant) - MOST:,} more: type to narrow"), disabled=True))
        if not meant:
            options.append(Option(Text(f"nothing matches {query!r}"), disabled=True))
        return options

    def _point(self, query: str) -> None:
        """Put the cursor on the first item; on one that changes the run only if its name was typed."""
        words = query.lower().split()
        for at, item in enumerate(self._listed):
            named = words and (_rank(item, words) or (_ABOUT, 0.0))[0] < _HELD
            if named or not (item.changes or (item.why_not and not words)):
                self._list.highlighted = self._list.get_option_index(str(at))
                self._describe(item)
                return
        self._list.highlighted = None
        self._describe(None)

    def _describe(self, item: Item | None) -> None:
        text = ""
        if item is not None:
            text = f"Not now: {item.why_not}." if item.why_not else item.about
            if _line(item).cell_len > self._list.scrollable_content_region.width > 0:
                text = f"{item.title}. {'' if text[:-1].lower() == item.title.lower() else text}"
        self._about.update(one_line(text))

    @on(Input.Changed)
    def _search(self, event: Input.Changed) -> None:
        options = self._options(event.value)
        self._list.clear_options()
        self._list.add_options(options)
        self._point(event.value)

    @on(Input.Submitted)
    def _run_it(self, event: Input.Submitted) -> None:
        self._list.action_select()

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._listed[int(event.option.id or 0)].run)

    @on(OptionList.OptionHighlighted)
    def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        self._describe(self._listed[int(event.option.id)] if event.option.id else None)

    def action_close(self) -> None:
        """Nothing is run."""
        self.dismiss(None)

    def action_move(self, how: str) -> None:
        """Move the list's cursor, even while the search has the focus."""
        getattr(self._list, f"action_{how}")()


def _line(item: Item) -> Text:
    line = Text()
    line.append(f"  {item.keys:<12} ", style="dim" if item.why_not else "bold")
    line.append(one_line(item.title), style="dim" if item.why_not else "")
    if item.why_not:
        line.append(f"  · {item.why_not}", style="dim italic")
    return line
