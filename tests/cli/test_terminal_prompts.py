"""The question on the terminal: what is typed is not shown, and the terminal is afterwards as it was."""

from __future__ import annotations

import asyncio
import os
import pty
import termios
from collections.abc import Sequence

import pytest

from cockpit.cli import terminal_prompts
from cockpit.transport.login_prompts import Challenge, Prompt
from tests.waiting import soon

TWO = Challenge("ada@login", "code", (Prompt("Code:"), Prompt("Device?", echo=True)), ("hello",), "login")


def asked(monkeypatch: pytest.MonkeyPatch, *typed: str) -> tuple[Sequence[str] | None, str]:
    """The answers, and what the terminal showed; each text is typed at the next prompt."""
    master, slave = pty.openpty()
    monkeypatch.setattr(terminal_prompts, "TTY", os.ttyname(slave))
    before = termios.tcgetattr(slave)
    shown = bytearray()

    async def main() -> Sequence[str] | None:
        loop = asyncio.get_running_loop()
        loop.add_reader(master, lambda: shown.extend(os.read(master, 1024)))
        task = asyncio.create_task(terminal_prompts.Terminal().ask(TWO))
        for number, text in enumerate(typed, 1):
            count = number
            await soon(lambda: shown.count(b"(ada@login) ") == count, "the prompt")  # noqa: B023
            os.write(master, text.encode())
        given = await task
        await soon(lambda: shown.endswith(b"\n"), "the end of the line")
        loop.remove_reader(master)
        return given

    try:
        given = asyncio.run(main())
        assert termios.tcgetattr(slave) == before
    finally:
        os.close(master)
        os.close(slave)
    return given, shown.decode()


def test_what_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    given, shown = asked(monkeypatch, "12x\x7f3é\r", "phonx\x7fe\r")
    assert given == ["123é", "phone"]
    assert (
        "cockpit: ada@login says: hello\r\n(ada@login) Code: \r\n(ada@login) Device? phonx\b \be\r\n" in shown
    )


@pytest.mark.parametrize("key", ["\x03", "\x04"])
def test_giving_up(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    given, shown = asked(monkeypatch, f"12{key}")
    assert given is None
    assert shown.endswith("cockpit: login cancelled\r\n")


def test_without_a_terminal_there_is_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal_prompts, "TTY", "/dev/null")
    assert terminal_prompts.Terminal().absent == "there is no terminal to ask on"
    monkeypatch.setattr(terminal_prompts, "TTY", "/nowhere")
    assert terminal_prompts.Terminal().absent == "there is no terminal to ask on"
    assert asyncio.run(terminal_prompts.Terminal().ask(TWO)) is None
