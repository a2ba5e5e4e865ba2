"""What the supervisor keeps of its ranks when they stand still, or as one of them fails, whoever watches.

It decides when, and starts a process of its own (:mod:`cockpit.node.evidence.taking`) that looks: the
supervisor never waits for one. The wrapper of a failed rank waits for that process, for a short time: its end
is what makes the launcher end the others.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from dataclasses import dataclass, fields
from typing import Any, Dict, List, Mapping, Optional, Tuple

from cockpit.base import record
from cockpit.base.stillness import AFTER_S, ASLEEP
from cockpit.node import procfs, safefiles, space
from cockpit.node.run.ranks import Attempt, Emit, Ranks
from cockpit.node.run.standing import APART_S, Standing

QUOTA = 20 << 20
"""Bytes that a run may keep on a node."""
FLOOR = 256 << 20
"""Bytes that stay free on the disk."""
LEAST = 64 << 10
"""Bytes of the quota without which nothing is begun."""

TOO_LONG_S = 60.0
"""Seconds after which the process that looks is killed; by itself it ends much sooner."""
HURRY_S = 5.0
"""The same once no rank is left, or the run is to stop: the supervisor ends after it."""
DEAD_S = 2.0
"""After this long, a process that was killed waits in the kernel: nobody waits for it."""
AGAIN_S = 20.0
"""Seconds between two times that a cockpit may ask."""
BUDGET_S = {"asked": 5.0, "stall": 20.0}
"""Seconds that a look may take, by why it is taken; at a failure, nearly as long as wrappers wait for it."""
SPARE_S = 0.5
"""What is left of that wait for the wrapper to be told."""

_REMEMBERED = 256
"""Names and troubles, of the newest ones, that are not given or told twice."""

_SAID = 64 << 10
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Wish:
    """How evidence is kept: ``evidence`` of the launch spec. Times are in seconds.

    :param keep: whether any is
    :param hold_s: longest time that the wrapper of a failed rank waits
    :param quota: bytes that the run may keep here; ``floor``: that stay free on the disk
    """

    keep: bool = True
    hold_s: float = 3.0
    after_s: float = AFTER_S
    idle_s: float = ASLEEP * AFTER_S
    every_s: float = APART_S
    quota: int = QUOTA
    floor: int = FLOOR

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Wish:
        """What a launch spec says; a cockpit of another version may say more, or nothing."""
        told = spec.get("evidence") or {}
        return cls(**{each.name: told[each.name] for each in fields(cls) if each.name in told})


class Evidence:
    """Keeps the evidence of one run on its node; no method waits or raises anything.

    :param spec: the launch spec
    :param ranks: what is known of the ranks
    """

    def __init__(self, spec: Mapping[str, Any], folder: str, ranks: Ranks, emit: Emit) -> None:
        self._wish = Wish.of(spec)
        self._folder = folder
        self._place = os.path.join(folder, record.EVIDENCE)
        self._run, self._node = str(spec["run"]), str(spec["node"])
        self._own: List[int] = list(spec["ranks"])
        self._ranks = ranks
        self._emit = emit
        self._standing = Standing(self._wish.after_s, self._wish.idle_s, self._wish.every_s, time.monotonic())
        self._attempts = 0
        self._work_at = 0.0
        self._wish_seen: Tuple[int, int] = (0, 0)
        self._asked_at: Optional[float] = None
        self._failed_at: Optional[float] = None
        self._held: List[Attempt] = []
        self._hold_until = 0.0
        self._pending: List[int] = []
        self._looking: Optional[_Looking] = None
        self._told: Dict[str, int] = {}
        self._stalled: Optional[Tuple[str, float]] = None
        self.environment = {record.ENV_HOLD: "%g" % self._wish.hold_s} if self._wish.keep else {}
        """What tells the wrappers."""

    @property
    def busy(self) -> bool:
        """Whether somebody looks at the ranks just now, and can still end."""
        looking = self._looking
        return looking is not None and time.monotonic() < looking.kill_at + DEAD_S

    # What it is told

    def stepped(self, file: str, ends_ns: Tuple[int, ...]) -> None:
        """The newest steps of a rank's ring."""
        self._standing.stepped(time.monotonic(), file, ends_ns)

    def logged(self, sizes: Mapping[str, int]) -> None:
        """How large the ranks' logs are."""
        self._standing.logged(time.monotonic(), sizes)

    def tick(self, names: List[str], *, stopping: bool) -> None:
        """Do what is due now.

        :param names: of the files in the run folder
        :param stopping: somebody has asked the run to stop: nothing is begun any more
        """
        if not self._wish.keep:
            return
        now = time.monotonic()
        failed = self._ranks.take_failed()
        if failed and not self._held:
            self._hold_until = now + self._wish.hold_s
        self._held += failed
        self._pending += [one.rank for one in failed]
        if self._looking is not None and now > self._looking.kill_at:
            self._looking.kill()
        live = self._ranks.live()
        if self._looking is not None and (stopping or not live):
            self._looking.kill_at = min(self._looking.kill_at, now + HURRY_S)
        if stopping:
            self._release()
            return
        if self._looking is None:
            self._begin(now, names, live)
        # One that looks for another reason is through soon: then it is these ranks' turn.
        wanted = self._looking is not None and (self._looking.why == "failure" or self._pending)
        if not wanted or now > self._hold_until:
            self._release()
        self._mind_stillness(now, live)

    def reaped(self, pid: int, status: int) -> bool:
        """A child of the supervisor ended and was waited for; return whether it was the one that looks."""
        looking = self._looking
        if looking is None or looking.pid != pid:
            return False
        self._looking = None
        if looking.why == "failure":
            self._release()
        self._tell(looking, looking.said(), status)
        return True

    def close(self) -> None:
        """The run ends: nothing is waited for."""
        self._release()
        if self._looking is not None:
            self._looking.kill()

    # What it does

    def _begin(self, now: float, names: List[str], live: List[Attempt]) -> None:
        failed, self._pending = self._pending, []
        if failed:
            recent = self._failed_at is not None and now - self._failed_at < self._wish.every_s
            if not recent and (live or self._nccl_dumps()):
                self._failed_at = now
                self._look("failure", live, failed=failed)
            return
        if record.WISH in names and self._is_asked(now) and live:
            self._look("asked", live)

    def _mind_stillness(self, now: float, live: List[Attempt]) -> None:
        if len(live) == 0:
            return
        started = self._ranks.attempts
        if started != self._attempts:
            self._attempts = started
            self._standing.restart(now)
            self._stalled = None  # that ended, and not by itself
        if not self._standing.counts_steps and now >= self._work_at:
            self._work_at = now + min(10.0, self._wish.idle_s / 4)
            self._standing.worked(now, _work(live))
        since_mono = self._standing.since(now)
        if self._stalled is not None and since_mono is None:
            file, since = self._stalled
            self._stalled = None
            self._emit("evidence", why="stall", file=file, over_s=round(time.time() - since, 3))
        if self._looking is not None:
            return
        if since_mono is not None and self._standing.is_due(now):
            self._standing.keep(now)
            since = time.time() - (now - since_mono)
            self._look("stall", live, since=since)

    def _is_asked(self, now: float) -> bool:
        """Whether a cockpit asks anew, and may."""
        try:
            status = os.lstat(os.path.join(self._folder, record.WISH))
        except OSError:
            return False
        mark = (status.st_ino, status.st_mtime_ns)
        if mark == self._wish_seen or (self._asked_at is not None and now - self._asked_at < AGAIN_S):
            return False
        self._wish_seen, self._asked_at = mark, now
        return True

    def _nccl_dumps(self) -> bool:
        """Whether NCCL's watchdog has written what it knows: that does not need a rank that lives."""
        place = os.path.join(self._folder, record.PROBE)
        return any(safefiles.size(os.path.join(place, record.nccl_dump(rank))) for rank in self._own)

    def _look(
        self,
        why: str,
        live: List[Attempt],
        *,
        failed: Optional[List[int]] = None,
        since: Optional[float] = None,
    ) -> None:
        """Start the process that looks, if there is room for what it finds."""
        trouble = self._no_room()
        if trouble:
            self._say_once(why, trouble)
            return
        name = self._name(why)
        asked: Dict[str, Any] = {
            "folder": self._folder,
            "name": name,
            "run": self._run,
            "node": self._node,
            "why": why,
            "since": since,
            "failed": failed or [],
            "own": self._own,
            "live": [[one.rank, *one.training] for one in live],
            "budget_s": BUDGET_S.get(why, max(SPARE_S, self._wish.hold_s - SPARE_S)),
            "quota": self._wish.quota,
            "floor": self._wish.floor,
        }
        try:
            self._looking = _Looking(asked, self._folder)
        except OSError as error:
            self._say_once(why, "cannot start a process to inspect ranks: %s" % error)

    def _no_room(self) -> str:
        """Why nothing can be kept; empty: something can."""
        if used(self._place) + LEAST > self._wish.quota:
            return "this run has used its %d MB" % (self._wish.quota // 1_000_000)
        try:
            disk, free = os.statvfs(self._folder), space.free(self._folder)
        except OSError as error:
            return str(error.strerror)
        if disk.f_flag & os.ST_RDONLY:
            return "the run folder's file system is read-only"
        if free < self._wish.floor:
            return "only %d MB free on the run folder's file system" % (free // 1_000_000)
        return ""

    def _name(self, why: str) -> str:
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        while len(self._told) > _REMEMBERED:
            del self._told[next(iter(self._told))]
        number = self._told[stamp] = self._told.get(stamp, 0) + 1
        return "%s%s-%s.evidence" % (stamp, "-%d" % number if number > 1 else "", why)

    def _say_once(self, why: str, trouble: str) -> None:
        if trouble not in self._told:
            self._told[trouble] = 1
            self._emit("evidence", why=why, text=trouble)

    def _tell(self, looking: _Looking, said: Dict[str, Any], status: int) -> None:
        """Put into the run record what the process has found, which may say anything."""
        name = looking.asked["name"]
        size = safefiles.size(os.path.join(self._place, name))
        if not size:
            trouble = str(said.get("trouble") or "inspecting the ranks ended with status %d" % status)
            self._say_once(looking.why, trouble[:500])
            return
        numbers = {key: _own(said.get(key), self._own) for key in ("stacks", "recorders")}
        text = str(said.get("trouble") or "")[:500]
        facts = {"since": looking.asked["since"], "failed": looking.asked["failed"]}
        self._emit("evidence", why=looking.why, file=name, size=size, text=text, **numbers, **facts)
        if looking.why == "stall":
            self._stalled = name, float(looking.asked["since"])

    def _release(self) -> None:
        """End the wait of all wrappers that wait for us."""
        from cockpit.node.run.wrapper import RELEASE

        for rank in self._held:
            procfs.send(*rank.wrapper, RELEASE)
        self._held, self._pending = [], []


class _Looking:
    """The process that looks at the ranks."""

    def __init__(self, asked: Dict[str, Any], folder: str) -> None:
        self.asked = asked
        self.why = str(asked["why"])
        self.kill_at = time.monotonic() + TOO_LONG_S
        self._out, end = os.pipe()
        os.set_blocking(self._out, False)
        try:
            # Not Popen: that waits until the program is loaded, from a file server that may be silent.
            self.pid = os.fork()
            if self.pid == 0:
                _become([sys.executable, "-I", "-S", sys.argv[0], "look", json.dumps(asked)], end, folder)
        except OSError:
            os.close(self._out)
            raise
        finally:
            os.close(end)

    def kill(self) -> None:
        """End it, with what it has started; it is still to be waited for. Again, if that is not enough."""
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)

    def said(self) -> Dict[str, Any]:
        """What it has said, once it has ended."""
        try:
            return safefiles.parse(os.read(self._out, _SAID))
        except (OSError, ValueError):
            return {}
        finally:
            os.close(self._out)


def used(place: str) -> int:
    """Bytes of the evidence in a folder."""
    try:
        names = os.listdir(place)
    except OSError:
        return 0
    return sum(safefiles.size(os.path.join(place, name)) or 0 for name in names)


def _become(argv: List[str], out: int, folder: str) -> None:
    """Become the process that looks. Never returns."""
    try:
        os.setsid()
        os.dup2(out, 1)
        # What goes wrong there belongs where what goes wrong here does.
        os.dup2(os.open(os.path.join(folder, record.SUPERVISOR_LOG), os.O_WRONLY | os.O_APPEND), 2)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.execve(argv[0], argv, dict(os.environ))
    except OSError:
        pass
    finally:
        os._exit(127)


def _own(told: Any, own: List[int]) -> List[int]:
    return [rank for rank in own if rank in told] if isinstance(told, list) else []


def _work(live: List[Attempt]) -> Dict[int, Tuple[float, int]]:
    """What each rank has used of the CPU, with all that is below it."""
    below = procfs.children()
    found = {}
    for one in live:
        stat = procfs.stat(one.training[0])
        level = [stat] if stat is not None else []
        ticks = 0
        while level:
            ticks += sum(each.cpu_ticks for each in level)
            level = [child for each in level for child in below.pop(each.pid, ())]
        found[one.rank] = ticks / _TICKS_A_SECOND, _switches(one.training[0])
    return found


def _switches(pid: int) -> int:
    """How often the main thread of a process has gone to sleep by itself."""
    for line in procfs.contents("/proc/%d/status" % pid).splitlines():
        name, _, value = line.partition(b":")
        if name == b"voluntary_ctxt_switches" and value.strip().isdigit():
            return int(value)
    return 0
