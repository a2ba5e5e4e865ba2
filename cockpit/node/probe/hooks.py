"""What the probe does once torch is there: torch's own worker server on a unix socket, and a ring of steps.

Read as a file by ``sitecustomize`` into the Python of a rank; its layout of the ring is that of
:mod:`cockpit.base.progress.ring`. Whatever goes wrong ends in ``<rank>.<pid>.json``, from where the
supervisor takes it into the run record, and never in the program.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import json
import mmap
import os
import sys
import time
import weakref
from typing import Any, Callable

MAGIC, VERSION, HEADER_WORDS, RECORD_WORDS, CAPACITY, MARKS = 0x434B505452494E47, 3, 16, 4, 508, 4095
ORDER = HEADER_WORDS + RECORD_WORDS * CAPACITY + 1 + MARKS
"""The first word of the page by which profiles are ordered: the number of the order."""
SIZE = 8 * (ORDER + 512)
ANSWER, WHY, WHY_WORDS, FAILED = ORDER + 16, ORDER + 32, 32, 8
OPTIMIZER, DEEPSPEED = 1, 2
UPDATE_END = 5

RECORDERS = ("fr_trace_json", "dump_nccl_trace_json")
"""Handlers of the server that give what the flight recorder has."""

BUFFERS = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
"""How many entries the recorder keeps; the second is what older versions read, and newer ones warn about."""
DUMP_FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
BUFFER = "2000"
FR_NAMES, RECORDS_ITSELF = (2, 8), (2, 11)
"""The torch that knows the first name; the torch that records without being told to."""

MOST_OPTIMIZERS = 4096
PATIENCE, AGAIN = 64, 2
"""Steps that an optimizer makes while the one whose steps count makes none, until its own count instead; and
one whose steps counted before."""
MOST_LEADERS = 16


class Ring:
    """The rank's side of its ring: it only ever stores words in memory, unless a profile is ordered.

    :param profiling: makes what profiles, for this ring
    :param interrupted: see :class:`Hooks`
    :raises OSError: it cannot be made
    """

    def __init__(
        self,
        path: str,
        rank: int,
        ticks: int,
        profiling: Callable[[Ring], Any] | None = None,
        interrupted: Callable[[Exception], bool] = lambda error: False,
    ) -> None:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            # All of it now: a page that a full file system cannot give later is a SIGBUS, and the rank's end.
            os.posix_fallocate(number, 0, SIZE)
            memory = mmap.mmap(number, SIZE)
        except BaseException:
            os.unlink(path)
            raise
        finally:
            os.close(number)
        self.words = memoryview(memory).cast("Q")
        _keep(self)
        self.window: Callable[[int], bool] | None = None
        """Told of each step; False: of no more."""
        self.count = self.order = 0
        """How many steps were written; the order that nothing is to be done to."""
        self._profiling, self._interrupted = profiling, interrupted
        self._profiles: Any = None
        self.words[1], self.words[2], self.words[3], self.words[4] = VERSION, rank, os.getpid(), ticks
        self.words[0] = MAGIC

    def add(self, step: int) -> None:
        """A step has just ended."""
        words, wall, mono = self.words, time.time_ns(), time.monotonic_ns()
        at = HEADER_WORDS + self.count % CAPACITY * RECORD_WORDS
        words[at] = step
        words[at + 1] = wall
        words[at + 2] = mono
        words[at + 3] = step ^ wall ^ mono ^ MAGIC
        self.count += 1
        words[6] = self.count
        if words[ORDER] != self.order:
            self._profile(step)
        if self.window is not None and not self.window(step):
            self.window = None

    def _profile(self, step: int) -> None:
        """A profile is ordered, or being made."""
        try:
            if self._profiles is None and self._profiling is not None:
                self._profiles = self._profiling(self)
            self.order = self._profiles.stepped(step)
        except Exception as error:
            if self._interrupted(error):
                raise
            self.order = self.words[ORDER]
            self.answer(self.order, FAILED, _why(error))

    def answer(self, number: int, state: int, why: str) -> None:
        """What became of the order of that number."""
        self._write(WHY, WHY_WORDS, why)
        self.words[ANSWER + 1] = state
        self.words[ANSWER] = number

    def broke(self, error: BaseException) -> None:
        """Nothing more will be written."""
        self._write(8, 8, _why(error))
        self.words[7] = 1

    def _write(self, at: int, words: int, text: str) -> None:
        data = text.encode("utf-8", "replace")[: 8 * words - 1]
        for place in range(words):
            part = data[8 * place : 8 * place + 8].ljust(8, b"\0")
            self.words[at + place] = int.from_bytes(part, sys.byteorder)


class Steps:
    """Counts steps, whoever tells of them; the first error of its own is the last thing it does.

    Nothing here calls code of others. What raises in the middle of it all the same, such as the handler of a
    signal, is the program's, which gets it; whatever it cut short, the next step is counted right.
    """

    def __init__(self, ring: Ring) -> None:
        self.ring = self._ring = ring
        self._pid = os.getpid()
        self._armed = True
        self._step = 0
        self._owner = 0
        self._deepspeed = False
        self.hook: object = None
        """What tells of optimizers; one that was registered before it is not listened to."""
        self._leaders: list[Any] = []
        """Optimizers whose steps counted in turn, by mark and weak reference; those of the last one do."""
        self._others: dict[int, int] = {}
        """How many steps others made since."""
        self.marks: Any = None
        """Marks of where it is in its step; None: none are written."""

    @property
    def words(self) -> Any:
        """Of its ring."""
        return self._ring.words

    def source(self, number: int) -> None:
        """What counts from here on."""
        self._ring.words[5] = number

    def optimizer(self, optimizer: object) -> None:
        """An optimizer made its step: it is one of training if it is that of the optimizer that began.

        Others may step beside it (for each parameter there may be one), or for a while on their own, as in an
        evaluation, and on one rank alone: if these counted, a number would mean another step on each rank.
        """
        if self.marks is not None:
            self.marks.add(UPDATE_END)
        if not self._armed or self._deepspeed or os.getpid() != self._pid:
            return
        try:
            if self._leads(optimizer):
                self._others.clear()
                self._trains_here()
                self._step += 1
                self._ring.add(self._step)
        except Exception as error:
            if not _is_ours(error):
                raise
            self._disarm(error)

    def _leads(self, optimizer: object) -> bool:
        """Whether this one's steps count: they did last, or the one whose did is gone, or seems to rest."""
        leaders, mark = self._leaders, id(optimizer)
        if leaders and leaders[-1][0] == mark and leaders[-1][1]() is not None:
            return True
        while leaders and leaders[-1][1]() is None:
            leaders.pop()
        if leaders:
            if len(self._others) >= MOST_OPTIMIZERS:
                self._others.clear()
            count = self._others[mark] = self._others.get(mark, 0) + 1
            before = [place for place, (old, _) in enumerate(leaders) if old == mark]
            if count < (AGAIN if before else PATIENCE):
                return False
            del leaders[before[0] if before else MOST_LEADERS :]
        leaders.append((mark, _reference(optimizer)))
        return True

    def engine(self, engine: object, step: int) -> None:
        """A DeepSpeed engine says at which step it is: from here on, only engines count."""
        if not self._armed or os.getpid() != self._pid:
            return
        try:
            if not self._deepspeed:
                self._deepspeed, self._step = True, 0
                self.source(DEEPSPEED)
            # Several engines in one process step together; an older checkpoint takes its own engine back.
            if step > self._step or (id(engine) == self._owner and 0 < step < self._step):
                self._step, self._owner = step, id(engine)
                self._trains_here()
                self._ring.add(step)
        except Exception as error:
            if not _is_ours(error):
                raise
            self._disarm(error)

    def _trains_here(self) -> None:
        """The thread that ends a step is the one whose phases are marked."""
        if self.marks is not None:
            self.marks.thread = _thread.get_ident()

    def broke(self, error: Exception) -> None:
        """A mark could not be written."""
        with contextlib.suppress(Exception):
            self._ring.broke(error)

    def _disarm(self, error: Exception) -> None:
        self._armed = False
        self.broke(error)


