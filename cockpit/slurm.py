"""What SLURM is asked, by whoever wants to know: one call at a time, and at most one in ten seconds.

All users of a cluster share its controller. What it has just said is not asked again.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from cockpit.errors import CockpitError, Exit

PERIOD_S = 10.0
"""Least seconds between two calls, and how long an answer serves whoever asks the same."""

ANSWER_S = 20.0
"""Seconds for the controller to answer: a busy one is slow."""

_OF_STEPS = ("SLURM_", "SRUN_", "SBATCH_", "SALLOC_", "SQUEUE_", "SCONTROL_", "COCKPIT_")
"""Variables of a step, a batch script or a person's habits, which would change what a call does, and tags
of another run."""

PING = "try: scontrol ping"
"""What to type when SLURM does not answer as it should."""

_BEFORE = re.compile(r"(?:\w{1,40}: (?:error|fatal): |slurm_\w{1,40} error: )+")
"""What SLURM's programs put before what they say."""

_KEPT = frozenset({"SLURM_CONF", "SLURM_CLUSTERS"})
"""Where the controller is."""


@dataclass(frozen=True)
class Answer:
    """What a call came to."""

    status: int
    out: str
    said: str
    """What it wrote to stderr."""


def environment() -> dict[str, str]:
    """This process's environment, without what would add to or change the options of SLURM's commands."""
    return {
        name: value for name, value in os.environ.items() if name in _KEPT or not name.startswith(_OF_STEPS)
    }


def is_job(text: str) -> bool:
    """Whether this names a job, or one element of an array: ``123``, ``123_4``."""
    return re.fullmatch(r"[0-9]{1,10}(_[0-9]{1,10})?", text) is not None


def own_job() -> str:
    """The job that this shell is in, like ``123``; empty: none.

    For the element of an array that has the array's own number, by which all of them are meant: ``123_4``.
    """
    job, array, index = (
        os.environ.get(f"SLURM_{name}_ID", "") for name in ("JOB", "ARRAY_JOB", "ARRAY_TASK")
    )
    return f"{job}_{index}" if index and job == array else job


def ask(words: Sequence[str], lines: Sequence[str] = (), where: str = "", *, fresh: bool = False) -> Answer:
    """Run ``squeue`` or ``scontrol``, when its turn has come: up to :data:`PERIOD_S` after another call.

    :param lines: what the program reads on its stdin: several questions in one call
    :param where: what an error is about
    :param fresh: whether it is asked again, though it was just before
    :raises CockpitError: it is not installed, or does not answer
    """
    if shutil.which(words[0]) is None:
        hint = "run this on a login node of the cluster, or name the nodes with a hostfile"
        raise CockpitError(f"no {words[0]} on PATH: SLURM is not here", where=where, hint=hint)
    try:
        return _calls.answer(tuple(words), tuple(lines), fresh=fresh)
    except CockpitError as error:
        error.where = where
        raise


def show_job(job: str, *, fresh: bool = False) -> Answer:
    """``scontrol --oneliner --details show job``; its steps and the configuration come in the same call.

    :param job: its number, like ``123``, or that of an element of an array, like ``123_4``
    :param fresh: whether it is asked again, though it was just before
    :raises CockpitError: see :func:`ask`
    """
    return _of_job(job, "JobId=", fresh=fresh)


def show_steps(job: str) -> Answer:
    """``scontrol --oneliner --details show step``, for all steps of a job; see :func:`show_job`.

    :param job: its number
    :raises CockpitError: see :func:`ask`
    """
    return _of_job(job, "StepId=")


def _of_job(job: str, begin: str, *, fresh: bool = False) -> Answer:
    # scontrol names steps by the job's number only.
    steps = [f"show step {job}"] if job.isdigit() else []
    words = ["scontrol", "--oneliner", "--details"]
    found = ask(words, [f"show job {job}", *steps, "show config"], f"job {job}", fresh=fresh)
    _calls.config = found.out
    # It says its prompt first, and what it was asked.
    lines = (line.removeprefix("scontrol: ") for line in found.out.splitlines())
    return Answer(found.status, "\n".join(line for line in lines if line.startswith(begin)), found.said)


def element(job: str) -> tuple[str, str] | None:
    """Array and index of a job that is an element of one; None: it is not, or is not known any more.

    :param job: its own number, which for one of the elements is that of the array, too
    :raises CockpitError: SLURM does not answer
    """
    line = re.compile(
        rf"^(?:scontrol: )?JobId={re.escape(job)} "
        r"(?:ArrayJobId=([0-9]{1,10}) ArrayTaskId=([0-9]{1,10}) )?",
        re.MULTILINE,
    )
    found = line.search(_calls.config)
    if found is None:
        answer = show_job(job)
        if answer.status and "Invalid job id" not in answer.said:
            raise _failed("scontrol", answer, f"job {job}")
        found = line.search(answer.out)
    return (found[1], found[2]) if found and found[1] else None


