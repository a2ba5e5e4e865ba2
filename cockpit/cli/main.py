"""The program ``cockpit``: finds the verb, imports its module alone, turns errors into lines."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from cockpit import __version__
from cockpit.errors import CockpitError, Exit

VERBS = {
    "run": "launch on every node of a hostfile and watch",
    "plan": "print the exact shell of every node, run nothing",
    "ps": "list runs and how they are",
    "attach": "watch a run that was left or lost",
    "logs": "print a run's logs, all or some",
    "stacks": "Python stacks of all ranks, merged, so that the odd one stands out",
    "stop": "stop a run on all its nodes",
    "collect": "fetch and verify a run's profiler reports",
    "demo": "try it: a small cluster on this machine, real training",
    "where": "print every path cockpit uses here",
}
"""Every verb with its one-line help; the module ``cockpit.cli.<verb>`` implements it."""


def usage() -> str:
    """What ``cockpit --help`` prints."""
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:<{width}}  {text}" for name, text in VERBS.items())
    return (
        "usage: cockpit VERB …\n\n"
        "A terminal cockpit for multi-node training runs.\n\n"
        f"{verbs}\n\n"
        "  cockpit VERB --help   options and examples of a verb\n"
        "  cockpit --version\n\n"
        "Start: cockpit run HOSTFILE -- train.py ARGS; or try it here: cockpit demo\n"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb and return its exit code (docs/exit-codes.md)."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words:
        words = ["ps"]
    if words[0] in ("-h", "--help", "help"):
        print(usage(), end="")
        return Exit.OK
    if words[0] in ("-V", "--version"):
        print(f"cockpit {__version__}")
        return Exit.OK
    if words[0] not in VERBS:
        return _unknown(words[0])
    try:
        _open_streams()
        module = importlib.import_module(f"cockpit.cli.{words[0]}")
        return int(module.main(words[1:]))
    except CockpitError as error:
        from cockpit.cli.narration import say

        for line in str(error).splitlines():
            say(line)
        return error.code
    except KeyboardInterrupt:
        return Exit.LEFT
    except BrokenPipeError:
        # The reader of our output went away (`| head`): point stdout elsewhere, or Python complains at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK


def _open_streams() -> None:
    """Give a process that was started with closed streams (``2>&-``) ones that lead nowhere.

    What it opens next, a socket or a log, would else get their numbers, and what is printed would land there.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _unknown(word: str) -> int:
    import difflib

    near = difflib.get_close_matches(word, VERBS, 1)
    hint = f"did you mean: cockpit {near[0]}" if near else "see: cockpit --help"
    print(f"cockpit: no verb {word!r}; {hint}", file=sys.stderr)
    return Exit.USAGE
