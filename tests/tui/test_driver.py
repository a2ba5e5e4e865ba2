"""What a terminal sends in one write, read as keys."""

from __future__ import annotations

import pytest
from textual.driver import Driver
from textual.drivers import linux_driver
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Key

from cockpit.config import Config
from cockpit.tui.base_app import BaseApp
from cockpit.tui.driver import EscapeParser


def keys(written: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the keys that were pressed, once the terminal is silent."""
    monkeypatch.setattr("textual.constants.ESCAPE_DELAY", 0.0)
    parser = EscapeParser()
    read = [*parser.feed(written), *parser.tick()]
    return [event.key for event in read if isinstance(event, Key)]


@pytest.mark.parametrize(
    ("written", "pressed"),
    [
        ("\x1b", ["escape"]),
        ("\x1bq", ["escape", "q"]),
        ("\x1bQ", ["escape", "Q"]),
        ("\x1bqs", ["escape", "q", "s"]),
        ("\x1bs\r", ["escape", "s", "enter"]),
        ("\x1b\r", ["escape", "enter"]),
        ("\x1b:stop\r", ["escape", "colon", "s", "t", "o", "p", "enter"]),
        ("\x1b/ab", ["escape", "slash", "a", "b"]),
        ("\x1b3", ["escape", "3"]),
        ("\x1bf", ["escape", "f"]),
        ("\x1bb", ["escape", "b"]),
        ("\x1b ", ["escape", "space"]),
        ("\x1b\x1bq", ["escape", "escape", "q"]),
        ("q\x1bq", ["q", "escape", "q"]),
        ("\x1b\r\x1bq", ["escape", "enter", "escape", "q"]),
        ("\x1bO", ["escape", "O"]),
        ("\x1b[", ["escape", "left_square_bracket"]),
        # Sequences stay what they are.
        ("\x1b[A", ["up"]),
        ("\x1bOP", ["f1"]),
        ("\x1b[1;5C", ["ctrl+right"]),
        ("\x1b\x7f", ["ctrl+w"]),
        ("\x1b\t", ["shift+tab"]),
        ("\x1b[A\x1bq\x1b[B", ["up", "escape", "q", "down"]),
    ],
)
def test_escape_and_a_key_in_one_write_are_two_keys(
    written: str, pressed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert keys(written, monkeypatch) == pressed


def test_the_app_reads_its_terminal_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linux_driver, "XTermParser", None)
    driver: type[Driver] = BaseApp(Config()).get_driver_class()
    assert issubclass(driver, LinuxDriver)
    assert vars(linux_driver)["XTermParser"] is EscapeParser