class GlobalSteps:
    """Stands for an attribute of a class of engines, and sees it being set.

    There is no ``__get__``: reading it finds the engine's own value, as without us.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def __set__(self, engine: Any, value: Any) -> None:
        engine.__dict__["global_steps"] = value
        self._steps.engine(engine, value)

    def __delete__(self, engine: Any) -> None:
        try:
            del engine.__dict__["global_steps"]
        except KeyError:
            raise AttributeError("global_steps") from None


class Hooks:
    """The probe of this process.

    :param folder: for sockets and what goes wrong
    :param mode: ``auto``; ``on``: the server is started even if it has no flight recorder
    :param rings: the folder of rings, in memory; empty: there is none
    :param interrupted: whether an error is one of the program's, raised in the middle of what is done here.
        The program gets it, and what it cut short can be done again
    :param window: see ``windows.py``; empty: there is none
    """

    def __init__(
        self,
        folder: str,
        mode: str,
        rank: int,
        rings: str,
        interrupted: Callable[[Exception], bool],
        window: str = "",
    ) -> None:
        self._folder = folder
        self._mode = mode
        self._rank = rank
        self._name = "%d.%d" % (rank, os.getpid())
        self._interrupted = interrupted
        self._window = window
        self._steps: Any = None
        self._marking: dict[str, Any] = {}
        """What ``marks.py`` defines."""
        self._servers: list[Any] = []
        """The server, and ``None`` once it has begun."""
        _keep(self._servers)
        self._told: dict[str, Any] = {"rank": rank, "pid": os.getpid(), "ticks": _ticks()}
        self._told.update(torch="", server="", handlers=[], steps="", phases="", window="", rendezvous="")
        try:
            for number in range(3):
                os.fstat(number)
        except OSError:
            # What we open would become it, and get what the program writes there.
            self._told["steps"] = self._told["server"] = "stdin, stdout or stderr is closed"
        self._importing = False
        """It has been said that torch is being imported."""
        self._attempt("steps", self._make_ring, rings)

    def _make_ring(self, rings: str) -> None:
        if not rings:
            raise OSError("there is no memory file system at /dev/shm")
        path = os.path.join(rings, self._name + ".ring")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # we were cut short
        ticks = self._told["ticks"]
        self._steps = Steps(Ring(path, self._rank, ticks, self._profiles, self._interrupted))

    def _profiles(self, ring: Ring) -> Any:
        """What profiles, for the first order of one."""
        made, masked = _beside("profiling.py")["Profiles"], _beside("server.py")["masked"]
        page = ring.words[ORDER:]
        if self._marking:
            self._marking["hide"](sys.modules, (made,))
        return made(page, ring.answer, self._rank, self._folder, self._interrupted, masked)

    def before_torch(self) -> None:
        """Torch is about to be imported: say so, and switch its recorder on where that takes a variable."""
        version = _torch_version()
        if version and not self._importing:  # else there is none, and the program may do without
            self._importing = True
            self._tell()
        if not (() < version < RECORDS_ITSELF) or any(name in os.environ for name in BUFFERS):
            return
        # NCCL then also dumps it at a timeout, by default into the home folder or /tmp.
        if not any(name in os.environ for name in DUMP_FILES):
            os.environ.update(dict.fromkeys(DUMP_FILES, os.path.join(self._folder, "nccl_trace_rank_")))
        os.environ[BUFFERS[version < FR_NAMES]] = BUFFER

    def after(self, module: Any) -> None:
        """Torch, or DeepSpeed's module of engines, has been imported."""
        if module.__name__ == "torch":
            self._told["torch"] = str(getattr(module, "__version__", ""))
            self._attempt("steps", self._optimizers, module)
            self._attempt("phases", self._phases)
            self._attempt("rendezvous", self._note_rendezvous)
            self._attempt("server", self._server)
            self._attempt("window", self._begin_window, module)
        else:
            self._attempt("steps", self._engines, module)
            self._attempt("phases", self._phases_of_engines, module)
        self._tell()

    def _attempt(self, what: str, do: Any, *arguments: Any) -> None:
        """Do a part of something, unless an earlier part of it has failed."""
        try:
            if not self._told[what]:
                do(*arguments)
        except Exception as error:
            if self._interrupted(error):
                raise
            self._told[what] = _why(error)

    def _begin_window(self, torch: Any) -> None:
        if not self._window or self._steps.ring.window is not None:
            return
        window = _beside("windows.py")["made"](self._window, torch.cuda)

        def stepped(step: int) -> bool:
            try:
                return bool(window.stepped(step))
            except Exception as error:
                if self._interrupted(error):
                    raise
                self._told["window"] = _why(error)
                self._tell()
                return False

        self._steps.ring.window = stepped

    def _engines(self, module: Any) -> None:
        module.DeepSpeedEngine.global_steps = GlobalSteps(self._steps)

    def _optimizers(self, torch: Any) -> None:
        steps, compiling = self._steps, torch.compiler.is_compiling

        def stepped(optimizer: object, args: object, kwargs: object) -> None:
            # A compiler that reads more than this would have to understand it.
            if not compiling() and steps.hook is stepped:
                steps.optimizer(optimizer)

        steps.hook = stepped
        # torch.optim has no name for this module of its own.
        sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(stepped)
        steps.source(OPTIMIZER)

    def _note_rendezvous(self) -> None:
        if self._told["steps"]:
            self._told["rendezvous"] = "no steps are noted"
        else:
            self._told["rendezvous"] = _beside("rendezvous.py")["arm"](self._steps.words, sys.modules)

    def _phases(self) -> None:
        if self._told["steps"]:
            self._told["phases"] = "no steps are noted"
        elif self._steps.marks is None:
            made = self._marking = _beside("marks.py")
            marks = made["Marks"](self._steps.words, self._steps.broke)
            self._told["phases"] = made["arm"](marks, sys.modules, (Steps, Ring))
            self._steps.marks = marks

    def _phases_of_engines(self, module: Any) -> None:
        self._marking["arm_engine"](self._steps.marks, module.DeepSpeedEngine)

    # The server

    def _server(self) -> None:
        from torch._C import _distributed_c10d as c10d

        listed = getattr(c10d, "_get_handler_names", None)
        if listed is not None:
            self._told["handlers"] = sorted(map(str, listed()))
            if self._lacks_recorder():
                return
        lacking = _beside("room.py")["lacking"]()
        if lacking:
            self._told["server"] = "no room for its threads: %s" % lacking
            return
        server = _beside("server.py")
        name = self._name + ".sock"
        number = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # The plain path may exceed the limit of 107 bytes.
            address = "/proc/self/fd/%d/%s" % (number, name)
            # Each in one go, so that who is cut short knows what was done. It is kept before it begins: a
            # server that is let go of ends the rank, also one that could not begin.
            if not self._servers:
                self._servers.extend(map(c10d._WorkerServer.__new__, (c10d._WorkerServer,)))
            if len(self._servers) == 1:
                begin = self._servers[0].__init__
                server["unheard"](lambda: self._servers.extend(map(begin, (address,))))
            if listed is None:
                self._told["handlers"] = server["offered"](address)
                if self._lacks_recorder():
                    os.unlink(address)  # nobody can connect any more; to shut it down could end the rank
                    return
        finally:
            os.close(number)

    def _lacks_recorder(self) -> bool:
        if self._mode == "on" or any(name in self._told["handlers"] for name in RECORDERS):
            return False
        self._told["server"] = "torch %s has no handler for its flight recorder" % self._told["torch"]
        return True

    def _tell(self) -> None:
        path = os.path.join(self._folder, self._name + ".json")
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            number = os.open(path + ".tmp", flags, 0o600)
            with os.fdopen(number, "w") as file:
                json.dump(self._told, file)
            os.rename(path + ".tmp", path)
        except OSError:
            pass  # a full disk, or a folder that is gone: then nobody is told


