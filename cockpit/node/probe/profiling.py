"""Profiles exactly the steps that an agent orders in the last page of a rank's ring, with torch's profiler.

Read as a file by ``hooks`` with the first order; the page is that of :mod:`cockpit.base.profile.order`. What
goes wrong is answered there. torch 2.13 ends the process with SIGSEGV where a second profiler begins on the
thread of one that is there, or has been prepared, and as Python ends or a fork's child does while there is
one. So ours is not begun beside another, and ends before any of these. Of its first start remains a thread of
torch's for as long as the process lives: see :meth:`Profiles._forked`.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import ctypes
import gc
import json
import os
import sys
import threading
import time
import zlib
from typing import Any, Callable, NamedTuple

MAGIC = 0x434B50544F524452
SHAPES, STACK, MEMORY = 1, 2, 4
READY, PROFILING, STOPPING, WRITING, WRITTEN, MISSED, REFUSED, FAILED, CANCELLED = range(1, 10)
# Words of the page.
CANCEL, ID, STATE, BEGAN, ENDED, STOP_NS, WARM_NS, BYTES, LAST = 6, 8, 17, 18, 20, 22, 23, 24, 25
ID_BYTES = 64

MOST_STEPS, MOST_STEP = 100, 1 << 40
TRIES = 16
"""Steps in which an order that makes no sense is read again: not all of it may be there yet."""
FLOOR = 256 << 20
"""Bytes that must be free on the disk for a trace to be begun."""
CHUNK = 1 << 20
QUIET = "KINETO_LOG_LEVEL"
NSYS = ("NSYS_PROFILING_SESSION_ID", "QUADD_INJECTION_PROXY", "CUDA_INJECTION64_PATH")
OURS = "cockpit"
"""How tools of ours in ``sys.monitoring`` are called."""


class Order(NamedTuple):
    """See :class:`cockpit.base.profile.order.Order`."""

    number: int
    first: int
    steps: int
    options: int
    deadline_ns: int
    id: str


class Cancelled(Exception):
    """Nobody wants it any more."""


class Profiles:
    """Profiles of this process.

    :param page: the words of the page
    :param answer: writes a state there and why, for the order of a number
    :param folder: of the probe, in the run folder
    :param interrupted: whether an error is one of the program's, raised in the middle of what is done here
    :param masked: calls something so that the threads it starts get no signal
    """

    def __init__(
        self,
        page: Any,
        answer: Callable[[int, int, str], None],
        rank: int,
        folder: str,
        interrupted: Callable[[Exception], bool],
        masked: Callable[[Callable[[], object]], None],
    ) -> None:
        self._page, self._answer, self._rank = page, answer, rank
        self._run_folder = os.path.dirname(folder)
        self._interrupted, self._masked = interrupted, masked
        self._pid = os.getpid()
        self._seen = 0
        """The newest order that was read."""
        self._odd = 0
        self._order: Order | None = None
        """The one that is in effect."""
        self._busy = False
        self._warm = False
        self._profile: Any = None
        """torch's profiler while it may run, on this thread alone: it is the thread's own."""
        self._thread = 0
        self._mark: Any = None
        """That of the step."""
        self._step = 0
        self._given: dict[str, Any] = {}
        """What torch begins its profiler with, while ours gives way to another."""
        self._writer: threading.Thread | None = None
        atexit.register(self._leave, "the program ended")
        os.register_at_fork(
            before=lambda: self._leave("the program forked a process"), after_in_child=self._forked
        )

    def stepped(self, step: int) -> int:
        """A step has ended; return the number of an order to which nothing is to be done any more.

        -1: call it at the end of each step.
        """
        frames = getattr(getattr(sys.modules["torch"]._C, "_dynamo", None), "eval_frame", None)
        if frames is None:
            return self._stepped(step)
        compiler = frames.set_eval_frame(None)  # it would try to compile what is called here
        try:
            return self._stepped(step)
        finally:
            frames.set_eval_frame(compiler)

    def _stepped(self, step: int) -> int:
        if self._busy:
            self._give_up(FAILED, "an exception of the program cut it short")
        self._busy = True
        try:
            self._go_on(step)
        except Exception as error:
            if self._interrupted(error):
                raise
            self._give_up(FAILED, _why(error))
        self._busy = False
        return self._seen if self._order is None else -1

    def _go_on(self, step: int) -> None:
        if self._order is not None:
            if not self._wanted(self._order):
                self._give_up(CANCELLED, "")
            elif time.monotonic_ns() > self._order.deadline_ns:
                self._give_up(CANCELLED, "its deadline passed")
        if self._order is None and self._page[0] != self._seen:
            self._take_up(self._page[0], step)
        order = self._order
        if order is None:
            return
        if self._profile is not None:
            self._continue(order, step)
        elif step >= order.first:
            self._give_up(MISSED, "step %d had ended" % step)
        elif step == order.first - 1:
            self._begin(order)

    def _wanted(self, order: Order) -> bool:
        return bool(self._page[0] == order.number != self._page[CANCEL])

    def _take_up(self, number: int, step: int) -> None:
        order = self._read(number)
        if order is None:
            self._odd += 1
            if self._odd < TRIES:
                return
        self._seen, self._odd = number, 0
        if order is None:
            return
        for word in range(STATE, LAST + 1):
            self._page[word] = 0
        if not self._wanted(order):
            self._answer(number, CANCELLED, "")
            return
        why = self._others()
        if self._writer is not None and self._writer.is_alive():
            why = "the trace of its last profile is still being written"
        if why:
            self._answer(number, REFUSED, why)
            return
        self._order = order
        if not self._warm:
            self._warm_up(order)
        if self._order is not None:
            self._answer(number, READY, "")

    def _read(self, number: int) -> Order | None:
        """The order on the page; None: it is none, or not all of one."""
        page = self._page
        words = [int(page[word]) for word in range(6)]
        check = MAGIC
        for word in words:
            check ^= word
        name = bytes(page[ID : ID + ID_BYTES // 8]).partition(b"\0")[0]
        odd = set(name) - set(b"0123456789abcdefghijklmnopqrstuvwxyz-")
        if check or words[0] != number or page[0] != number or not name or odd:
            return None
        order = Order(number, words[1], words[2], words[3], words[4], name.decode())
        fits = 0 < order.steps <= MOST_STEPS and order.first <= MOST_STEP and order.options < 8
        return order if fits else None

    # The profiler

    def _others(self) -> str:
        """Why none may be begun here; empty: one may."""
        torch = sys.modules["torch"]
        if any(name in os.environ for name in NSYS):
            return "nsys profiles it"
        if torch.autograd._profiler_enabled() or getattr(
            sys.modules["torch.autograd.profiler"], "_is_profiler_enabled", False
        ):
            return "its program runs torch's profiler"
        made = torch.profiler.profile
        kinds = made, *made.__subclasses__()
        for each in gc.get_referrers(*kinds):
            action = getattr(each, "current_action", None) if type(each) in kinds else None
            if getattr(action, "name", "") == "WARMUP":
                return "its program is about to run torch's profiler"
        if sys.getprofile() is not None:
            return "a Python profiler runs in it (sys.setprofile)"
        if sys.gettrace() is not None:
            return "a debugger or tracer runs in it (sys.settrace)"
        monitoring = getattr(sys, "monitoring", None)
        tools = [monitoring.get_tool(number) for number in range(6)] if monitoring is not None else []
        for tool in tools:
            if tool is not None and tool != OURS:
                return "%s runs in it (sys.monitoring)" % tool
        if threading.current_thread() is not threading.main_thread():
            return "its steps end in a thread that is not the main one"
        if torch._C._current_graph_task_id() != -1:
            return "its optimizer steps in the middle of the backward pass"
        return ""

    def _new(self, options: int) -> Any:
        torch = sys.modules["torch"]
        profiler: Any = torch.profiler
        activities = [profiler.ProfilerActivity.CPU]
        gpu = profiler.ProfilerActivity.CUDA
        if torch.cuda.is_initialized() and gpu in profiler.supported_activities():
            activities.append(gpu)
        return profiler._KinetoProfile(
            activities=activities,
            record_shapes=bool(options & SHAPES),
            with_stack=bool(options & STACK),
            profile_memory=bool(options & MEMORY),
        )

    def _warm_up(self, order: Order) -> None:
        """The profiler's first start takes long, and prints unless told not to: it only listens then."""
        began = time.monotonic_ns()
        profile = self._hold(order)
        given = QUIET in os.environ
        try:
            if not given:
                os.environ[QUIET] = "6"
            self._masked(profile.start)
            self._masked(profile.stop)
        finally:
            if not given:
                os.environ.pop(QUIET, None)
        self._profile, self._warm = None, True
        self._page[WARM_NS] = time.monotonic_ns() - began

    def _hold(self, order: Order) -> Any:
        profile = self._new(order.options)
        self._profile, self._thread = profile, _thread.get_ident()
        return profile

    def _begin(self, order: Order) -> None:
        why = self._others()
        if why:
            self._give_up(REFUSED, why)
            return
        self._masked(self._hold(order).start)
        self._give_way()
        self._step = order.first - 1
        self._page[BEGAN], self._page[BEGAN + 1] = time.time_ns(), time.monotonic_ns()
        self._page[STATE] = PROFILING
        self._enter()

    def _enter(self) -> None:
        module: Any = sys.modules["torch.autograd.profiler"]
        self._mark = module.record_function("ProfilerStep#%d" % (self._step + 1))
        self._mark.__enter__()

    def _continue(self, order: Order, step: int) -> None:
        if _thread.get_ident() != self._thread:
            self._profile = None  # only that thread could stop it
            self._give_up(FAILED, "its steps end in another thread than before")
        elif step != self._step + 1:
            self._give_up(FAILED, "step %d came after step %d" % (step, self._step))
        else:
            self._leave_step()
            self._step = step
            if step < order.first + order.steps - 1:
                self._enter()
            else:
                self._finish(order)

    def _leave_step(self) -> None:
        mark, self._mark = self._mark, None
        if mark is not None:
            mark.__exit__(None, None, None)

    def _finish(self, order: Order) -> None:
        page, profile = self._page, self._profile
        page[ENDED], page[ENDED + 1], page[LAST] = time.time_ns(), time.monotonic_ns(), self._step
        page[STATE] = STOPPING
        profile.add_metadata_json("cockpit", json.dumps(self._facts(order)))
        self._take_back()
        began = time.monotonic_ns()
        self._masked(profile.stop)
        self._profile = None
        page[STOP_NS] = time.monotonic_ns() - began
        page[STATE] = WRITING
        # Python waits for it as it ends: what is in torch's code then could end the process otherwise.
        self._writer = threading.Thread(
            target=self._write, args=(order, profile), name="cockpit-profile", daemon=False
        )
        self._masked(self._writer.start)
        self._order = None

    def _facts(self, order: Order) -> dict[str, Any]:
        page = self._page
        return {
            "run": self._named()[0],
            "node": self._named()[1],
            "rank": self._rank,
            "pid": self._pid,
            "torch": str(sys.modules["torch"].__version__),
            "id": order.id,
            "first": order.first,
            "steps": order.steps,
            "began_wall_ns": page[BEGAN],
            "began_ns": page[BEGAN + 1],
            "ended_wall_ns": page[ENDED],
            "ended_ns": page[ENDED + 1],
        }

    # Its end before the end

    def _give_up(self, state: int, why: str) -> None:
        """End what is in effect, and throw away what there is of it."""
        order, profile, mark = self._order, self._profile, self._mark
        self._order = self._profile = self._mark = None
        self._busy = False
        if profile is not None:
            self._take_back()
            with contextlib.suppress(Exception):
                if mark is not None:
                    mark.__exit__(None, None, None)
                if sys.modules["torch"].autograd._profiler_enabled():  # else it has not begun, or has stopped
                    self._masked(profile.stop)
        if order is not None:
            self._answer(order.number, state, why)

    def _leave(self, why: str) -> None:
        """The same before something that must not meet it."""
        here = os.getpid(), _thread.get_ident()
        if self._profile is not None and here == (self._pid, self._thread):
            self._give_up(FAILED, why)

    def _forked(self) -> None:
        """A child would wait for the parent's thread of torch's as it ends: what follows Python's own end is
        left out there, but for what C has still to write."""
        if self._warm:
            with contextlib.suppress(Exception):
                libc = ctypes.CDLL(None)
                for last in (libc._exit, libc.fcloseall):  # called with the exit status, the later one first
                    libc.on_exit(last, None)

    def _give_way(self) -> None:
        """Until it ends, whatever begins torch's profiler in the program ends ours first."""
        module: Any = sys.modules["torch.autograd.profiler"]
        for name in ("_prepare_profiler", "_enable_profiler"):
            given = self._given[name] = getattr(module, name)
            setattr(module, name, self._giving_way(given))

    def _giving_way(self, given: Any) -> Any:
        def begin(*arguments: Any, **named: Any) -> Any:
            self._leave("its program began to run torch's profiler")
            return given(*arguments, **named)

        return begin

    def _take_back(self) -> None:
        while self._given:
            name, given = self._given.popitem()
            setattr(sys.modules["torch.autograd.profiler"], name, given)

    # The file

    def _write(self, order: Order, profile: Any) -> None:
        """In a thread of its own; nobody is there who could be told of an error."""
        try:
            self._page[BYTES] = self._written(order, profile)
            state, why = WRITTEN, ""
        except Cancelled:
            state, why = CANCELLED, ""
        except Exception as error:
            state, why = FAILED, "the trace could not be written: %s" % _why(error)
        if self._page[0] == order.number:
            self._answer(order.number, state, why)

    def _written(self, order: Order, profile: Any) -> int:
        """Write it, packed; return how large that is."""
        folder = os.path.join(self._run_folder, "reports")
        name = os.path.join(folder, self._file_name(order))
        plain, part = name + ".part", name + ".gz.part"
        disk = os.statvfs(folder)
        free = disk.f_bavail * disk.f_frsize
        if free < FLOOR:
            raise OSError(0, "only %d MB free on its disk" % (free // 1_000_000))
        try:
            began = time.monotonic_ns()
            profile.export_chrome_trace(plain)  # meanwhile no other Python runs
            self._page[STOP_NS] += time.monotonic_ns() - began
            if not os.path.exists(plain):
                raise OSError(0, "torch could not save it (disk full?)")
            size = self._packed(order, plain, part)
            os.rename(part, name + ".gz")
            return size
        finally:
            for path in (plain, plain + ".tmp", part):  # torch writes .tmp first
                with contextlib.suppress(OSError):
                    os.unlink(path)

    def _packed(self, order: Order, plain: str, part: str) -> int:
        size, pack = 0, zlib.compressobj(1, zlib.DEFLATED, 31)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        last = b""
        with open(plain, "rb") as source, os.fdopen(os.open(part, flags, 0o600), "wb") as target:
            while True:
                if not self._wanted(order):
                    raise Cancelled
                data = source.read(CHUNK)
                size += target.write(pack.compress(data) if data else pack.flush())
                if not data:
                    break
                last = data[-64:]
        if not last.rstrip().endswith(b"}"):
            raise OSError(0, "torch saved only a part of it (disk full?)")
        return size

    def _named(self) -> tuple[str, str]:
        """Run and node."""
        above, node = os.path.split(self._run_folder)
        run = os.path.basename(above)
        return os.environ.get("COCKPIT_RUN") or run, os.environ.get("COCKPIT_NODE") or node

    def _file_name(self, order: Order) -> str:
        """Without ``.gz``."""
        whose = ".".join(self._named()).replace("/", "_").encode("utf-8", "replace")
        what = ".rank-%d.torch.step-%d.%s.trace.json" % (self._rank, order.first, order.id)
        return whose[: 255 - len(what + ".gz.part")].decode("utf-8", "ignore") + what


def _why(error: BaseException) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return "%s: %s" % (type(error).__name__, text) if not isinstance(error, OSError) else text
