"""``--slurm JOBID[.STEP]`` where it says which run, or whose ranks, are meant."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from cockpit.cli.parsing import Parser
from cockpit.core.text import one_line
from cockpit.engine.records.folder import RunFolder, list_runs
from cockpit.errors import CockpitError
from cockpit.plans.nodes import slurm
from cockpit.slurm import own_job


def add_run(parser: Parser, text: str = "a run's name, a part of it, or: last") -> None:
    """Which run is meant, for verbs about runs of ours: RUN, or ``--slurm``.

    :param text: what RUN is
    """
    parser.add_argument("run", metavar="RUN", nargs="?", help=text)
    parser.add_argument(
        "--slurm",
        metavar="JOBID[.STEP]",
        nargs="?",
        const="",
        help="instead of RUN: the run in this SLURM job (default JOBID: the job this shell is in)",
    )


def _job(word: str) -> str:
    """The job that is meant.

    :raises CockpitError: none is
    """
    job = word or own_job()
    if not job:
        hint = "give its number, as `squeue --me` prints it: --slurm JOBID"
        raise CockpitError("this shell is in no SLURM job", where="--slurm", hint=hint)
    return job


def run_folder(
    run: str | None, word: str | None, find: Callable[[str], RunFolder] = RunFolder.find
) -> RunFolder:
    """The run that is meant, by its name or by the job that it is in.

    :param find: by its name
    :param word: of ``--slurm``; None: it was not given
    :raises CockpitError: none is, or several are
    """
    if word is None:
        if run is None:
            raise CockpitError("no run given", hint="see: cockpit ps")
        return find(run)
    if run is not None:
        raise CockpitError(f"{run} and --slurm both name a run", hint="give one of the two")
    found = runs_in(_job(word))
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(folder.name for folder in found)
        hint = "give one of these names, or JOBID.STEP"
        raise CockpitError(f"several runs in this job: {names}", where=f"--slurm {word}", hint=hint)
    hint = "to find runs started elsewhere: cockpit ps --slurm " + word
    raise CockpitError("no known cockpit run in this job", where=f"--slurm {word}", hint=hint.rstrip())


def runs_in(word: str) -> list[RunFolder]:
    """The runs known here that are, or were, in a job, or in a step of it.

    :param word: ``12``, ``12.3``, ``12_4.3``
    :raises CockpitError: there are no such job and step
    """
    job, step = slurm.split(word)
    number = slurm.number(job)
    found = [folder for folder in list_runs() if folder.slurm_job == number]
    if not step:
        return found
    found = [folder for folder in found if folder.slurm_step == f"{number}.{step}"]
    if not found:
        _check_step(number, step, word)
    return found


def take_step(args: argparse.Namespace) -> None:
    """Leave the job alone in ``args.slurm``; ``args.step``: see :func:`cockpit.core.run.jobs.within`.

    :raises CockpitError: there are no such job and step
    """
    args.step = ""
    if args.slurm is None:
        return
    word = _job(args.slurm)
    args.slurm, step = slurm.split(word)
    number = slurm.number(args.slurm)
    if step:
        _check_step(number, step, word)
    args.step = f"{number}.{step}"


def _check_step(number: str, step: str, word: str) -> None:
    """See that a job has a step.

    :raises CockpitError: it has not; the error says which it has
    """
    steps = slurm.steps(number)
    if step not in steps:
        known = [f"{number}.{each} ({one_line(name, limit=40)})" for each, name in steps.items()]
        listed = ", ".join(known)
        what = f"has no running step {step}" + (f"; running: {listed}" if listed else "")
        raise CockpitError(what, where=f"--slurm {word}", hint=f"see: squeue -s -j {number}")
