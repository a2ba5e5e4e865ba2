"""The palette: every command, node, rank and theme by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from cockpit.tui.commands import shown
from cockpit.tui.host import Host


class CockpitProvider(Provider):
    """What the screen offers (its ``palette_items``), and the themes."""

    def _items(self) -> Iterator[tuple[str, str, Callable[[], object]]]:
        items = getattr(self.screen, "palette_items", None)
        if items is not None:
            # Textual says nothing of what a provider raises.
            with cast(Host, self.app).contained():
                yield from items()
        for name in sorted(self.app.available_themes):
            if self.app.available_themes[name].variables.get("rank-running"):
                yield f"theme: {name}", "colours", partial(setattr, self.app, "theme", name)

    async def discover(self) -> Hits:
        """The commands, before anything is typed."""
        for title, help_text, run in self._items():
            if not title.startswith(("rank ", "node ")):
                yield DiscoveryHit(title, run, help=help_text)

    async def search(self, query: str) -> Hits:
        """All that match."""
        matcher = self.matcher(query)
        for title, help_text, run in self._items():
            score = matcher.match(title)
            if score > 0:
                yield Hit(score, matcher.highlight(title), run, help=help_text)


def keys_text(keys: tuple[str, ...]) -> str:
    """Keys as people write them."""
    return " ".join(map(shown, keys))
