"""Marks of where a rank is in its step: its loader's next batch, autograd's backward, its optimizer's step.

Read as a file by ``hooks``; what is made of marks is in :mod:`cockpit.base.progress.phases`, their place in
the ring in :mod:`cockpit.base.progress.ring`. Nothing is wrapped, so that no traceback, no dump of stacks and
no compiler has a frame of ours in it. Instead, two places of torch's own code read something at the moments
that count, and what they read is ours:

- the iterators of its ``DataLoader`` set ``_num_yielded`` to nothing as they are made, read their
  ``_profile_name`` as they begin to get a batch, and set ``_num_yielded`` when they have it; those with
  workers set ``_worker_pids_set`` back when these have ended, at the end of an epoch;
- ``torch.autograd.graph._engine_run_backward`` asks its module's logger, before it runs, whether it logs, and
  looks at the answer again when it has run, with or without an error.

A DeepSpeed engine reduces gradients when autograd has run, which is of its backward, too: around both it sets
``_running_engine_backward``. Where code is not like that, there are no marks of it.
"""

from __future__ import annotations

import _thread
import functools
import os
import time
from typing import Any

INPUT, INPUT_END, BACKWARD, BACKWARD_END, UPDATE_END, ITERATOR, SHUT = range(1, 8)
FIRST, MARKS, LOADERS = 16 + 4 * 508, 4095, 16


class Marks:
    """Writes marks, until the first error of its own.

    :param words: of the ring
    :param broke: is told of that error
    """

    def __init__(self, words: Any, broke: Any) -> None:
        self._words = words
        self._broke = broke
        self._count = 0
        self._numbers: dict[int, int] = {}
        """Of loaders, by where they are; that in use last is last."""
        self.thread = _thread.get_ident()
        """The thread that trains; what others do, such as getting batches ahead, takes none of its time."""
        self.armed = True
        # A child has the same ring. To ask for the pid at each mark would be half of what it costs; and this
        # has no frame of ours, which a signal in the child could interrupt.
        os.register_at_fork(after_in_child=functools.partial(setattr, self, "armed", False))

    def add(self, kind: int, loader: object = None) -> None:
        """It is there now."""
        if not self.armed or _thread.get_ident() != self.thread:
            return
        try:
            words, count = self._words, self._count
            number = 0 if loader is None else self._number(id(loader))
            word = time.monotonic_ns() << 7 | number << 3 | kind
            words[FIRST + 1 + count % MARKS] = word & 0xFFFFFFFFFFFFFFFF
            self._count = words[FIRST] = count + 1
        except Exception as error:
            if not _is_ours(error):
                raise
            self.armed = False
            self._broke(error)

    def _number(self, place: int) -> int:
        """A loader's own among those in use; that in use longest ago gives up its own for a new one."""
        numbers = self._numbers
        number = numbers.pop(place, -1)
        if number < 0:
            number = len(numbers) if len(numbers) < LOADERS else numbers.pop(next(iter(numbers)))
        numbers[place] = number
        return number


class Asked:
    """Stands for ``_profile_name`` of a class of iterators, read as one of them gets its next batch."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks

    def __get__(self, iterator: Any, of: Any = None) -> Any:
        if iterator is None:
            raise AttributeError("_profile_name")
        try:
            name = iterator.__dict__["_profile_name"]
        except KeyError:
            raise AttributeError("_profile_name") from None
        self._marks.add(INPUT, iterator)
        return name

    def __set__(self, iterator: Any, value: Any) -> None:
        iterator.__dict__["_profile_name"] = value


class Answered:
    """Stands for ``_num_yielded`` of a class of iterators, which is set as each of them has its next batch.

    There is no ``__get__``: reading it finds the iterator's own value, as without us.
    """

    def __init__(self, marks: Marks) -> None:
        self._marks = marks

    def __set__(self, iterator: Any, value: Any) -> None:
        iterator.__dict__["_num_yielded"] = value
        self._marks.add(INPUT_END if value else ITERATOR, iterator)


class Shut:
    """Stands for ``_worker_pids_set`` of a class of iterators: set back as the last worker has ended."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks

    def __set__(self, iterator: Any, value: Any) -> None:
        before = iterator.__dict__.get("_worker_pids_set")
        iterator.__dict__["_worker_pids_set"] = value
        if before and not value:
            self._marks.add(SHUT, iterator)


class Running:
    """Stands for ``_running_engine_backward`` of a class of engines; like the above, it is set only."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks

    def __set__(self, engine: Any, value: Any) -> None:
        before = engine.__dict__.get("_running_engine_backward", False)
        engine.__dict__["_running_engine_backward"] = value
        if value is not before:
            self._marks.add(BACKWARD if value is True else BACKWARD_END)


class Log:
    """Stands for a logger in a module of torch's, and is like it."""

    def __init__(self, log: Any, marks: Marks) -> None:
        self.__dict__.update(_log=log, _marks=marks, _level=Level(log.getEffectiveLevel(), marks))

    def getEffectiveLevel(self) -> int:
        level = self._log.getEffectiveLevel()
        found: Level = self._level
        if found != level:
            found = self.__dict__["_level"] = Level(level, self._marks)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._log, name, value)