def _torch_version() -> tuple[int, ...]:
    """Of the torch that would be imported; nothing: not known."""
    for place in sys.path:
        try:
            with open(os.path.join(place, "torch", "version.py"), "rb") as file:
                text = file.read(4096)
        except OSError:
            continue
        found = text.partition(b"__version__ = '")[2].split(b".")[:2]
        return tuple(int(part) for part in found if part.isdigit())
    return ()


def _beside(name: str) -> dict[str, Any]:
    """What a file in our folder defines."""
    source = os.path.join(os.path.dirname(__file__), name)
    with open(source, "rb") as file:
        code = compile(file.read(), source, "exec")
    space: dict[str, Any] = {"__name__": "cockpit_probe"}
    exec(code, space)
    return space


def _reference(value: object) -> Any:
    """What gives it for as long as it is there; what takes no such reference seems to be there for ever."""
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: True


def _keep(value: Any) -> None:
    """Let it live until the end of the process, and be destroyed never.

    A child that was forked and ends would else shut down the server's listening socket, which both have, and
    the server then ends the rank (SIGABRT).
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


def _ticks() -> int:
    """When this process was started, in clock ticks since boot."""
    with open("/proc/self/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def _is_ours(error: Exception) -> bool:
    """Whether code of this file raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is None or trace.tb_frame.f_globals is globals()


def _why(error: BaseException) -> str:
    return ("%s: %s" % (type(error).__name__, error))[:300]