def running(job: str) -> str:
    """What ``squeue`` calls the state of a job that is not over, in capitals; empty: it is over.

    :param job: its number, or that of an element of an array, like ``123_4``
    :raises CockpitError: SLURM does not answer
    """
    where = f"job {job}"
    found = ask(["squeue", "--noheader", "--format=%T", f"--jobs={job}"], where=where, fresh=True)
    if found.status and "Invalid job id" not in found.said:
        raise _failed("squeue", found, where)
    return found.out.split()[0][:40] if found.out.split() else ""


def time_left(job: str) -> float | None:
    """Seconds until a job's time limit; None: it has none, it is over, or SLURM says nothing of the kind.

    :param job: its number, or that of an element of an array, like ``123_4``
    :raises CockpitError: SLURM does not answer
    """
    words = ["squeue", "--noheader", "--format=%L", f"--jobs={job}"]
    said = ask(words, where=f"job {job}", fresh=True).out.split()
    found = re.fullmatch(r"(?:(?:(\d{1,6})-)?(\d{1,3}):)?(\d{1,3}):(\d\d)", said[0]) if said else None
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60.0 + seconds


def setting(name: str, usual: int, *, now: bool = False) -> int:
    """A number in the cluster's configuration, or the usual one if SLURM does not say it.

    :param now: whether what is not known yet is not asked for
    """
    if not _calls.config and not now:
        try:
            _calls.config = ask(["scontrol", "show", "config"]).out
        except CockpitError:
            return usual
    found = re.search(rf"^{name} *= ([0-9]{{1,9}})\b", _calls.config, re.MULTILINE)
    return int(found[1]) if found else usual


def forget() -> None:
    """As if nothing had been asked yet."""
    global _calls
    _calls = _Calls()


class _Calls:
    """The calls of this process."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._last = -PERIOD_S
        """When the last call ended (monotonic seconds)."""
        self.config = ""
        """What ``scontrol show config`` has said."""
        self._answers: dict[tuple[tuple[str, ...], tuple[str, ...]], tuple[float, Answer]] = {}

    def answer(self, words: tuple[str, ...], lines: tuple[str, ...], *, fresh: bool) -> Answer:
        with self._turn:
            asked, known = self._answers.get((words, lines), (-PERIOD_S, None))
            if known is not None and not fresh and time.monotonic() < asked + PERIOD_S:
                return known
            time.sleep(max(0.0, self._last + PERIOD_S - time.monotonic()))
            try:
                found = _call(words, lines)
            finally:
                self._last = time.monotonic()
            self._answers[words, lines] = self._last, found
            return found


_calls = _Calls()


def _call(words: tuple[str, ...], lines: tuple[str, ...]) -> Answer:
    text = "".join(f"{line}\n" for line in lines).encode()
    try:
        done = subprocess.run(
            words, input=text, capture_output=True, timeout=ANSWER_S, check=False, env=environment()
        )
    except subprocess.TimeoutExpired:
        what = f"SLURM's controller did not answer within {ANSWER_S:g} s"
        raise CockpitError(what, hint=PING, code=Exit.NODE_UNFIT) from None
    except OSError as error:
        raise CockpitError(f"cannot start {words[0]}: {error.strerror}") from None
    out, said = (data.decode(errors="replace") for data in (done.stdout, done.stderr))
    return Answer(done.returncode, out, said)


def _failed(program: str, answer: Answer, where: str = "") -> CockpitError:
    """The error of a program that has failed: what it said last, without the names that it puts before it."""
    said = [line for line in map(str.strip, answer.said.splitlines()) if line]
    why = _BEFORE.sub("", said[-1])[:300] if said else f"status {answer.status}"
    return CockpitError(f"{program} failed: {why}", where=where, hint=PING)


@dataclass(frozen=True)
class QueuedJob:
    """A line of ``squeue``; nothing of it is harmless for a terminal.

    :param job: its number, like ``123``, or that of elements of an array, like ``123_4``, ``123_[5-8]``
    :param state: in capitals; ``ran``: how long it has, like ``1-02:03:04``
    :param nodes: those it has, as SLURM writes them; empty: none yet
    :param why: why it waits; ``starts``: when it will start, as SLURM guesses; ``N/A``: it does not
    """

    job: str
    state: str
    ran: str
    nodes: str
    count: str
    why: str
    starts: str
    name: str

    @property
    def running(self) -> bool:
        """Whether it has nodes on which something may run."""
        return self.state == "RUNNING" and is_job(self.job)


JOBS = 200
"""Lines of ``squeue`` that are read."""


def jobs_of(user: str) -> list[QueuedJob]:
    """The jobs of a user, those that run first.

    :raises CockpitError: SLURM is not here, or does not answer
    """
    answer = ask(["squeue", "--noheader", f"--user={user}", "--format=%i|%T|%M|%N|%D|%r|%S|%j"])
    if answer.status:
        raise _failed("squeue", answer)
    parts = (line.split("|", 7) for line in answer.out.splitlines()[:JOBS])
    found = [QueuedJob(*map(str.strip, each)) for each in parts if len(each) == 8]
    return sorted(found, key=lambda each: not each.running)
