"""Pages of the documentation, in the terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from cockpit.cli.output import out_lines, table
from cockpit.errors import CockpitError, near

_PLACES = (Path(__file__).parents[1] / "docs", Path(__file__).parents[2] / "docs")
"""An installed cockpit has its pages in its package, a checkout in the top folder."""


def names() -> dict[str, Path]:
    """The page of each topic."""
    found = next((place for place in _PLACES if place.is_dir()), _PLACES[0])
    return {page.stem: page for page in sorted(found.glob("*.md")) if page.stem != "README"}


def show(topic: str, verbs: Iterable[str]) -> None:
    """Show a page, on a terminal in the pager; or the names of all, for ``topics``.

    :raises CockpitError: there is no such page
    """
    pages = names()
    if topic == "topics":
        table([("TOPIC", "ABOUT"), *((name, title(_text(page))) for name, page in pages.items())])
        return
    page = pages.get(topic.removesuffix(".md"))
    if page is None:
        meant = near(topic, [*verbs, *pages])
        raise CockpitError(
            f"no verb or page {topic!r}",
            hint=f"did you mean: cockpit help {meant}" if meant else "see: cockpit help topics",
        )
    text = plain(_text(page))
    if sys.stdout.isatty():
        import pydoc  # takes long, and only this needs it

        pydoc.pager(text)
    else:
        out_lines(text.rstrip("\n").split("\n"))


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")  # a part of this package


def title(text: str) -> str:
    """The heading of a page."""
    return text.partition("\n")[0].lstrip("# ")


def plain(text: str) -> str:
    """A page as it reads in a terminal: without pictures, and links with their words alone."""
    text = re.sub(r"^!\[[^\]]*\]\([^)]*\)\n+", "", text, flags=re.MULTILINE)
    return re.sub(r"(?<!\!)\[([^\]]+)\]\([^)\s]+\)", r"\1", text)
