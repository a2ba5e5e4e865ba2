"""Stills of the docs, from the demo as it runs, dark and light: ``make screenshots``.

Only what the demo has nothing of, GPUs and the like, is played by scenes (:mod:`tests.tui.screenshots`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.tui import terminal_svg
from tests.tui.terminal import SIZE, Home, Terminal
from tests.tui.terminal_gif import look_of

RANKS_64 = "cockpit demo --nodes 8 --slots 8"

PATIENCE_S = 600.0
"""How long a screen may take to show what a still is of."""

KEY_S = 0.3
"""Seconds between two keys, for screens that open meanwhile."""

SETTLED_S = 1.5
"""Seconds from what a still waits for to the still: what comes with it is there by then."""

THEMES = DARK, LIGHT = "dark", "light"

ESC, ENTER, RIGHT = "\x1b", "\r", "\x1b[C"

RANK_10 = ("1", "g", "j", RIGHT, RIGHT, RIGHT)

SMALL, USUAL = (80, 24), (140, 45)


def still(folder: Path, name: str, theme: str, size: tuple[int, int] = SIZE) -> Path:
    """The file of a still: its name says the size and the theme where they are not the usual ones."""
    wide = "" if size == SIZE else f"-{size[0]}x{size[1]}"
    return folder / f"{name}{wide}{'' if theme == DARK else f'-{theme}'}.svg"


@dataclass(frozen=True)
class Camera:
    """Takes stills of a terminal.

    :param folder: where they go, ``NAME.svg`` and ``NAME-light.svg``
    """

    folder: Path
    terminal: Terminal

    def take(
        self,
        name: str,
        until: str,
        keys: Sequence[str] = (),
        back: Sequence[str] = (ESC,),
        size: tuple[int, int] = SIZE,
    ) -> None:
        """Take a still in each theme.

        :param until: a pattern that the screen has then
        :param keys: what is typed before, and ``back`` after it, if there are any
        :raises AssertionError: the screen does not come to show it
        """
        for theme in THEMES:
            self._wear(theme)
            self.terminal.resize(size)
            self.type(*keys)
            self.wait_for(until)
            self.terminal.watch(SETTLED_S)
            self.terminal.rest()
            path = still(self.folder, name, theme, size)
            path.write_text(terminal_svg.drawn(self.terminal.screen, "cockpit"))
            print(path, file=sys.stderr)
            self.terminal.resize(SIZE)
            if keys:
                self.type(*back)
        self._wear(DARK)

    def wait_for(self, pattern: str) -> None:
        """Wait until the screen has it.

        :raises AssertionError: it does not come
        """
        self.terminal.wait_for(pattern, PATIENCE_S)

    def wait_until_gone(self, words: str) -> None:
        """Wait until a message is no longer on the screen.

        :raises AssertionError: it stays
        """
        self.terminal.wait_until(lambda: words not in self.terminal.text, f"no {words!r}", PATIENCE_S)

    def type(self, *keys: str) -> None:
        """Type one key after the other."""
        for key in keys:
            self.terminal.type(key)
            self.terminal.watch(KEY_S)

    def profile(self) -> None:
        """Profile the ranks, once it is known what that costs."""
        self.type("P")
        self.wait_for("enter: start")
        self.type(ENTER)

    def _wear(self, theme: str) -> None:
        if self._theme() == theme:
            return
        self.type(":", f"theme: {theme}")
        self.wait_for(rf"(?s)theme: {theme}.*theme: {theme}")
        self.type(ENTER)
        self.terminal.wait_until(lambda: self._theme() == theme, f"theme {theme}", PATIENCE_S)

    def _theme(self) -> str:
        paper = look_of(self.terminal.screen.buffer[0][0]).paper
        return LIGHT if int(paper[:2], 16) > 127 else DARK


@contextmanager
def camera(folder: Path, home: Home, command: str) -> Iterator[Camera]:
    """A camera before a command, for as long as a ``with`` block."""
    with home.typed(command) as terminal:
        yield Camera(folder, terminal)


def healthy(folder: Path, home: Home) -> None:
    """A run that trains."""
    with camera(folder, home, f"{RANKS_64} --launcher command --keep") as shot:
        shot.take("running", r"step 1[2-9]\d/600")
        shot.take("rank-chosen", r"rank 10 · node2", RANK_10)
        shot.take("detail", r"rank 10\b(?s:.*)Environment", (*RANK_10, "3"), ("2", ESC))
        shot.take("palette", r"stacks", (":", "sta"))
        shot.take("help", r"all keys", ("?",))
        shot.take("stop-question", r"stop the run", ("x",))


def crash(folder: Path, home: Home) -> None:
    """A run of which a rank fails."""
    with camera(folder, home, f"{RANKS_64} --launcher command --fault crash --keep") as shot:
        shot.take("failed", r"the other ranks stop in")


def hang(folder: Path, home: Home) -> None:
    """A run that stalls, and meanwhile the home screen."""
    with camera(folder, home, f"{RANKS_64} --launcher command --fault hang --keep") as shot:
        shot.take("stalled", r"hang \(faults\.py:\d+\)")
        shot.take("stacks-64", r"forward +faults", ("S",))
        shot.take("stacks-rank", r"forward +faults", ("S", ENTER), (ESC, ESC))
        shot.type("s")
        shot.wait_for(r"sample 2 of 2")
        shot.type("w", ESC)
        shot.wait_until_gone("the snapshot is in")
        shot.take("evidence", r"evidence: [2-9] snapshots", ("V",))
        with camera(folder, home, "cockpit") as at_home:
            at_home.take("home", r"stalled")


def slow(folder: Path, home: Home) -> None:
    """A run of which one rank is slow, with torch: 64 ranks take 17 GB with its CPU build."""
    with camera(folder, home, f"{RANKS_64} --launcher torchrun --fault slow --step-time 1") as shot:
        shot.take("phases", r"63 slows")
        shot.take("events", r"rank 63 slow since", ("4",), ("2",))
        shot.take("pace", r"slowest, rank 63", ("6",), ("2",))
        _slow_rank(shot, 63, "pace", "profile-64")


def four(folder: Path, home: Home) -> None:
    """The demo as it is started by its name alone: to its end, and with a slow rank."""
    with camera(folder, home, "cockpit demo --steps 80 --keep") as shot:
        shot.wait_for(r"✓ ended")
    with camera(folder, home, "cockpit demo --fault slow --keep") as shot:
        shot.wait_for(r"3 slows")
        _slow_rank(shot, 3, "pace-4", "profile-4")


def _slow_rank(shot: Camera, rank: int, pace: str, profile: str) -> None:
    """The map and a profile of a run with a slow rank, each at the usual size and the least."""
    shot.take(pace, rf"slowest, rank {rank}\b", ("6",), ("2",), size=USUAL)
    shot.take(pace, rf"\b{rank} slows", ("6",), ("2",), size=SMALL)
    shot.profile()
    shot.take(profile, rf"profile 1(?s:.*)if rank {rank} kept up", size=USUAL)
    shot.take(profile, r"profile 1", size=SMALL)
    shot.type(ESC)


def recorded(folder: Path, home: Home) -> None:
    """Runs that are over: the two last beside each other, and the one that stalled played again."""
    with camera(folder, home, "cockpit") as shot:
        shot.wait_for(r"80/80")
        shot.type("=")
        shot.wait_for("is marked")
        shot.type("j", "=")
        shot.wait_until_gone("is marked")
        shot.take("compare", r"after, above it")
        shot.type(ESC)
    stalled = sorted(home.path.glob(".local/state/cockpit/runs/*"))[2]
    with camera(folder, home, f"cockpit replay {stalled.name}") as shot:
        shot.wait_for("REPLAY")
        shot.wait_for("[─━]▲")  # its mark is there once the run has been read
        shot.type("]")
        shot.take("replay", r"stalled")


SHOWS: tuple[Callable[[Path, Home], None], ...] = (healthy, crash, hang, slow, four, recorded)


def main(folder: Path, *names: str) -> None:
    """Take every still, or those of some shows."""
    folder.mkdir(parents=True, exist_ok=True)
    with Home.made() as home:
        for show in SHOWS:
            if not names or show.__name__ in names:
                show(folder, home)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
