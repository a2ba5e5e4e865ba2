"""A profile by py-spy: of all ranks of this node at once, the rate so low that none is held up for long."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
import zlib
from collections import Counter
from typing import Any, Collection, Dict, List, Optional, Sequence, Tuple

from cockpit.base import verbs
from cockpit.base.shared_fields import THREAD, Target
from cockpit.base.stacks.file_names import normalise
from cockpit.node import procfs
from cockpit.node.calls import Call
from cockpit.node.run.helpers import Running
from cockpit.node.stacks import inside, kernel, permission, pyspy, pyspy_process
from cockpit.node.stacks.pyspy_process import Result

PART = 0.02
"""Of the time that a rank may be held up."""

LEAST_PAUSE_S = 0.0005
"""A shorter one than this cannot be seen."""

LOOK_S = 10.0
"""For the one dump that is timed."""

LATE_S = 30.0
"""Seconds that py-spy may take beside what it was asked for: to start, and to write."""

_POLL_S = 0.0002
_TIED = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[3:])
"""
_ERRORS = re.compile(r"Errors: (\d{1,12})")
_LINE = re.compile(r"(?:process [^;]*;)?thread \((\d+)\)(?:: ([^;]*))?;(.+) (\d{1,12})")
_FRAME = re.compile(r"(.*) \((.*?)(:\d+)?\)")

MOST_STACKS, MOST_BYTES = 20_000, 7 << 20
"""Of a rank; those that were seen least are left out. So many bytes fit on the wire, however they pack."""
FRAME = 1000
"""Characters of a function and its file: a program may call one as it likes."""


