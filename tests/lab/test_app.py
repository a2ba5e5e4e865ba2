"""The app on a real terminal, over real sshd nodes: whatever happens to it, terminal and run are well."""

from __future__ import annotations

import random
import shlex
from collections.abc import Iterator

import psutil
import pytest

from tests.lab.cockpits import EXAMPLES, Cockpits
from tests.lab.terminals import Terminal, terminal
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

PLAIN = str(EXAMPLES / "train_plain.py")
ALTERNATE, ORDINARY = b"\x1b[?1049h", b"\x1b[?1049l"


@pytest.fixture
def opened(live: Cockpits) -> Iterator[Terminal]:
    """The app, watching a run that others have started."""
    with terminal(live.lab, ["cockpit", "attach", live.name], "xterm-256color") as made:
        yield trains_on(made)


def trains_on(made: Terminal) -> Terminal:
    """Wait for output of the ranks on a terminal that is large enough for it."""
    made.resize(120, 40)
    until(lambda: "/100000 loss" in made.text, "output on the screen")
    return made


def app_of(opened: Terminal) -> psutil.Process:
    """The cockpit itself, below the words that put it on its node."""
    family = [
        psutil.Process(opened.process.pid),
        *psutil.Process(opened.process.pid).children(recursive=True),
    ]
    return next(process for process in family if process.num_threads() > 1)


def well(terminal: Terminal) -> bool:
    """Whether the terminal shows its ordinary screen again, with a cursor and no mouse reports."""
    shown = terminal.shown
    return all(
        shown.rfind(off) > shown.rfind(on)
        for on, off in [
            (ALTERNATE, ORDINARY),
            (b"\x1b[?25l", b"\x1b[?25h"),
            (b"\x1b[?1000h", b"\x1b[?1000l"),
            (b"\x1b[?1003h", b"\x1b[?1003l"),
        ]
    )


def alive(cockpits: Cockpits) -> bool:
    """Whether no rank has ended."""
    return len(cockpits.left_over()) >= 4 and not any(
        cockpits.count(node, "rank_exited") for node in cockpits.lab.nodes
    )


def test_a_resize_storm_and_leaving(live: Cockpits, opened: Terminal) -> None:
    sizes = random.Random(1)
    for _ in range(100):
        opened.resize(sizes.randint(1, 250), sizes.randint(1, 80))
    opened.resize(100, 30)
    opened.type("q")
    assert opened.end() == 130
    assert well(opened)
    assert f"cockpit attach {live.name}" in opened.text
    assert alive(live)


def test_kill_9_leaves_terminal_and_run_well(live: Cockpits, opened: Terminal) -> None:
    changed = opened.modes()
    app_of(opened).kill()
    until(lambda: well(opened), "the terminal is mended")
    until(lambda: opened.modes() != changed, "its settings are the old ones")
    assert alive(live)
    attached = live.cockpit("ps", "--json")
    assert live.name in attached.stdout


def test_a_closed_terminal_leaves_the_run(live: Cockpits, opened: Terminal) -> None:
    opened.hang_up()
    assert opened.process.wait(PATIENCE_S) == 130
    assert alive(live)


def test_ctrl_z_and_fg_then_attach_goes_on_and_stops_when_asked(cockpits: Cockpits) -> None:
    words = cockpits.words("--launcher", "command", program=[PLAIN, "--steps", "100000"])
    # Only a shell with job control can be gone back to.
    with terminal(cockpits.lab, ["bash", "--norc", "-i"], "xterm-256color") as shell:
        shell.resize(120, 40)
        shell.type(shlex.join(words) + "\n")
        until(lambda: "/100000 loss" in shell.text, "output on the screen")
        shell.type("\x1a")
        until(lambda: "Stopped" in shell.text and well(shell), "the shell is back")
        before = len(shell.shown)
        shell.type("fg\n")
        until(lambda: ALTERNATE in shell.shown[before:], "the app is back")
        shell.type("q")
        until(lambda: "left; the run continues" in shell.text and well(shell), "the app is left")
        assert alive(cockpits)
    with terminal(cockpits.lab, ["cockpit", "attach", cockpits.name], "xterm-256color") as again:
        again.resize(160, 40)
        until(lambda: "/100000 loss" in again.text, "output again")
        again.type("x")
        until(lambda: "stop this run?" in again.text, "the question")
        again.type("s")
        until(lambda: "enter: stop the run" in again.text, "it is chosen")
        again.type("\r")
        until(lambda: "ranks 0-3 killed by SIGTERM" in again.text, "how it ended")
        again.type("q")
        assert again.end() == 1
    assert not cockpits.left_over()
