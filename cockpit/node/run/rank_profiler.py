"""A profiler around one rank: its wrapper starts it, and only that of a profiled rank imports this.

nsys runs what it profiles in a session of its own, inherits its orphans, and reports an end by a signal as
an exit code. So between nsys and the rank there is one more process, *inner*, that is the rank's parent::

    wrapper - nsys - nsys-launcher - inner - the training process

Inner starts the training process when the wrapper says so, tells how it ended, and kills it if the wrapper
dies. It opens the wrapper's pipes by ``/proc``, since nsys passes no open files on. The rank lives on without
nsys; nsys writes its report after the end of the rank, when wrapper and launcher may have ended, too.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from cockpit.base import record
from cockpit.node import procfs
from cockpit.node.run.become import ENDINGS, become_rank
from cockpit.node.run.written import write, write_record

START_S = 60.0
"""Seconds that a profiler may take to start the rank; then the rank is started without it."""
TRIES = 4
"""On a busy node nsys 2022.4 fails at times before it has started anything, several of them at once often."""
PAUSE_S = 0.5
"""Before the second try, at most, and longer before each later one: by chance, so that ranks part."""
_LOOK_S = 1.0
"""Seconds between two checks that inner is alive: everything else about it is noticed at once."""
_FIRST_LOOK_MS = 50
_GO = b"g"
_NAMES_RANKS = ("%q{RANK}", "%q{SLURM_PROCID}", "%q{PMI_RANK}", "%q{OMPI_COMM_WORLD_RANK}", "%p")
"""What in the name of a report tells ranks apart."""


class Rank:
    """A training process below a profiler, as its wrapper sees it.

    :param profiler: pid of the profiler
    :param pid: of the training process
    :param told: where inner says how it ended
    :param holds: closed: inner ends
    :param note: told the wait status of the profiler, once it has ended
    """

    def __init__(
        self, profiler: int, pid: int, told: int, holds: int, note: Callable[[int, Optional[int]], None]
    ) -> None:
        self.pid = pid
        self._ticks = procfs.ticks(pid)
        self.profiler = profiler
        self._told = told
        self._holds = holds
        self._note = note
        os.set_blocking(told, False)

    def ended(self) -> Optional[Tuple[int, Any]]:
        """Wait status and usage of the training process; None: it runs."""
        self._reap()
        try:
            said = os.read(self._told, 256).split()
        except BlockingIOError:
            return None
        os.close(self._holds)
        usage = [0.0] * 16
        if len(said) != 4:
            # Inner was killed, and the training process with it.
            return signal.SIGKILL, resource.struct_rusage(usage)
        usage[0], usage[1], usage[2] = float(said[1]), float(said[2]), int(said[3])
        return int(said[0]), resource.struct_rusage(usage)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid == self.profiler:
                self._note(pid, status)

    def close(self) -> None:
        """Let go of the pipes, in a child of the wrapper: inner is to notice if the wrapper dies."""
        os.close(self._told)
        os.close(self._holds)

    def send(self, number: int) -> None:
        """Pass a signal on."""
        procfs.send(self.pid, self._ticks, number)

    def signalled(self, signals: Set[signal.Signals]) -> Optional[signal.struct_siginfo]:
        """The next of these signals; None: time for a look."""
        return signal.sigtimedwait(signals, _LOOK_S)


def start(
    folder: str,
    rank: int,
    attempt: int,
    command: List[str],
    log: int,
    user_umask: int,
    mask: Set[int],
    tell: Callable[[str], None],
) -> Optional[Rank]:
    """Start a rank below its profiler; None: it could not be, which is said, and no rank has been started.

    :param log: where the output of the rank goes
    :param mask: signals that are blocked in the rank
    :param tell: says something to whoever watches
    """
    why = ""
    deadline = time.monotonic() + START_S
    for tried in range(TRIES):
        pause_s = PAUSE_S * tried * ord(os.urandom(1)) / 255
        if tried and (time.monotonic() >= deadline or _wanted_to_end(pause_s)):
            break
        try:
            attempted = _Try(folder, rank, attempt)
            found = attempted.begin(command, log, user_umask, mask, deadline)
        except (OSError, ValueError, KeyError, TypeError) as error:
            why = str(error)
            break
        if isinstance(found, Rank):
            attempted.record_steps(found, tell)
            return found
        why = found
    os.environ.pop(record.ENV_WINDOW, None)
    tell("rank %d runs without its profiler: %s" % (rank, why))
    return None


class _Try:
    """One try to start a rank below a profiler."""

    def __init__(self, folder: str, rank: int, attempt: int) -> None:
        self._folder = folder
        self._rank = rank
        self._attempt = attempt
        with open(os.path.join(folder, record.AROUND), "rb") as file:
            asked = json.loads(file.read())
        self._report = report_name(asked["report"], rank, attempt)
        sampler = asked["sampler"] if rank in asked["samplers"] else []
        output = ["-o", os.path.join(folder, record.REPORTS, self._report)]
        self._start: List[str] = []
        self._stop: List[str] = []
        self._steps = asked.get("steps", [0, 0])
        self._helper = 0
        self._session = ""
        if asked.get("ready"):
            self._session = "cockpit-" + _text("/proc/sys/kernel/random/uuid")
            self._words = [*asked["before"], "--session-new=" + self._session]
        elif "steps" not in asked:
            self._words = [*asked["before"], *sampler, *output]
        elif has_gpu():
            self._words = [*asked["before"], *asked["range"], *sampler, *output]
            os.environ[record.ENV_WINDOW] = "%d %d %d" % (*self._steps, bool(asked["ranges"]))
        else:
            session = "cockpit-" + _text("/proc/sys/kernel/random/uuid")
            self._begun = os.path.join(folder, record.rank_window(rank))
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._begun)  # of an earlier attempt
            os.environ[record.ENV_WINDOW] = "%d %d 0 %s" % (*self._steps, self._begun)
            self._words = [*asked["launch"], "--session-new=" + session]
            self._start = [*asked["start"], "--session=" + session, *sampler, *output]
            self._stop = [*asked["stop"], "--session=" + session]

    def begin(self, command: List[str], log: int, user_umask: int, mask: Set[int], deadline: float) -> Any:
        """The rank, or why there is none.

        :param deadline: for the profiler to start it, on the monotonic clock
        """
        # Of the first pipe inner writes the end that others must not hold, of the second it reads.
        told, tells = os.pipe()
        held, holds = os.pipe()
        ignored = [number for number in _ALL if signal.getsignal(number) is signal.SIG_IGN]
        numbers = (os.getpid(), tells, held, log, user_umask)
        lists = (",".join(str(int(number)) for number in numbers) for numbers in (mask, ignored))
        pyz = os.path.join(self._folder, record.NODE_PYZ)
        inner = [sys.executable, "-I", "-S", pyz, record.INNER, *map(str, numbers), *lists, str(self._rank)]
        pid = os.fork()
        if pid == 0:
            _become([*self._words, *inner, *command], mask)
        self._note(pid, None)
        try:
            said = self._first_word(pid, told, deadline)
            if said.isdigit():
                if self._session:
                    write(self._folder, record.rank_session(self._rank), self._session.encode())
                os.write(holds, _GO)
                os.close(tells)
                os.close(held)
                return Rank(pid, int(said), told, holds, self._note)
        except BaseException:
            said = b"it could not be watched"
            raise
        finally:
            if not said.isdigit():
                # Inner, if it comes to life yet, finds nobody and starts nothing.
                for number in (told, tells, held, holds):
                    os.close(number)
                _kill(pid)
        return said.decode()

    def record_steps(self, rank: Rank, tell: Callable[[str], None]) -> None:
        """Let a helper record the steps that were asked for, where the rank itself cannot."""
        rings = os.environ.get(record.ENV_RINGS, "")
        if not self._start:
            return
        if not rings:
            os.mknod(self._begun)
            tell("rank %d: no steps are recorded: there is no memory file system at /dev/shm" % self._rank)
            return
        self._helper = os.fork()
        if self._helper:
            self._note(rank.profiler, None)
            return
        try:
            # Signals stay blocked: whoever ends the tree below a launcher would cost the report.
            os.setpgid(0, 0)
            rank.close()
            from cockpit.node.run.windows import Window

            identity = rank.pid, procfs.ticks(rank.pid)
            first, last = self._steps
            words = self._start, self._stop
            window = Window(*words, first, last, rings, self._rank, identity, self._begun)
            tell("rank %d: %s" % (self._rank, window.record()))
        finally:
            os._exit(0)

    def _first_word(self, profiler: int, told: int, deadline: float) -> bytes:
        """The pid of the training process, which waits for us; or why there is none."""
        poll = select.poll()
        poll.register(told, select.POLLIN)
        while time.monotonic() < deadline:
            if poll.poll(_FIRST_LOOK_MS):
                return os.read(told, 64).strip() or b"nsys could not start it"
            done, status = os.waitpid(profiler, os.WNOHANG)
            if done:
                self._note(profiler, status)
                return b"nsys ended with %s before it had started it; see launcher.log" % _how(status)
            if _wanted_to_end():
                return b"it was asked to end before nsys had started it"
        return b"nsys had not started it after %d s" % START_S

    def _note(self, pid: int, status: Optional[int]) -> None:
        """Put into the run folder which process writes the report, and how it ended."""
        facts: Dict[str, Any] = {
            "rank": self._rank,
            "attempt": self._attempt,
            "pid": pid,
            "ticks": procfs.ticks(pid),
            "status": status,
            "report": json.dumps(self._report),
            "helper": self._helper,
            "helper_ticks": procfs.ticks(self._helper) if self._helper else 0,
        }
        write_record(self._folder, record.rank_profiler(self._rank, self._attempt), facts)


def has_gpu() -> bool:
    """Whether programs here may see a GPU of NVIDIA's."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() in ("", "-1", "NoDevFiles")
    # nsys 2022.4, as root, makes /dev/nvidiactl where there is no GPU.
    return not hidden and bool(glob.glob("/dev/nvidia[0-9]*") or os.path.exists("/dev/dxg"))


