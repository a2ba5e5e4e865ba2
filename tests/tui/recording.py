"""The moving picture of the docs, from the demo as it runs: ``make recording``.

A demo of 64 ranks runs in cockpit on a pseudo-terminal. What it writes becomes an asciicast, whose acts are
played faster where they would last longer than they are worth; the cast becomes a GIF.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.tui import terminal_gif
from tests.tui.terminal import SIZE, Home, Terminal

COMMAND = "cockpit demo --nodes 8 --slots 8 --launcher command --fault hang"

PATIENCE_S = 180.0
"""How long an act may take before the recording is given up."""

PROMPT_S = 0.8
"""Seconds for which the command alone is shown."""

REST_S = 1.2
"""Seconds for which the screen stays as it is when the cast is over."""


@dataclass(frozen=True)
class Act:
    """A part of the picture.

    :param name: the marker it begins with
    :param until: a pattern; the act is over when the screen has it
    :param most_s: seconds it lasts in the picture; what took longer is played faster
    :param stays_s: seconds for which what the act led to is shown, as they passed
    :param key: what is typed as it begins
    """

    name: str
    until: str
    most_s: float
    stays_s: float = 0.0
    key: str = ""


ACTS = (
    Act("starts", r"step +1[ /\d]", 2.0),
    Act("healthy", r"step +(19|20)\b", 5.4),
    Act("stalls", r"rank 63 .*join|faults\.py:\d+", 3.5, 3.0),
    Act("its stack", r"forward +faults", 0.6, 3.0, "S"),
)
"""Together 20 s, with the prompt before and the rest after."""

Event = tuple[float, str, str]
"""Seconds, ``o`` for output or ``m`` for a marker, and its text."""


def play(terminal: Terminal, act: Act) -> list[Event]:
    """Play an act; its events, from 0 on.

    :raises AssertionError: the screen does not come to show what it waits for
    """
    first, begin = len(terminal.written), terminal.now
    terminal.type(act.key)
    terminal.wait_for(act.until, PATIENCE_S)
    took = terminal.now - begin
    terminal.watch(act.stays_s)
    slower = min(1.0, act.most_s / took)
    return [
        (at * slower if at < took else at - took + took * slower, "o", text)
        for at, text in ((at - begin, text) for at, text in terminal.written[first:])
    ]


def record() -> list[Event]:
    """Play every act on a terminal."""
    with Home.made() as home, home.typed(COMMAND) as terminal:
        at, events = PROMPT_S, [(0.0, "o", f"$ {COMMAND}\r\n")]
        for act in ACTS:
            played = play(terminal, act)
            events += [(at, "m", act.name), *((at + when, kind, text) for when, kind, text in played)]
            at = max(events[-1][0], at)
            print(f"{act.name}: over at {at:.1f} s", file=sys.stderr)
    return [*events, (at + REST_S, "o", "")]


def main(folder: Path) -> None:
    """Write ``demo.cast`` and ``demo.gif``."""
    font = terminal_gif.Font.find()
    events = record()
    columns, lines = SIZE
    header = {"version": 2, "width": columns, "height": lines, "title": COMMAND}
    rows = [json.dumps(header), *(json.dumps([round(at, 3), *what]) for at, *what in events)]
    cast, gif = folder / "demo.cast", folder / "demo.gif"
    cast.write_text("\n".join(rows) + "\n")
    terminal_gif.write(gif, cast, font)
    for path in (cast, gif):
        print(f"{path}: {path.stat().st_size / 1e6:.2f} MB", file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
