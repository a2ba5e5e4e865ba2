"""The footer: keys that fit, keys that are clicked, and what goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from cockpit.tui.commands import BY_ID, Command
from cockpit.tui.panes.key_bar import Activity, KeyBar
from tests.tui.models import Around

SIX = tuple(BY_ID[name] for name in ("keep", "failed_log", "back", "filter", "help", "leave"))


class Bar(Around[KeyBar]):
    """Keeps what was clicked."""

    def on_key_bar_pressed(self, event: KeyBar.Pressed) -> None:
        self.told.append(event.command)


def shown(
    width: int, commands: Sequence[Command] = SIX, activity: Activity | None = None, ascii_only: bool = False
) -> str:
    app = Bar(KeyBar(ascii_only=ascii_only))

    async def main() -> str:
        async with app.run_test(size=(width, 3)) as pilot:
            app.widget.show(commands, activity)
            await pilot.pause()
            return app.lines()[0]

    return asyncio.run(main())


def test_keys_and_what_they_do() -> None:
    assert shown(80) == " K keep running  F failed rank  esc back  / filter  ? all keys  q leave"


def test_no_more_than_six() -> None:
    assert "stop" not in shown(120, (*SIX, BY_ID["stop"]))


def test_help_and_the_way_out_stay_longest() -> None:
    assert shown(54) == " K keep running  F failed rank  ? all keys  q leave"
    assert shown(22) == " ? all keys  q leave"
    assert shown(14) == " ? all keys"
    assert shown(4) == ""


def test_a_command_without_a_key_is_not_shown() -> None:
    assert shown(80, (replace(BY_ID["keep"], bound=""), BY_ID["help"])) == " ? all keys"


def test_activity_on_the_right() -> None:
    line = shown(100, activity=Activity("collecting gpu03", 0.66))
    assert line.endswith("collecting gpu03 ━━━━━━━━━━━━  66%")
    assert shown(100, activity=Activity("collecting", 0.5), ascii_only=True).endswith(
        "collecting ######......  50%"
    )
    assert shown(100, activity=Activity("stopping")).endswith("stopping")


@pytest.mark.parametrize("share", [-1.0, 2.0])
def test_a_share_beyond_the_whole(share: float) -> None:
    line = shown(100, activity=Activity("x", share), ascii_only=True)
    assert line.endswith("100%") or line.endswith("............   0%")


def test_a_long_activity_leaves_room_for_keys() -> None:
    line = shown(60, activity=Activity("finalising " * 9))
    assert line.startswith(" ? all keys  q leave")
    assert line.endswith("…")


def test_a_click_is_the_key() -> None:
    app = Bar(KeyBar())

    async def main() -> None:
        async with app.run_test(size=(80, 3)) as pilot:
            app.widget.show(SIX, None)
            await pilot.pause()
            line = app.lines()[0]
            for what in ("keep", "? all", "leave"):
                await pilot.click(app.widget, offset=(line.index(what), 0))
            await pilot.click(app.widget, offset=(79, 0))
            await pilot.click(app.widget, offset=(line.index("  F"), 0))

    asyncio.run(main())
    assert app.told == ["keep", "help", "leave"]
