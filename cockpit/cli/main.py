"""The program ``cockpit``: finds the verb, imports only its module, turns errors into lines."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from cockpit import __version__
from cockpit.base import openfiles
from cockpit.cli import heap
from cockpit.cli.output import complain, out, out_lines, say
from cockpit.errors import CockpitError, Exit, near

VERBS = {
    "run": "launch on every node of a hostfile and watch",
    "plan": "print the exact shell script of every node; run nothing",
    "doctor": "check nodes before a launch: differences and problems",
    "ps": "list runs and their states",
    "attach": "come back to a run, or watch any job",
    "explain": "who failed first in any log, why, and what to do",
    "logs": "print a run's logs",
    "metrics": "numbers per step: time, work, loss, slow ranks",
    "stacks": "Python stacks of all ranks, merged, so that the odd rank stands out",
    "profile": "what ranks do in the same few steps, summed up",
    "replay": "a run as it was at any moment: play it, seek",
    "report": "what a run was, in one page; to send",
    "compare": "what differs between two runs, or since it last worked",
    "stop": "stop a run on all its nodes",
    "collect": "fetch and verify a run's profiler reports",
    "clean": "remove old runs, here and on their nodes",
    "demo": "try it: a small cluster on this machine, real training",
    "config": "print the settings in effect; create a settings file",
    "where": "print every path cockpit uses here",
    "completion": "print a completion script for bash, zsh or fish",
}
"""Every verb with its one-line help; the module ``cockpit.cli.<verb>`` implements it."""

_WITH_SETTINGS = frozenset(VERBS) - {"ps", "stop", "clean", "where", "completion", "explain"}
"""Verbs that settings are for: they say at their start what those of the project change."""

_STAYING = frozenset({"run", "attach", "demo"})
"""Verbs whose process may last for weeks."""


def usage() -> str:
    """What ``cockpit --help`` prints."""
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:<{width}}  {text}" for name, text in VERBS.items())
    return (
        "usage: cockpit VERB …\n\n"
        "A terminal cockpit for multi-node training runs.\n\n"
        f"{verbs}\n\n"
        "  cockpit               on a terminal: the runs known here, and what to do with them\n"
        "  cockpit help VERB     its options and examples; cockpit VERB --help-all: all options\n"
        "  cockpit help TOPIC    a page of the documentation, or the sections that contain these words\n"
        "  cockpit --version\n\n"
        "Start: cockpit run HOSTFILE -- train.py ARGS; or try it here: cockpit demo\n"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb and return its exit code (docs/exit-codes.md).

    :param argv: the words after the program's name; None: those it was started with
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        _open_streams()
        heap.start()
        openfiles.raise_limit()
        if argv is None:
            _guard()
        if not words:
            code = _home()
        else:
            with _asking(words):
                code = _verb(words)
        sys.stdout.flush()
        return code
    except SystemExit:
        raise
    except KeyboardInterrupt:
        return Exit.LEFT
    except BrokenPipeError:
        _settle_streams()  # the reader of our output went away (`| head`)
        return Exit.OK
    except BaseException as error:
        return _failed(error)


def _verb(words: list[str]) -> int:
    if words[0] in ("-h", "--help") or words in (["help"], ["help", "-h"], ["help", "--help"]):
        out_lines(usage().rstrip("\n").split("\n"))
        return Exit.OK
    if words[0] == "help":
        return _help(" ".join(words[1:]))
    if words[0] in ("-V", "--version"):
        out(f"cockpit {__version__}")
        return Exit.OK
    if words[0] not in VERBS:
        raise _no_verb(words[0])
    verb = importlib.import_module(f"cockpit.cli.verbs.{words[0]}")
    if words[0] in _WITH_SETTINGS and not {"-h", "--help"} & set(_options(words)):
        from cockpit import config

        with suppress(CockpitError):  # said by what needs them
            if said := config.of_project():
                say(said)
    if words[0] in _STAYING:
        heap.give_back()
    return int(verb.main(words[1:]))


def _no_verb(word: str) -> CockpitError:
    from cockpit.cli import topics

    option = word.startswith("-")
    sure = word.startswith("s") and set("stop").issuperset(word)
    # What ends a run is not to be tried on a guess.
    verbs = [verb for verb in VERBS if verb != "stop" or sure]
    meant = near(word, ("--help", "--version") if option else [*verbs, "help"])
    if not meant and word in (topics.TOPICS, *topics.names()):
        meant = f"help {word}"
    hint = f"did you mean: cockpit {meant}" if meant else "see: cockpit --help"
    return CockpitError(f"no {'option' if option else 'verb'} {word!r}", hint=hint)


def _home() -> int:
    """The home screen; without a terminal for it, the help."""
    from cockpit.cli import terminal

    if not terminal.wanted(plain=False, headless=False, json=False):
        out_lines(usage().rstrip("\n").split("\n"))
        return Exit.USAGE
    from cockpit.cli import home

    def verb(words: list[str]) -> int:
        with _asking(words):
            return _verb(words)

    heap.give_back()
    return home.main(verb)


def _help(about: str) -> int:
    """Show the help of a verb, or a page of the documentation; a verb wins over a page of its name."""
    from cockpit.cli import topics

    if about in VERBS:
        with suppress(SystemExit):
            importlib.import_module(f"cockpit.cli.verbs.{about}").main(["--help"])
        if about in topics.names():
            out_lines(["", f"More: cockpit help {about}.md"])
        return Exit.OK
    topics.show(about, VERBS)
    return Exit.OK


def _options(words: Sequence[str]) -> Sequence[str]:
    """The words for cockpit, not those for a training program."""
    return words[: words.index("--")] if "--" in words else words


@contextmanager
def _asking(words: Sequence[str]) -> Iterator[None]:
    """Logins that want a password ask on the terminal, unless nobody is to be asked."""
    if not words or words[0] not in VERBS:
        yield
        return
    from cockpit.cli.terminal_prompts import Terminal  # --help saves its time
    from cockpit.transport.login_prompts import DESK, Nobody

    before, DESK.prompter = DESK.prompter, Terminal()
    if "--headless" in _options(words):
        DESK.prompter = Nobody("--headless never asks")
    try:
        yield
    finally:
        DESK.prompter = before


def _guard() -> None:
    from cockpit.cli import mishaps

    if not mishaps.wanted():
        mishaps.keep_tracebacks_off_the_terminal()


def _failed(error: BaseException) -> int:
    """The last door: report whatever ended a verb in one line; return the exit code."""
    from cockpit.cli import mishaps

    foreseen = error if isinstance(error, CockpitError) else mishaps.local_fault(error)
    if foreseen is None and mishaps.wanted():
        raise error
    try:
        if foreseen is None:
            mishaps.tell(error)
        else:
            complain(foreseen)
    except OSError:
        pass  # stderr takes nothing any more; the exit code still says that something went wrong
    _settle_streams()
    return Exit.INTERNAL if foreseen is None else foreseen.code


def _settle_streams() -> None:
    """Redirect dead streams: at exit Python would complain about what is left in them."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _open_streams() -> None:
    """Give a process that was started with closed streams (``2>&-``) streams that lead nowhere.

    Otherwise the next socket or log it opens would get their numbers, and output would land there.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
