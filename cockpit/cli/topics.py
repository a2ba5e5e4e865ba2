"""Pages of the documentation, in the terminal."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from cockpit.cli.output import out_lines, say, shows_unicode, table
from cockpit.cli.page_text import blocks, fitted, linked
from cockpit.core.text import ascii_text
from cockpit.errors import CockpitError, near

_PLACES = (Path(__file__).parents[1] / "docs", Path(__file__).parents[2] / "docs")
"""An installed cockpit has its pages in its package, a checkout in the top folder."""

TOPICS = "topics"
"""Stands for the list of all pages."""

SHOWN = 12
"""Sections that are listed for a word."""

SHORT = 500
"""Characters below which a section is not shorter, for its place among those that have a word."""

SMALL = "a an and are can do does for from how i in is it my of on the to what when which why"
"""Words that a question has and no section is about."""

NO_ANSWERS = ("agents", "comparison", "contributing", "decisions", "how-it-works", "protocol", "proven")
"""Pages that answer no question of somebody who uses it."""


def names() -> dict[str, Path]:
    """The page of each topic."""
    found = next((place for place in _PLACES if place.is_dir()), _PLACES[0])
    return {page.stem: page for page in sorted(found.glob("*.md")) if page.stem != "README"}


def titles() -> Iterator[tuple[str, str]]:
    """Each topic and the heading of its page."""
    return ((name, title(_text(page))) for name, page in names().items())


def show(topic: str, verbs: Iterable[str]) -> None:
    """Show a page, on a terminal in the pager; or the names of all, for ``topics``; else where the words are.

    :raises CockpitError: there is no such page, and no page has these words
    """
    pages = names()
    if topic == TOPICS:
        table([("TOPIC", "ABOUT"), *titles()])
        return
    page = pages.get(topic.removesuffix(".md"))
    if page is None:
        meant = "" if topic in SMALL.split() else near(topic, [TOPICS, *verbs, *pages])
        words = [word for word in topic.lower().split() if word not in SMALL.split()]
        if found := mentions(words, pages):
            shown = [(f"cockpit help {name}", section) for name, section in found[:SHOWN]]
            table([("PAGE", f"SECTION WITH {topic!r}"), *shown])
            if meant and len(words) < 2:
                say(f"did you mean: cockpit help {meant}")
            return
        raise CockpitError(
            f"no verb or page {topic!r}",
            hint=f"did you mean: cockpit help {meant}" if meant else "see: cockpit help topics",
        )
    text = linked(_text(page), pages, list(verbs))
    if sys.stdout.isatty():
        _page("\n".join(fitted(text, shutil.get_terminal_size().columns)))
    else:
        lines = text.rstrip("\n").split("\n")
        out_lines(lines if shows_unicode() else map(ascii_text, lines))


def _page(text: str) -> None:
    """Show a text in the pager, or print it if there is no such program."""
    import pydoc  # takes long, and only this needs it

    pager = (os.environ.get("MANPAGER") or os.environ.get("PAGER") or "").split()
    if pager and shutil.which(pager[0]) is None:
        out_lines(text.split("\n"))
        say(f"no such pager: {pager[0]}; set PAGER")
    else:
        pydoc.pager(text)


def mentions(words: Sequence[str], pages: Mapping[str, Path]) -> list[tuple[str, str]]:
    """Page and section of what has all these words, in any form and case; those in a heading first.

    Within these, first what has the words most often for its length.
    """
    stems = (re.sub(r"(?<=\w{3})(s|es|ed|ing)$", "", word) for word in words)
    tests = [re.compile(rf"\b{re.escape(stem)}", re.IGNORECASE) for stem in stems]
    found = []
    for name, page in pages.items():
        if name in NO_ANSWERS:
            continue
        for heading, body in _sections(_text(page)):
            counts = [len(test.findall(f"{heading}\n{body}")) for test in tests]
            if counts and all(counts):
                titled = all(map(re.Pattern.search, tests, [heading] * len(tests)))
                length = max(len(heading) + len(body), SHORT)
                found.append((not titled, -sum(counts) / length, name, heading))
    return [(name, heading) for _, _, name, heading in sorted(found)]


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Each heading, and what is below it."""
    found: list[tuple[str, list[str]]] = []
    for kind, lines in blocks(plain(text)):
        for line in lines:
            if kind == "text" and line.startswith("#"):
                found.append((line.lstrip("# "), []))
            elif found:
                found[-1][1].append(f"{line}\n")
    return ((heading, "".join(body)) for heading, body in found)


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")  # a part of this package


def title(text: str) -> str:
    """The heading of a page."""
    return text.partition("\n")[0].lstrip("# ")


def plain(text: str) -> str:
    """A page for a search: without pictures, and links with their words alone."""
    return linked(text, (), ())