class Level(int):
    """A level of logging whose comparison marks when it is looked at."""

    def __new__(cls, level: int, marks: Marks) -> Level:
        made = int.__new__(cls, level)
        made._marks = marks
        return made

    _marks: Marks

    def __le__(self, other: int) -> Any:
        return Truth(int(self) <= other, self._marks)


class Truth:
    """Whether backwards are logged: looked at before one, and after it."""

    __slots__ = ("_looked", "_marks", "_truth")

    def __init__(self, truth: bool, marks: Marks) -> None:
        self._truth, self._marks, self._looked = truth, marks, False

    def __bool__(self) -> bool:
        looked, self._looked = self._looked, True
        self._marks.add(BACKWARD_END if looked else BACKWARD)
        return self._truth


def arm(marks: Marks, modules: Any, ours: Any = ()) -> str:
    """Have marks written; say what cannot be marked, empty: nothing.

    :param modules: those that are imported, by name
    :param ours: classes whose methods are called at a step, too
    """
    own = Marks, Asked, Answered, Shut, Running, Log, Level, Truth
    if not hide(modules, (*own, *ours)):
        return "this torch would compile what notes them"
    lacking = []
    if not _arm_loaders(marks, modules.get("torch.utils.data.dataloader")):
        lacking.append("input")
    if not _arm_backward(marks, modules.get("torch.autograd.graph")):
        lacking.append("backward")
    return "this torch gives no sign of its %s" % " and ".join(lacking) if lacking else ""


def arm_engine(marks: Marks, engine: Any) -> None:
    """The same of DeepSpeed's engines; of such as set no such thing, the rest of backward is update."""
    if not hasattr(engine, "_running_engine_backward"):
        engine._running_engine_backward = Running(marks)


def hide(modules: Any, ours: Any) -> bool:
    """Have the compiler pass these classes over: else each call of theirs were one more that it tries."""
    frames: Any = getattr(getattr(modules.get("torch"), "_C", None), "_dynamo", None)
    frames = getattr(frames, "eval_frame", None)
    if not hasattr(frames, "set_code_exec_strategy"):
        return False
    skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)
    for of in ours:
        for each in vars(of).values():
            plain = getattr(each, "__func__", each)  # __new__ is a static method
            if hasattr(plain, "__code__"):
                frames.set_code_exec_strategy(plain.__code__, skip)
    return True


def _arm_loaders(marks: Marks, module: Any) -> bool:
    iterator: Any = getattr(module, "_BaseDataLoaderIter", None)
    code = getattr(getattr(iterator, "__next__", None), "__code__", None)
    names = {"_profile_name", "_num_yielded"}
    if code is None or not names <= set(code.co_names):
        return False
    there = [type(vars(iterator)[name]).__name__ for name in names if name in vars(iterator)]
    if not {"Asked", "Answered"}.issuperset(there):  # those are ours: this was cut short
        return False
    iterator._profile_name = Asked(marks)
    iterator._num_yielded = Answered(marks)
    workers = getattr(module, "_MultiProcessingDataLoaderIter", None)
    # Without it the end of workers counts as other.
    if workers is not None and type(vars(workers).get("_worker_pids_set")).__name__ in ("NoneType", "Shut"):
        workers._worker_pids_set = Shut(marks)
    return True


def _arm_backward(marks: Marks, module: Any) -> bool:
    code = getattr(getattr(module, "_engine_run_backward", None), "__code__", None)
    if code is None or not _looks_twice(code):
        return False
    module.log = Log(vars(module.log).get("_log", module.log), marks)
    return True


def _looks_twice(code: Any) -> bool:
    """Whether it tests the logger's answer before it runs backwards, and again afterwards."""
    import dis  # torch has imported it

    names = [(each.opname, each.argval) for each in dis.get_instructions(code)]
    asked = next((at for at, (_, name) in enumerate(names) if name == "getEffectiveLevel"), len(names))
    kept = next((name for what, name in names[asked:] if what.startswith("STORE_FAST")), None)
    runs = next((at for at, (_, name) in enumerate(names) if name == "run_backward"), len(names))
    looks = [at for at, (what, name) in enumerate(names) if what.startswith("LOAD_FAST") and name == kept]
    return any(asked < at < runs for at in looks) and any(at > runs for at in looks)


def _is_ours(error: Exception) -> bool:
    """Whether code of this file raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is None or trace.tb_frame.f_globals is globals()
