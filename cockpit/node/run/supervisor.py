"""The supervisor: one process per run and node, which no connection can take down.

It starts the launcher, writes the run record, inherits and waits for whatever the launcher orphans, stops the
run when told to, sweeps up what is left and ends last. It never reads or relays output of the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, Mapping, Tuple

from cockpit.base import record, times
from cockpit.base.growing_file import Lasting
from cockpit.node import procfs, safefiles, space
from cockpit.node.run import evidence, helpers, probing, profiled, reports, stopping
from cockpit.node.run.jsonlines import JsonLines
from cockpit.node.run.ranks import Ranks, how

TICK_S = 0.2
"""Seconds between two looks at the run folder: the resolution of the time index."""
SETTLE_S = 1.0
"""Seconds between two checks that ranks still exist; records of their end are seen each tick."""
PROBES_S = 1.0
"""Seconds between two looks at what the probes say."""
REPORT_S = 3.0
"""Seconds between two messages about a growing report."""
UNWRITTEN_S = 3600.0
"""How long the end of the record waits for room on a full or read-only disk; meanwhile it is told."""
UNWRITTEN_HELD_S = 60.0
"""The same where a SLURM job lasts as long as we do."""

EVENTS_ROOM = 256 << 10
"""Bytes of disk reserved for the run record: how a run ended must be recorded even on a full disk."""
ROOM_S = 5.0
"""Seconds between two checks for a full disk."""
LEAST_ROOM = 1 << 20
"""Bytes; a disk with less counts as full."""
ROOM_AGAIN, SMALL_DISK = 4 << 20, 1 / 8
"""Bytes; a disk that was full has room again with so many, or this part of it more than the least."""
ROOM_NOTES = 20
"""Times that it is said that the disk is full."""
TOLD = 60 << 10
"""Bytes of what is not written in one answer."""
SAID = 300
"""Characters of a note that a wrapper asks for."""

_PR_SET_CHILD_SUBREAPER = 36


class Supervisor:
    """Supervises one run on this node, from its launch to its end."""

    def __init__(self, spec: Dict[str, Any], folder: str, user_umask: int) -> None:
        self._spec = spec
        self._folder = folder
        self._user_umask = user_umask
        self._began = time.time()
        self._events = JsonLines(os.path.join(folder, record.EVENTS), EVENTS_ROOM)
        self._times = Lasting(os.path.join(folder, record.TIMES), times.LIMIT, times.thinned)
        self._sizes: Dict[str, int] = {}
        self._logs = [record.LAUNCHER_LOG, *map(record.rank_log, spec["ranks"])]
        if spec.get("nccl_debug"):
            self._logs += map(record.rank_nccl, spec["ranks"])
        self._ranks = Ranks(folder, spec["ranks"], self._emit, self._why_missing)
        self._evidence = evidence.Evidence(spec, folder, self._ranks, self._emit)
        self._probes = probing.Probes(
            folder, spec.get("probe", "off"), spec["ranks"], self._emit, self._evidence.stepped
        )
        per_rank = profiled.listed(spec.get("profile") or {}, spec["ranks"])
        self._profilers = profiled.Profilers(folder, per_rank)
        self._around_launcher = bool(spec.get("profile")) and "ranks" not in spec["profile"]
        self._finalise_by = 0.0
        self._no_room_since = 0.0
        self._no_room_why = ""
        self._no_room_notes = 0
        self._launcher = 0
        self._launcher_status: int | None = None
        self._stop_seen: Tuple[int, int] = (0, 0)
        self._terminated = False
        self._to_pass_on: List[int] = []
        self._holder = os.getppid() if spec.get("held") else 0
        self._due_at: Dict[str, float] = {}
        self._orphans_since: float | None = None
        self._orphans_told = False
        self._ended = False
        self._report_size = 0

    def run(self) -> None:
        """Everything, from the first event to ``ended``."""
        self._wake = self._catch_signals()
        trouble = _become_subreaper()
        self._announce()
        answers: Dict[str, Callable[..., bytes]] = {
            helpers.STOP: self._asked_to_stop,
            helpers.UNWRITTEN: self._unwritten,
            helpers.RECORD: self._told_record,
            helpers.NOTE: self._told_note,
        }
        self._helpers = helpers.Helpers(self._folder, answers)
        if trouble:
            text = "orphans of the launcher go to init, their exit status will be unknown: " + trouble
            self._emit("note", text=text)
        self._launch()
        self._stop = stopping.StagedStop(
            self._ranks,
            self._emit,
            agent_forwards=self._spec["launcher"] in ("torchrun", "accelerate"),
            profiled=self._around_launcher,
            finalise_s=float(self._spec["finalise_s"]),
            launcher=self._launcher,
        )
        while True:
            self._safely(self._tick)
            if self._over():
                break
            _wait([self._wake, *self._helpers.sockets()], TICK_S)
            self._drain()
        self._finish()

    def _safely(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # whatever it is, such as no file left to open: the run must not suffer
            at = error.__traceback__
            while at is not None and at.tb_next is not None:
                at = at.tb_next
            where = "%s:%d" % (at.tb_frame.f_code.co_filename, at.tb_lineno) if at is not None else "?"
            self._ranks.remark("the supervisor continued after %r at %s" % (error, where))

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)

    # -- start -----------------------------------------------------------------------------------

    def _catch_signals(self) -> int:
        """Make signals wake the loop; return the file descriptor to wait on."""
        wake, sleeping = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(sleeping, False)
        signal.set_wakeup_fd(sleeping, warn_on_full_buffer=False)
        # Handlers instead of SIG_IGN: exec resets those, so the launcher starts with defaults.
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        if self._spec.get("held"):
            # A SLURM job's `--signal` reaches what its step has started, and is meant for the ranks.
            for number in (signal.SIGUSR1, signal.SIGUSR2):
                signal.signal(number, lambda number, _: self._to_pass_on.append(number))
        signal.signal(signal.SIGTERM, self._on_term)
        return wake

    def _on_term(self, *_: Any) -> None:
        self._terminated = True

    def _announce(self) -> None:
        spec = self._spec
        me = {"pid": os.getpid(), "ticks": procfs.ticks(os.getpid())}
        facts = {
            "format": record.FORMAT,
            "t": self._began,
            "host": socket.gethostname(),
            "uid": os.geteuid(),
            "boot_id": procfs.boot_id(),
            "supervisor": me,
            "python": sys.executable,
            "umask": "%03o" % self._user_umask,
        }
        for name in ("run", "node", "index", "dir", "ranks", "launcher", "profile", "grace_s", "finalise_s"):
            facts[name] = spec.get(name)
        facts["probe"], facts["rings"] = spec.get("probe", "off"), self._probes.rings
        facts["nccl_debug"] = bool(spec.get("nccl_debug"))
        path = os.path.join(self._folder, record.RECORD)
        safefiles.write_new(path + ".tmp", json.dumps(facts).encode())
        os.rename(path + ".tmp", path)
        told = ("boot_id", "run", "node", "ranks", "format", "host", "umask", "probe")
        self._emit("supervisor_started", **me, **{name: facts[name] for name in told})

    def _launch(self) -> None:
        spec = self._spec
        unset = spec.get("unset", ())
        environment = {name: value for name, value in os.environ.items() if name not in unset}
        environment.update(spec.pop("env", {}))
        environment[record.ENV_RUN] = spec["run"]
        environment[record.ENV_NODE] = spec["node"]
        environment[record.ENV_DIR] = self._folder
        environment[record.ENV_SUPERVISOR] = str(os.getpid())
        environment[record.ENV_UMASK] = "%03o" % self._user_umask
        environment.update(self._probes.environment)
        environment.update(self._evidence.environment)
        environment.update(self._profilers.environment)
        if spec.get("nccl_debug"):
            environment[record.ENV_NCCL] = "1"
        if spec.get("calls"):
            environment[record.ENV_CALLS] = ",".join(spec["calls"])
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        log = os.open(os.path.join(self._folder, record.LAUNCHER_LOG), flags, 0o600)
        shell = shutil.which("bash") or "/bin/sh"
        os.umask(self._user_umask)
        try:
            # Kept, because a forgotten Popen would be waited for behind our back.
            self._process = subprocess.Popen(
                [shell, os.path.join(self._folder, record.LAUNCH_SH)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self._folder,
                start_new_session=True,
            )
        finally:
            os.umask(0o077)
            os.close(log)
        self._launcher = self._process.pid
        self._emit("launcher_started", pid=self._launcher)

    # -- while it runs ---------------------------------------------------------------------------

    def _tick(self) -> None:
        self._reap()
        self._helpers.tick()
        names = self._names()
        self._ranks.look(names)
        self._profilers.look(names)
        if self._stop.active or self._launcher_status is not None or self._due("settle", SETTLE_S):
            self._ranks.settle()
        if self._due("sizes", TICK_S):
            self._note_sizes()
        if self._due("probes", PROBES_S):
            self._probes.look()
        if self._due("room", ROOM_S):
            self._note_room()
        self._pass_on()
        self._look_for_stop(names)
        if not self._finalising():
            self._stop.tick(self._launcher_status is None)
        self._evidence.tick(names, stopping=self._stop.active)
        self._note_orphans()
        self._note_report()
        self._events.flush()

    def _over(self) -> bool:
        if self._stop.given_up():
            return True
        if self._launcher_status is None or self._ranks.live() or self._ranks.wrapped():
            return False
        if self._evidence.busy:
            return False  # it looks within a short time of its own, or is killed
        # A rank that started and ended just now has left its records.
        self._ranks.look(self._names())
        return not self._ranks.live() and not self._finalising()

    def _finalising(self) -> bool:
        """Whether all has ended but profilers of ranks, which write their reports: for so long at most."""
        if self._launcher_status is None or self._stop.hard or self._ranks.live() or self._ranks.wrapped():
            return False
        writing = self._profilers.writing()
        if writing and not self._finalise_by:
            finalise_s = float(self._spec["finalise_s"])
            self._finalise_by = time.monotonic() + finalise_s
            text = "profilers of %d ranks have %g s to write their reports" % (len(writing), finalise_s)
            self._emit("stage", stage="finalising", pids=sorted(writing), text=text)
        return bool(writing) and time.monotonic() < self._finalise_by

    def _names(self) -> List[str]:
        try:
            return os.listdir(self._folder)
        except OSError:
            return []  # somebody removed the folder: the run must still be waited for and swept

    def _due(self, what: str, every_s: float) -> bool:
        now = time.monotonic()
        if now < self._due_at.get(what, 0.0):
            return False
        self._due_at[what] = now + every_s
        return True

    def _reap(self) -> None:
        """Wait for the launcher and for orphans that ended."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            # Only a process that nobody waited for yet can tell its start time.
            ticks = procfs.ticks(ended.si_pid)
            pid, status, usage = os.wait4(ended.si_pid, 0)
            if pid == self._launcher and self._launcher_status is None:
                self._launcher_status = status
                # What its ranks left before it ended comes before its end.
                self._ranks.look(self._names())
                self._emit("launcher_exited", **how(status))
            elif not (
                self._helpers.reaped(pid, status)
                or self._evidence.reaped(pid, status)
                or self._profilers.reaped(pid, status)
            ):
                self._ranks.reaped((pid, ticks), status, usage)

    def _note_sizes(self) -> None:
        changed = {}
        for name in self._logs:
            size = safefiles.extent(os.path.join(self._folder, name))
            if not size or size < self._sizes.get(name, 0):
                # Moved away, maybe: an empty file may be the new one.
                size = self._ranks.written(record.logged_rank(name)) or size
            if size is not None and self._sizes.get(name) != size:
                self._sizes[name] = changed[name] = size
        self._evidence.logged(self._sizes)
        if changed:
            self._times.add(times.line(time.time(), changed))

    def _pass_on(self) -> None:
        while self._to_pass_on:
            number = self._to_pass_on.pop(0)
            text = "%s from SLURM, passed on to the ranks" % signal.Signals(number).name
            self._emit("note", text=text)
            for rank in self._ranks.live():
                procfs.send(*rank.training, number)

    def _look_for_stop(self, names: List[str]) -> None:
        grace_s = float(self._spec["grace_s"])
        if self._terminated:
            self._terminated = False
            patience_s = min(grace_s, float(self._spec.get("term_grace_s", grace_s)))
            job = os.environ.get("SLURM_JOB_ID") if self._spec.get("held") else None
            reason = "SLURM ends job %s, or the step that holds the run" % job if job else ""
            self._stop.request(reason or "SIGTERM to the supervisor", "signal", patience_s, hard=False)
        if self._holder and os.getppid() != self._holder:
            # Nothing would tell us of the end of the job any more, nor end us with it.
            self._holder = 0
            self._stop.request("the slurmstepd that held it has ended", "supervisor", grace_s, hard=False)
        if record.STOP not in names:
            return
        path = os.path.join(self._folder, record.STOP)
        try:
            status = os.lstat(path)
            mark = (status.st_ino, status.st_mtime_ns)
            if mark == self._stop_seen:
                return
            self._stop_seen = mark
            wish = safefiles.load(path)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            # The file is a request to stop by being there, whatever it says.
            wish = {"reason": "%s cannot be read: %s" % (record.STOP, error)}
        self._asked_to_stop(wish)

    # -- what others ask -------------------------------------------------------------------------

    def _asked_to_stop(self, wish: Mapping[str, Any]) -> bytes:
        """Begin to stop; return what is sent to the ranks."""
        if self._ended:
            return b"over"
        grace_s = float(self._spec["grace_s"])
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            wished_s = float(wish.get("grace_s", grace_s))
            grace_s = wished_s if 0 <= wished_s < float("inf") else grace_s
        reason, by = (str(wish.get(name, ""))[:1000] for name in ("reason", "by"))
        self._stop.request(reason, by, grace_s, hard=wish.get("hard") is True)
        return self._stop.sends.encode()

    def _unwritten(self, start: int) -> bytes:
        """What there is no room for, from this place of the run record on; that and its end come first."""
        place, data = self._events.unwritten(start)
        return b"%d %d\n%s" % (place, place + len(data), data[:TOLD])

    def _told_record(self, name: str, text: str) -> bytes:
        """A wrapper has no room for a record of its rank."""
        self._ranks.look(self._names())  # the record of its start may be there
        if not self._profilers.told(name, text):
            self._ranks.told(name, text)
        return b"taken"

    def _told_note(self, text: str) -> bytes:
        self._ranks.remark(text[:SAID])
        return b"taken"

    def _note_orphans(self) -> None:
        if self._launcher_status is None or self._orphans_told or not self._ranks.live():
            return
        # Not at once: launcher and ranks may be ending together.
        now = time.monotonic()
        if self._orphans_since is None:
            self._orphans_since = now
        elif now - self._orphans_since > SETTLE_S:
            self._orphans_told = True
            ranks = ", ".join(str(number) for number in sorted(one.rank for one in self._ranks.live()))
            self._emit("note", text="the launcher ended; still running without it: rank " + ranks)

    def _note_report(self) -> None:
        if not self._spec.get("profile") or not self._ranks.started or self._ranks.live():
            return
        # Below the launcher it ends before that; of single ranks, maybe after.
        if (self._launcher_status is not None) is self._around_launcher or not self._due("report", REPORT_S):
            return
        size = reports.size_so_far(os.path.join(self._folder, record.REPORTS), self._began)
        if size != self._report_size:
            self._report_size = size
            name = os.path.basename(self._spec["profile"]["report"])
            self._emit("report", name=name, size=size, state="writing", text="the profiler writes its report")

    # -- end -------------------------------------------------------------------------------------

    def _finish(self) -> None:
        self._helpers.end_all()
        self._evidence.close()
        whose = self._spec["run"], self._spec["node"], self._emit, self._meanwhile, os.getpid(), self._folder
        self._safely(lambda: stopping.sweep(*whose))
        self._probes.close()
        names = self._names()
        self._ranks.look(names)
        self._ranks.settle()
        self._ranks.give_up()
        self._note_sizes()
        self._note_room(ends=True)
        profile = self._spec.get("profile")
        if profile:
            try:
                reports.finish(
                    self._folder,
                    profile,
                    self._why_no_report() if self._around_launcher and not profile.get("ready") else "",
                    self._emit,
                    timeout_s=float(self._spec["finalise_s"]),
                    cancelled=self._stopped_hard,
                )
                hint = profiled.hint(profile)
                missing = self._profilers.missing(lambda rank: self._probes.window(rank) or hint)
                for lost in missing if not profile.get("ready") else ():
                    self._emit("report", name=lost.name, size=0, state="missing", text=lost.text)
            except OSError as error:
                self._emit("note", text="looking for reports: %s" % error)
        self._emit("ended")
        self._ended = True
        self._await_room()
        self._helpers.close()

    def _await_room(self) -> None:
        """Write the end of the record once there is room; tell it until then, unless a signal ends us."""
        self._terminated = False
        wait_s = UNWRITTEN_HELD_S if self._spec.get("held") else UNWRITTEN_S
        deadline = time.monotonic() + wait_s
        while not self._events.flush() and not self._terminated and time.monotonic() < deadline:
            _wait([self._wake, *self._helpers.sockets()], TICK_S)
            self._drain()
            self._meanwhile()
        self._times.flush()

    def _why_no_report(self) -> str:
        if self._launcher_status is None:
            return "the profiler did not end"
        end = how(self._launcher_status)
        if end["signal"] is not None:
            return "the profiler was ended by signal %d before it wrote a report" % end["signal"]
        return "the profiler ended with status %d without a report; see launcher.log" % end["code"]

    def _meanwhile(self) -> None:
        """What goes on while the end takes its time."""
        self._reap()
        self._helpers.tick()

    def _stopped_hard(self) -> bool:
        self._helpers.tick()
        self._look_for_stop(self._names())
        return self._stop.hard

    def _no_room(self, *, again: bool = False) -> str:
        """Why nothing can be written where the run folder is; empty: something can.

        :param again: whether a disk that was full is to have room for a while
        """
        try:
            free, whole = space.measured(self._folder)
        except OSError as error:
            return str(error.strerror)
        refused = self._times.trouble or self._events.refused()
        if refused:
            return refused
        least = min(ROOM_AGAIN, LEAST_ROOM + int(whole * SMALL_DISK)) if again else LEAST_ROOM
        return "" if free >= least else "the disk is full (%d kB free)" % (free // 1000)

    def _why_missing(self) -> str:
        """Why a record may be missing; empty: no reason is known."""
        trouble = self._no_room() or self._no_room_why
        return "%s: %s" % (self._folder, trouble) if trouble else ""

    def _note_room(self, *, ends: bool = False) -> None:
        """Say that there is no room, and when there is again: what ranks print in between is in no log.

        :param ends: nobody prints any more: the least room ends what was said
        """
        if not os.path.isdir(self._folder):
            return
        trouble = self._no_room(again=bool(self._no_room_since) and not ends)
        if bool(trouble) == bool(self._no_room_since) or self._no_room_notes > ROOM_NOTES:
            return
        if trouble:
            self._no_room_notes += 1
            self._no_room_since, self._no_room_why = time.monotonic(), trouble
            text = "%s: %s; until it can be written again, what ranks print may be lost"
            text %= (self._folder, trouble)
        else:
            past_s = time.monotonic() - self._no_room_since
            self._no_room_since = 0.0
            text = "%s can be written again; of what ranks printed in the %.0f s before, some may be lost"
            text %= (self._folder, past_s)
            if self._events.dropped:
                text += ", and %d events" % self._events.dropped
        self._emit("note", text=text)

    def _emit(self, event: str, **facts: Any) -> None:
        line = {"t": time.time(), "e": event}
        line.update(facts)
        self._events.add(line)


def _wait(numbers: List[int], seconds: float) -> None:
    """Wait until one of these can be read from; select() accepts none above 1,023."""
    poll = select.poll()
    for number in numbers:
        poll.register(number, select.POLLIN)
    poll.poll(seconds * 1000)


def _become_subreaper() -> str:
    """Inherit the orphans of what is started from here; return what prevents that, or nothing."""
    try:
        import ctypes

        if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0) == 0:
            return ""
    except (ImportError, OSError) as error:
        return str(error)
    return "prctl failed"


def main(argv: List[str]) -> int:
    """Read the launch spec from stdin, detach and supervise; returns an exit code.

    :param argv: ``--held``, if what has started us must not see us end; the run folder
    """
    if len(argv) not in (1, 2) or argv[:-1] not in ([], ["--held"]):
        sys.stderr.write("cockpit: supervise: expected a run folder\n")
        return 2
    folder = argv[-1]
    try:
        spec = json.loads(sys.stdin.buffer.read().decode())
    except ValueError as error:
        sys.stderr.write("cockpit: supervise: stdin is not a launch spec: %s\n" % error)
        return 2
    # The session was made for us (this process leads it); only a leader can ever get a terminal.
    if not argv[:-1] and os.fork():
        os._exit(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir("/")
    inherited = os.umask(0o077)
    wished = spec.pop("umask", None)
    user_umask = inherited if wished is None else int(wished)
    for name, text in [*spec["files"].items(), (record.LAUNCH_SH, spec["script"])]:
        if os.path.basename(name) != name:
            sys.stderr.write("cockpit: supervise: not a file name: %r\n" % name)
            return 2
        safefiles.write_new(os.path.join(folder, name), text.encode())
    Supervisor(spec, folder, user_umask).run()
    return 0
