"""Asks a person for what a login needs, on the terminal: not on stdin, which may be a list of nodes."""

from __future__ import annotations

import asyncio
import os
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cockpit.transport.login_prompts import Challenge

TTY = "/dev/tty"

_CLEAR_LINE = "\r\x1b[K"

_ENTER, _GIVE_UP, _RUB = "\r\n", "\x03\x04", "\x08\x7f"
"""What keys send: enter; ctrl-c and ctrl-d; backspace."""

MOST_CHARS = 1024
"""Of one answer."""


class Terminal:
    """See :class:`cockpit.transport.login_prompts.Prompter`."""

    @property
    def absent(self) -> str:
        """Why nobody can be asked."""
        try:
            number = os.open(TTY, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            return "there is no terminal to ask on"
        try:
            # In the background, a look at the terminal would stop this process.
            return "" if os.tcgetpgrp(number) == os.getpgrp() else "cockpit is running in the background"
        except OSError:
            return "there is no terminal to ask on"
        finally:
            os.close(number)

    async def ask(self, challenge: Challenge) -> Sequence[str] | None:
        """See :meth:`cockpit.transport.login_prompts.Prompter.ask`."""
        try:
            return await self._ask(challenge)
        except (OSError, termios.error):  # the terminal is gone, and with it whoever was there
            return None

    async def _ask(self, challenge: Challenge) -> Sequence[str] | None:
        given = []
        with _raw_terminal() as number:
            lines = [f"cockpit: {line}" for line in challenge.about()]
            lines += [f"cockpit: {challenge.hop} says: {line}" for line in challenge.told]
            _write(number, _CLEAR_LINE + "".join(f"{line}\n" for line in lines))
            for prompt in challenge.prompts:
                asked = prompt.text if prompt.text.endswith((":", "?", ">")) else f"{prompt.text}:"
                _write(number, f"({challenge.hop}) {asked} ")
                answer = await _line(number, echo=prompt.echo)
                if answer is None:
                    _write(number, "\ncockpit: login cancelled\n")
                    return None
                _write(number, "\n")
                given.append(answer)
        return given


@contextmanager
def _raw_terminal() -> Iterator[int]:
    """The terminal without echo; each key arrives at once, ctrl-c too: it is about this question alone."""
    number = os.open(TTY, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        before = termios.tcgetattr(number)
        raw = termios.tcgetattr(number)
        raw[0] &= ~(termios.ICRNL | termios.IXON)
        raw[3] &= ~(termios.ECHO | termios.ICANON | termios.ISIG | termios.IEXTEN)
        termios.tcsetattr(number, termios.TCSAFLUSH, raw)
        try:
            yield number
        finally:
            termios.tcsetattr(number, termios.TCSAFLUSH, before)
    finally:
        os.close(number)


async def _line(number: int, *, echo: bool) -> str | None:
    """What is typed until enter; None: given up."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[str | None] = loop.create_future()
    typed = b""

    def read() -> None:
        nonlocal typed
        data = os.read(number, 1024)
        for byte in data or b"\x04":
            key = chr(byte)
            if done.done():
                return
            if key in _ENTER:
                done.set_result(typed.decode(errors="replace"))
            elif key in _GIVE_UP:
                done.set_result(None)
            elif key in _RUB:
                shorter = typed.decode(errors="replace")[:-1].encode()
                if echo and shorter != typed:
                    _write(number, "\b \b")
                typed = shorter
            elif len(typed) < MOST_CHARS and byte >= 0x20:
                typed += bytes([byte])
                if echo:
                    os.write(number, bytes([byte]))

    loop.add_reader(number, read)
    try:
        return await done
    finally:
        loop.remove_reader(number)


def _write(number: int, text: str) -> None:
    os.write(number, text.encode(errors="replace"))
