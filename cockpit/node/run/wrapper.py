"""The parent of one training process: ``rankwrap K command…`` (K says where ``--local_rank=N`` belongs).

It redirects the rank's output to a file, lets the supervisor's children trace the rank, ties the rank's life
to its own, forwards signals, records its environment and exact exit status, and ends the same way. There is
one per rank, so it imports as little as possible: no typing, no json, and ctypes only in the child, whose
memory exec frees.
"""

from __future__ import annotations

import os
import resource
import signal
import time

from cockpit.base import record
from cockpit.base.noroom import NO_ROOM
from cockpit.node import cgroups, procfs
from cockpit.node.run.become import ENDINGS, become_rank
from cockpit.node.run.written import NEW, RECORD_SIZE, complain, tell, write, write_record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cockpit.node.run import rank_profiler

FORWARDED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
"""Signals passed on to the training process."""

_SCRIBE_S = 10
"""Seconds that recording the environment may take: a hanging disk delays a rank's end no longer."""

HOLD_S = 60.0
"""Longest wait of a failed rank's wrapper for the evidence of the others, whatever it is told."""
RELEASE = signal.SIGURG
"""What the supervisor sends to end that wait. Nobody minds it who does not wait for it."""
_LOOK_S = 0.1
"""Between two looks, during that wait, at whether there is still a supervisor."""


def main(argv: list[str]) -> int:
    """Run the command of one rank; return what this process must exit with.

    Exits 2 with a line on stderr when it is not called as a launcher would.
    """
    try:
        command = _command(argv)
        rank = _number(record.ENV_RANK)
        # What the program starts in its turn is no such program.
        if os.environ.pop(record.ENV_RANK, None) is None:
            rank = _number("RANK")
        if rank is None:
            raise ValueError("RANK is not set: this must be started by a launcher")
        attempt = _number("TORCHELASTIC_RESTART_COUNT") or 0
        max_restarts = _number("TORCHELASTIC_MAX_RESTARTS") or 0
        local_rank, world_size = _number("LOCAL_RANK"), _number("WORLD_SIZE")
        folder = os.environ.get(record.ENV_DIR)
        if not folder:
            raise ValueError("%s is not set: this must be started by a supervisor" % record.ENV_DIR)
        user_umask = int(os.environ.get(record.ENV_UMASK, "077"), 8)
    except ValueError as error:
        complain(str(error))
        return 2
    # A profiler above us may have set umask 0.
    os.umask(0o077)
    _keep_older(folder, rank)
    try:
        # A FIFO of this name, which nobody reads, is an error; do not wait for it.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        log = os.open(os.path.join(folder, record.rank_log(rank)), flags, 0o600)
        os.set_blocking(log, True)
    except OSError as error:
        complain("cannot write the log of rank %d: %s" % (rank, error))
        if error.errno not in NO_ROOM:
            return 126
        text = "rank %d, attempt %d: its output is lost: %s" % (rank, attempt + 1, error.strerror)
        tell(folder, record.TELL_NOTE, text)
        log = os.open(os.devnull, os.O_WRONLY)
    signals = {*FORWARDED, signal.SIGCHLD}
    # Blocked from here on: signals that arrive before the child exists wait for it.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*signals, RELEASE})
    # If inherited as "ignored", the kernel would discard our child's status.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    parent = os.getppid()
    wrapper = os.getpid()
    supervisor = _supervisor()
    _keep_room(folder, record.rank_exit(rank))
    kills_before = cgroups.oom_kills()
    started = _below_profiler(folder, rank, attempt, command, log, user_umask, mask)
    pid = started.pid if started else os.fork()
    if pid == 0:
        become_rank(command, rank, wrapper, log, user_umask, mask)
    os.close(log)
    ticks = procfs.ticks(pid)
    facts: dict[str, int | float | str | None] = {
        "t": time.time(),
        "rank": rank,
        "attempt": attempt,
        "local_rank": local_rank,
        "world_size": world_size,
        "pid": pid,
        "ticks": ticks,
        "wrapper": wrapper,
        "wrapper_ticks": procfs.ticks(wrapper),
        "parent": parent,
        "parent_ticks": procfs.ticks(parent),
        "max_restarts": max_restarts,
    }
    write_record(folder, record.rank_start(rank), facts)
    scribe = _record_environ(folder, rank, pid, ticks)
    status, usage, told_to_end = _wait(started or Child(pid), parent, signals)
    _see_off(scribe)
    facts = {
        "t": time.time(),
        "rank": rank,
        "attempt": attempt,
        "pid": pid,
        "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
        "maxrss_kb": usage.ru_maxrss,
        "utime_s": usage.ru_utime,
        "stime_s": usage.ru_stime,
        "oom_kills": _oom_kills(kills_before) if status else None,
    }
    write_record(folder, record.rank_exit(rank), facts)
    if status and not told_to_end:
        _hold(supervisor)
    return _end_like(status)


