"""The pane of ranks × time takes the rows that it fills, and gives back those that it no longer does."""

from __future__ import annotations

import asyncio

from textual.app import App, ComposeResult

from cockpit.tui.look import themes
from cockpit.tui.pace.lines import lines_at_most
from cockpit.tui.pace.pane import PacePane
from cockpit.tui.panes.column import Column
from tests.tui.scenes import until
from tests.tui.test_pace import run, sight


class Alone(App[None]):
    """A screen with nothing else on it."""

    CSS = "PacePane { height: auto; }"

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Colours of the app."""
        return themes.defaults()

    def compose(self) -> ComposeResult:
        """The pane, in a column as in the app."""
        with Column({}):
            yield PacePane()


def test_its_rows_follow_what_it_draws() -> None:
    pace = run(8)
    many, few = sight(pace, 4, every=True), sight(pace, 4)  # with the same legend

    async def main() -> None:
        app = Alone()
        async with app.run_test(size=(100, 60)) as pilot:
            pane = app.query_one(PacePane)
            tall = []
            for seen in (many, few, many):
                pane.show(seen)
                rows = lines_at_most(seen, pane.content_size.width)
                await until(pilot, lambda rows=rows: pane.size.height == rows, f"{rows} rows")  # type: ignore[misc]
                tall.append(rows)
            assert tall[0] > tall[1] > 0

    asyncio.run(main())