def _text(path: str) -> str:
    """What is in a file of the kernel's."""
    with open(path) as file:
        return file.read().strip()


def report_name(wanted: str, rank: int, attempt: int) -> str:
    """The report of a rank, without suffix, as a word for nsys.

    ``%q{NAME}`` and ``%h`` are put in, as nsys would; ``%p`` and ``%n`` are left to it. What does not tell
    ranks apart gets the rank appended.
    """
    if not any(mark in wanted for mark in _NAMES_RANKS):
        wanted += ".rank-%d" % rank
    pieces = wanted.replace("%h", socket.gethostname()).split("%q{")
    name = pieces[0]
    for piece in pieces[1:]:
        variable, closed, rest = piece.partition("}")
        value = str(rank) if variable == "RANK" else os.environ.get(variable, "")
        name += value + rest if closed else "%q{" + piece
    if attempt:
        name += ".attempt-%d" % (attempt + 1)
    return name.replace("/", "_")


def _how(status: int) -> bytes:
    if os.WIFSIGNALED(status):
        return b"signal %d" % os.WTERMSIG(status)
    return b"status %d" % os.WEXITSTATUS(status)


def _wanted_to_end(within_s: float = 0.0) -> bool:
    """Whether a signal says so, by now or within some seconds."""
    end = time.monotonic() + within_s
    while not (found := bool(signal.sigpending() & set(ENDINGS))) and time.monotonic() < end:
        time.sleep(0.02)
    return found