def _command(argv: list[str]) -> list[str]:
    local_rank = []
    # DeepSpeed's launch.py puts it before everything else.
    if argv and argv[0].startswith(("--local_rank=", "--local-rank=")):
        local_rank, argv = argv[:1], argv[1:]
    if len(argv) < 2 or not argv[0].isdigit():
        raise ValueError("expected a number and a command, got %r" % " ".join(argv))
    place = 1 + int(argv[0])
    return argv[1:place] + local_rank + argv[place:]


def _number(name: str) -> int | None:
    value = os.environ.get(name)
    if value is None:
        return None
    if not value.isdigit():
        raise ValueError("%s is not a number: %r" % (name, value))
    return int(value)


def _keep_older(folder: str, rank: int) -> None:
    """Move the records of an earlier attempt (torchrun restarts ranks) out of the way."""
    for name in (record.rank_start(rank), record.rank_exit(rank)):
        path = os.path.join(folder, name)
        try:
            attempt = _start_of(path).partition(b'"attempt": ')[2].partition(b",")[0]
            if attempt.isdigit():
                os.rename(path, "%s.%d.json" % (path[: -len(".json")], int(attempt)))
            else:
                os.unlink(path)  # whatever it is, it is not ours
        except FileNotFoundError:
            continue
        except OSError as error:
            complain("cannot save %s: %s" % (name, error))


def _start_of(path: str) -> bytes:
    # The training program of an earlier attempt may have put anything here.
    number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return os.read(number, RECORD_SIZE)
    finally:
        os.close(number)


def _keep_room(folder: str, name: str) -> None:
    """Reserve disk space for a record now: the disk may be full when it is written."""
    try:
        number = os.open(os.path.join(folder, name + ".tmp"), NEW, 0o600)
    except OSError as error:
        complain("cannot make %s: %s" % (name, error))
        return
    try:
        os.write(number, b" " * RECORD_SIZE)
    except OSError:
        pass  # the final write reports the error
    finally:
        os.close(number)


def _record_environ(folder: str, rank: int, pid: int, ticks: int) -> int:
    """Record what environment the rank was started with, which is ours too; its process may be gone at once.

    The rule for secrets and json take memory and time: a child spends them, in parallel to the rank.

    :return: the child, for :func:`_see_off`; 0: there is none
    """
    try:
        scribe = os.fork()
    except OSError as error:
        complain("cannot record the environment of rank %d: %s" % (rank, error))
        return 0
    if scribe:
        return scribe
    try:
        # Everything else stays blocked, so that this finishes even if the launcher ends everything below it.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
        signal.alarm(_SCRIBE_S)
        import json

        from cockpit.node.run import redact

        found = {"pid": pid, "ticks": ticks, **redact.told(procfs.environment(os.getpid()))}
        write(folder, record.rank_environ(rank), json.dumps(found).encode("ascii"))
    except Exception as error:
        complain("cannot record the environment of rank %d: %s" % (rank, error))
    finally:
        os._exit(0)


