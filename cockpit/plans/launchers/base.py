"""What a launcher is, and what its command lines have in common with the others'.

Each comes in two forms: as a person would type it, and as `cockpit run` starts it, where the launcher starts
``rankwrap K COMMAND`` for each rank. K is where ``--local_rank=N``, which DeepSpeed puts before all other
arguments, belongs: ``3`` for ``python -u train.py``. The program gets the same arguments either way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cockpit.base.record import RANKWRAP
from cockpit.plans.command_words import DIR
from cockpit.plans.launch import PlannedNode


@dataclass(frozen=True)
class LauncherCommand:
    """One node's command line in both forms, and what comes with it.

    :param argv: as typed by a person
    :param run_argv: as started by `cockpit run`
    :param env: variables it needs besides the job's
    :param files: files in the run folder by name
    """

    argv: tuple[str, ...]
    run_argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Launcher:
    """A launcher.

    :param command: makes the command line of a node
    :param package: the Python package that it needs, a field of :class:`cockpit.plans.launch.NodeFacts`
    :param ours: options that cockpit decides itself, or that would break its bookkeeping of ranks
    :param binds: whether it can bind ranks to cores
    """

    command: Callable[[PlannedNode], LauncherCommand]
    package: str = ""
    ours: str = ""
    binds: bool = False


def rank_command(place: PlannedNode) -> tuple[int, tuple[str, ...]]:
    """K and the command of one rank."""
    program = place.job.program
    if program[0] == "-m":
        return 4, (place.python, "-u", *program)
    if program[0].endswith(".py"):
        return 3, (place.python, "-u", *program)
    return 1, program


def wrapped(place: PlannedNode) -> tuple[str, ...]:
    """The command of one rank behind its wrapper."""
    k, words = rank_command(place)
    return (f"{DIR}/{RANKWRAP}", str(k), *words)


def ambiguous(program: tuple[str, ...], options: str) -> bool:
    """Whether argparse (up to Python 3.11) would mistake an argument of the program for an ambiguous option.

    It looks at all words before it knows which of them are options, but not beyond a ``--``. It also drops
    a ``--`` that follows the program.
    """
    args = program[2:] if program[0] == "-m" else program[1:]
    known = set(options.split())
    # torchrun accepts both spellings of each of its names.
    known |= {option.replace("-", "_") for option in known}
    names = [word[2:].partition("=")[0] for word in args if word.startswith("--") and word != "--"]
    return args[:1] == ("--",) or any(
        name not in known and sum(option.startswith(name) for option in known) > 1 for name in names
    )


def typed(program: tuple[str, ...], guard: list[str], no_python: str) -> list[str]:
    """The program as a launcher's last words.

    :param guard: what keeps the launcher from reading the program's options
    :param no_python: its option for what is no Python script
    """
    if program[0] == "-m":
        return ["--module", *guard, *program[1:]]
    return [*guard, *program] if program[0].endswith(".py") else [no_python, *guard, *program]


def beside(place: PlannedNode, tool: str) -> str:
    """A launcher of the ranks' python, where no node was asked for it."""
    if os.path.basename(place.job.tool) == tool:
        return place.job.tool
    folder = os.path.dirname(place.python)
    return f"{folder}/{tool}" if folder.startswith("/") else tool


def devices(place: PlannedNode) -> tuple[dict[str, str], tuple[str, ...]]:
    """DeepSpeed itself shows its ranks their slots' devices; the others take the first devices."""
    slots = place.host.slots
    if slots == tuple(range(len(slots))):
        return {}, ()
    text = ",".join(map(str, slots))
    return {"CUDA_VISIBLE_DEVICES": text}, (f"{place.host.name}: CUDA_VISIBLE_DEVICES={text}, its slots",)