def _kill(profiler: int) -> None:
    """End a profiler that has started nothing. What it leaves behind is swept at the end of the run."""
    try:
        os.killpg(profiler, signal.SIGKILL)
        os.waitpid(profiler, 0)
    except (ProcessLookupError, ChildProcessError, PermissionError):
        pass


def _become(words: List[str], mask: Set[int]) -> None:
    """Become the profiler. Never returns."""
    try:
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execvp(words[0], words)
    except OSError as error:
        os.write(2, os.fsencode("cockpit: cannot start %s: %s\n" % (words[0], error.strerror)))
    finally:
        os._exit(127)


_ALL = sorted(set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP})


def inner(argv: List[str]) -> int:
    """Be the parent of a training process; see above. Never asked by a person, so nothing is explained."""
    above, tells, held, log, user_umask = map(int, argv[:5])
    mask, ignored = ({int(number) for number in text.split(",") if number} for text in argv[5:7])
    rank, command = int(argv[7]), argv[8:]
    place = "/proc/%d/fd/" % above
    try:
        lives = os.open(place + str(held), os.O_RDONLY)
        says = os.open(place + str(tells), os.O_WRONLY)
        output = os.open(place + str(log), os.O_WRONLY | os.O_APPEND)
    except OSError:
        return 0  # the wrapper has given up, or died
    # Whoever ends the tree below a launcher means the ranks: the wrapper passes it on, or they got it, too.
    signal.pthread_sigmask(signal.SIG_SETMASK, set(_ALL) - {signal.SIGCHLD})
    me = os.getpid()
    pid = os.fork()
    if pid == 0:
        if os.read(lives, 1) != _GO:
            os._exit(0)
        for number in _ALL:
            with contextlib.suppress(OSError, ValueError):  # the threading library's own
                signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
        become_rank(command, rank, me, output, user_umask, mask)
    wake, sleeping = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(sleeping, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(sleeping)
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    poll.register(lives, 0)  # nothing but that nobody holds the other end any more
    _say(says, b"%d\n" % pid)
    while True:
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            break
        if any(number == lives for number, _ in poll.poll()):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return 0
        with contextlib.suppress(BlockingIOError):
            os.read(wake, 4096)
    end = "%d %r %r %d\n" % (status, usage.ru_utime, usage.ru_stime, usage.ru_maxrss)
    _say(says, end.encode())
    os.kill(above, signal.SIGCHLD)
    return 0


def _say(number: int, text: bytes) -> None:
    with contextlib.suppress(OSError):  # the wrapper has given up, or died: then the poll says so
        os.write(number, text)