def _see_off(scribe: int) -> None:
    """Wait until the environment is recorded, before the end of its rank is."""
    try:
        if scribe:
            os.waitpid(scribe, 0)
    except ChildProcessError:
        pass  # it ended long ago, and was waited for with the rank


class Child:
    """A training process that is our child."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def ended(self) -> tuple[int, resource.struct_rusage] | None:
        """Wait status and usage; None: it runs."""
        while True:
            done, status, usage = os.wait4(-1, os.WNOHANG)
            if done == self.pid:
                return status, usage
            if not done:
                return None
            # else the environment is recorded

    def send(self, number: int) -> None:
        """Pass a signal on."""
        os.kill(self.pid, number)  # not waited for yet, so the pid cannot be somebody else's

    def signalled(self, signals: set[signal.Signals]) -> signal.struct_siginfo | None:
        """The next of these signals."""
        return signal.sigwaitinfo(signals)


def _below_profiler(
    folder: str,
    rank: int,
    attempt: int,
    command: list[str],
    log: int,
    user_umask: int,
    mask: set[int | signal.Signals],
) -> rank_profiler.Rank | None:
    """The rank, started below its profiler; None: it is to have none, or is started without."""
    if str(rank) not in os.environ.pop(record.ENV_AROUND, "").split(","):
        return None
    from cockpit.node.run import rank_profiler

    def say(text: str) -> None:
        if not tell(folder, record.TELL_NOTE, text):
            complain(text)

    return rank_profiler.start(folder, rank, attempt, command, log, user_umask, mask, say)


def _wait(
    rank: Child | rank_profiler.Rank, parent: int, signals: set[signal.Signals]
) -> tuple[int, resource.struct_rusage, bool]:
    """Pass signals on until the rank has ended; the last word: whether one of them asked it to."""
    told_to_end = False
    # DeepSpeed's launch.py signals the whole tree below it: the rank got that one already.
    tree_killer = parent if "CROSS_RANK" in os.environ else -1
    while True:
        end = rank.ended()
        if end is not None:
            return (*end, told_to_end)
        info = rank.signalled(signals)
        if info is None:
            continue
        told_to_end = told_to_end or info.si_signo in ENDINGS
        if info.si_signo != signal.SIGCHLD and info.si_pid != tree_killer:
            rank.send(info.si_signo)


def _supervisor() -> tuple[int, int]:
    """The supervisor's pid and start time; no start time: it is not there."""
    pid = os.environ.get(record.ENV_SUPERVISOR, "")
    return (int(pid), procfs.ticks(int(pid))) if pid.isdigit() else (0, 0)


def _hold(supervisor: tuple[int, int]) -> None:
    """Wait until the supervisor has the evidence: the launcher ends the other ranks once it sees our end.

    The supervisor ends the wait with a signal. So does whoever asks us to end, its death, and time.
    """
    try:
        left = min(HOLD_S, float(os.environ.get(record.ENV_HOLD, "0")))
    except ValueError:
        return
    if not left > 0 or not supervisor[1]:
        return
    end = time.monotonic() + left
    procfs.send(*supervisor, signal.SIGCHLD)  # it need not wait for its next look at the folder
    while left > 0 and procfs.alive(*supervisor):
        if signal.sigtimedwait({*ENDINGS, RELEASE}, min(left, _LOOK_S)) is not None:
            return
        left = end - time.monotonic()


def _oom_kills(before: tuple[str, int]) -> int | None:
    """How many processes of the rank's cgroup, which is ours too, the kernel has killed for lack of memory.

    :param before: what :func:`cgroups.oom_kills` said before the rank was started
    :return: None: not known, or we were moved to another cgroup
    """
    after = cgroups.oom_kills()
    return after[1] - before[1] if after[0] and after[0] == before[0] and after[1] >= before[1] else None


def _end_like(status: int) -> int:
    """Die of the same signal, without a core of our own, or give the same exit code."""
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status)
    number = os.WTERMSIG(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    return 128 + number