def run(call: Call, asked: verbs.Profile) -> Dict[str, Any]:
    """Record all targets at once; an item per rank and state, the last with its folded stacks.

    :raises NodeError: there is no py-spy here
    """
    path = pyspy.ready()
    start = _Together(len(asked.targets))
    threads = [
        threading.Thread(target=_Recording(call, asked, target, path, start).run, daemon=True)
        for target in asked.targets
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return {}


def tied(path: str, arguments: List[str], out: int, said: int) -> Running:
    """Start py-spy so that it ends with this agent, however that ends."""
    argv = [sys.executable, "-I", "-S", "-c", _TIED, str(os.getpid()), path, pyspy_process.NAME, *arguments]
    return pyspy_process.child(argv, sys.executable, out, said)


class _Together:
    """Where those who are ready wait for the others, not longer than a look may take."""

    def __init__(self, many: int) -> None:
        self._left = many
        self._lock = threading.Lock()
        self._all = threading.Event()

    def ready(self) -> None:
        """One is."""
        with self._lock:
            self._left -= 1
            if self._left <= 0:
                self._all.set()

    def wait(self) -> None:
        """Until all are."""
        self._all.wait(LOOK_S)


class _Recording:
    """One rank."""

    def __init__(self, call: Call, asked: verbs.Profile, target: Target, path: str, start: _Together) -> None:
        self._call = call
        self._asked = asked
        self._target = target
        self._path = path
        self._start = start
        self._way = ""

    def run(self) -> None:
        """Time one dump, then record; whatever goes wrong is this rank's."""
        try:
            last, payload = self._recorded()
        except Exception:
            # A bug of ours with one rank is reported for that rank, and costs no other rank's answer.
            import traceback

            last, payload = _failed(traceback.format_exc()[-1000:]), b""
        self._say(payload, **last)

    def _say(self, payload: bytes = b"", **facts: Any) -> None:
        self._call.item({"rank": self._target.rank, **facts}, payload)

    def _recorded(self) -> Tuple[Dict[str, Any], bytes]:
        try:
            result, pause_s = self._timed()
            if result.code == 0:
                rate, gently = rate_for(pause_s, self._asked.rate)
                self._say(state="ready", rate=rate)
        finally:
            self._start.ready()
        if result.code != 0:
            return self._why(result), b""
        self._start.wait()
        if self._call.cancelled:
            return {"state": "cancelled"}, b""
        seconds = max(1, round(self._asked.seconds))
        words = ["record", "--format", "raw", "--idle", "--threads", "--full-filenames"]
        words += ["--rate", str(rate), "--duration", str(seconds), *(["--nonblocking"] if gently else [])]
        facts = kernel.look(self._target.pid, self._target.ticks)
        pids = {self._target.pid, facts.ns_pid if facts else self._target.pid}
        began = time.time()
        self._say(state="profiling", t=began, rate=rate)
        result = self._spy([*words, "--output", "/proc/self/fd/1"], seconds + LATE_S, [self._way])
        if result.code != 0 or not result.out:
            return {**self._why(result), "t": began, "rate": rate}, b""
        home = os.path.expanduser("~")
        stacks = folded(result.out.decode("utf-8", "replace"), pids, kernel.folder(self._target.pid), home)
        text = written(stacks)
        errors = _ERRORS.search(result.out[-1000:].decode("utf-8", "replace") + result.said)
        samples = sum(many for stack, many in stacks.items() if not stack.startswith(THREAD))
        last = {"state": "done", "t": began, "rate": rate, "samples": samples, "size": len(text)}
        last["errors"] = int(errors.group(1)) if errors else 0
        if not procfs.alive(self._target.pid, self._target.ticks):
            last["what"] = "its process ended after %.1f s of it" % (time.time() - began)
        elif gently:
            last["what"] = "sampled without pausing it, as that takes %.0f ms: stacks may be wrong" % (
                pause_s * 1000
            )
        return last, zlib.compress(text)

    def _timed(self) -> Tuple[Result, float]:
        """A dump, and how long the rank was held by it; by the shorter of two if the first was long."""
        result, pause_s = self._dumped([name for name, _ in self._starters(LOOK_S)])
        if result.code == 0 and pause_s * self._asked.rate > PART:
            # py-spy may have waited for a CPU while it held the rank.
            again, second_s = self._dumped([self._way])
            pause_s = min(pause_s, second_s) if again.code == 0 else pause_s
        return result, pause_s

    def _dumped(self, ways: Sequence[str]) -> Tuple[Result, float]:
        watch, result = _Watch(self._target.pid), Result(None, b"", "py-spy cannot be started")
        for way in ways:
            result = self._spy(["dump"], LOOK_S, [way])
            if result.code == 0 or result.why or not permission.denied(result.said):
                self._way = way
                break
        return result, watch.stop()

    def _starters(self, within_s: float) -> List[Tuple[str, Any]]:
        found: List[Tuple[str, Any]] = [
            (name, tied if name == "direct" else starter)
            for name, starter in permission.starters(self._asked.dir, within_s)
        ]
        if inside.other(self._target.pid):
            found.append(("inside", inside.starter(self._target.pid)))
        return found

    def _spy(self, words: List[str], within_s: float, ways: List[str]) -> Result:
        result = Result(None, b"", "py-spy cannot be started")
        for way, starter in self._starters(within_s):
            if way in ways:
                pid = self._target.pid
                if way == "inside":
                    facts = kernel.look(pid, self._target.ticks)
                    pid = facts.ns_pid if facts else pid
                arguments = [*words, "--pid", str(pid)]
                try:
                    result = pyspy_process.run(
                        starter, self._path, arguments, within_s, lambda: self._call.cancelled
                    )
                except OSError as error:
                    result = Result(None, b"", "py-spy cannot be started: %s" % error)
        return result

    def _why(self, result: Result) -> Dict[str, Any]:
        target = self._target
        if result.why == "cancelled":
            return {"state": "cancelled"}
        if not procfs.alive(target.pid, target.ticks):
            return _failed("its process has ended")
        if result.why:
            late = result.why == "timeout"
            return _failed("py-spy gave no answer in time" if late else "its answer is too large")
        if permission.denied(result.said):
            facts = kernel.look(target.pid, target.ticks)
            what, hint = permission.refusal(target.pid, facts.uid if facts else 0)
        else:
            what, hint = pyspy_process.complaint(result.said, target.pid)
        return _failed("%s; %s" % (what, hint) if hint else what)


def folded(said: str, mains: Collection[int], cwd: str, home: str) -> Dict[str, int]:
    """Folded stacks, outermost frame first, and how often each was seen: those of the main thread as they
    are, those of others below :data:`THREAD` and the thread's name.

    :param said: what ``py-spy record --format raw --threads`` prints
    :param mains: numbers that the main thread has
    :param cwd: working folder of the process; ``home``: its user's
    """
    found: Counter[str] = Counter()
    for line in said.splitlines():
        fits = _LINE.fullmatch(line)
        if fits:
            tid, name, stack, many = fits.groups()
            frames = [_frame(each, cwd, home) for each in stack.split(";")]
            if int(tid) not in mains:
                # What numbers and addresses a name has tells it from nothing on another rank.
                frames.insert(0, THREAD + re.sub(r"[\d_-]*\d", "", name or "").strip())
            found[";".join(frames)] += int(many)
    return dict(found.most_common(MOST_STACKS))


def written(stacks: Dict[str, int]) -> bytes:
    """Folded stacks, a line each, as many as there is room for."""
    lines, left = [], MOST_BYTES
    for stack, many in stacks.items():
        line = ("%s %d\n" % (stack, many)).encode("utf-8", "replace")
        left -= len(line)
        if left < 0:
            break
        lines.append(line)
    return b"".join(lines)


def _frame(frame: str, cwd: str, home: str) -> str:
    fits = _FRAME.fullmatch(frame[-FRAME:])
    if not fits:
        return frame[-FRAME:]
    name, file, line = fits.groups()
    return "%s (%s%s)" % (name, normalise(file, cwd, home), line or "")


def rate_for(pause_s: float, most: int) -> Tuple[int, bool]:
    """How often a second a rank may be held, and whether even once is too often, so that it must not be.

    :param pause_s: how long one look holds it
    :param most: what was asked for
    """
    fits = int(PART / max(pause_s, LEAST_PAUSE_S))
    return (min(most, fits), False) if fits else (most, True)


def _failed(what: str) -> Dict[str, Any]:
    return {"state": "failed", "what": what}


class _Watch:
    """For how long a process is held by a tracer, from now on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._over = False
        self._held_s = 0.0
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        since: Optional[float] = None
        while not self._over:
            found = procfs.stat(self._pid)
            now = time.monotonic()
            if since is not None:
                self._held_s += now - since
            since = now if found is not None and found.state == "t" else None
            time.sleep(_POLL_S)

    def stop(self) -> float:
        """Seconds that it was held."""
        self._over = True
        self._thread.join()
        return self._held_s
