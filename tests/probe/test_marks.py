"""Marks, in code that is like torch's where they look; test_phases has the real one."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from cockpit.base.progress import ring
from cockpit.node.probe import hooks
from cockpit.node.probe import marks as probe

LOADER = """
from contextlib import nullcontext as record_function

class _BaseDataLoaderIter:
    def __init__(self, items):
        self._items = items
        self._num_yielded = 0
        self._profile_name = "enumerate"

    def __iter__(self):
        return self

    def __next__(self):
        with record_function(self._profile_name):
            data = next(self._items)
            self._num_yielded += 1
            return data

class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    def __init__(self, items):
        super().__init__(items)
        self._worker_pids_set = False
        self._num_yielded = 0
        self._worker_pids_set = True

    def __next__(self):
        try:
            return super().__next__()
        except StopIteration:
            if self._worker_pids_set:
                self._worker_pids_set = False
            raise
"""

GRAPH = """
import logging
log = logging.getLogger("marks of a test")
logged = []

def _engine_run_backward(engine):
    attach_logging_hooks = log.getEffectiveLevel() <= logging.DEBUG
    if attach_logging_hooks:
        logged.append("before")
    try:
        return engine.run_backward()
    finally:
        if attach_logging_hooks:
            logged.append("after")
"""

LOOKS_ONCE = GRAPH.replace(
    "        if attach_logging_hooks:\n            logged", "        if True:\n            logged"
)


class Frames:
    """The compiler's way to pass code over."""

    class _FrameAction:
        SKIP, DEFAULT = "skip", "default"

    def __init__(self) -> None:
        self.skipped: list[str] = []

    def _FrameExecStrategy(self, this: str, called: str) -> tuple[str, str]:
        return this, called

    def set_code_exec_strategy(self, code: Any, strategy: tuple[str, str]) -> None:
        assert strategy == ("skip", "default")
        self.skipped.append(code.co_qualname if sys.version_info >= (3, 11) else code.co_name)


def module(text: str) -> Any:
    made = ModuleType("made")
    exec(text, vars(made))
    return made


class Torch:
    """As much of it as is looked at, and the marks."""

    def __init__(self, loader: str = LOADER, graph: str = GRAPH) -> None:
        self.words = [0] * (probe.FIRST + 1 + probe.MARKS)
        self.broken: list[Exception] = []
        self.marks = probe.Marks(self.words, self.broken.append)
        self.frames = Frames()
        self.loader, self.graph = module(loader), module(graph)
        self.modules = {
            "torch": SimpleNamespace(_C=SimpleNamespace(_dynamo=SimpleNamespace(eval_frame=self.frames))),
            "torch.utils.data.dataloader": self.loader,
            "torch.autograd.graph": self.graph,
        }

    def arm(self) -> str:
        return probe.arm(self.marks, self.modules)

    def backward(self, run: Any = lambda: None) -> Any:
        return self.graph._engine_run_backward(SimpleNamespace(run_backward=run))

    @property
    def kinds(self) -> list[int]:
        return [word & 7 for word in self.words[probe.FIRST + 1 : probe.FIRST + 1 + self.words[probe.FIRST]]]


@pytest.fixture
def torch() -> Iterator[Torch]:
    yield Torch()
    logging.getLogger("marks of a test").setLevel(logging.NOTSET)


def test_a_loader_marks_what_it_is_asked_and_has(torch: Torch) -> None:
    plain = torch.loader._BaseDataLoaderIter(iter("ab"))
    list(plain)
    assert torch.arm() == ""
    made = torch.loader._BaseDataLoaderIter(iter("ab"))
    assert list(made) == ["a", "b"]
    assert torch.kinds == [probe.ITERATOR, *(2 * [probe.INPUT, probe.INPUT_END]), probe.INPUT]
    assert vars(made).keys() == vars(plain).keys()
    assert (made._num_yielded, made._profile_name) == (plain._num_yielded, plain._profile_name)
    with pytest.raises(AttributeError, match="_profile_name"):
        _ = torch.loader._BaseDataLoaderIter._profile_name
    with pytest.raises(AttributeError, match="_profile_name"):
        _ = torch.loader._BaseDataLoaderIter.__new__(torch.loader._BaseDataLoaderIter)._profile_name


def test_workers_are_marked_as_they_start_and_end(torch: Torch) -> None:
    torch.arm()
    made = torch.loader._MultiProcessingDataLoaderIter(iter("a"))
    assert list(made) == ["a"]
    assert made._worker_pids_set is False
    assert torch.kinds == [*(2 * [probe.ITERATOR]), probe.INPUT, probe.INPUT_END, probe.INPUT, probe.SHUT]


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO])
def test_a_backward_marks_its_beginning_and_end_and_logs_as_before(torch: Torch, level: int) -> None:
    log = torch.graph.log
    log.setLevel(level)
    assert torch.arm() == ""
    assert torch.backward(lambda: "done") == "done"
    assert torch.graph.logged == (["before", "after"] if level == logging.DEBUG else [])
    assert torch.kinds == [probe.BACKWARD, probe.BACKWARD_END]
    with pytest.raises(ZeroDivisionError):
        torch.backward(lambda: 1 / 0)
    torch.backward(torch.backward)
    assert torch.kinds == [3, 4, 3, 4, 3, 3, 4, 4]
    assert torch.graph.log.name == log.name
    torch.graph.log.propagate = True
    assert torch.graph.log.isEnabledFor(logging.DEBUG) == (level == logging.DEBUG)


def test_an_error_of_ours_reaches_nobody_and_ends_marks(torch: Torch) -> None:
    torch.arm()
    torch.words.clear()
    assert list(torch.loader._BaseDataLoaderIter(iter("ab"))) == ["a", "b"]
    torch.backward()
    assert [type(error) for error in torch.broken] == [IndexError]
    assert not torch.marks.armed


def test_what_is_armed_twice_marks_once(torch: Torch) -> None:
    """As after an arming that was cut short."""
    assert torch.arm() == torch.arm() == ""
    list(torch.loader._BaseDataLoaderIter(iter("a")))
    torch.backward()
    assert torch.kinds == [6, 1, 2, 1, 3, 4]


@pytest.mark.parametrize(
    ("made", "lacks"),
    [
        (Torch(loader=LOADER.replace("_profile_name", "_name")), "input"),
        (Torch(loader=LOADER.replace("_num_yielded", "_number")), "input"),
        (Torch(loader=LOADER + "\n_BaseDataLoaderIter._num_yielded = property()\n"), "input"),
        (Torch(loader=""), "input"),
        (Torch(graph=LOOKS_ONCE), "backward"),
        (Torch(graph=GRAPH.replace("getEffectiveLevel()", "level")), "backward"),
        (Torch(graph=""), "backward"),
        (Torch("", ""), "input and backward"),
    ],
)
def test_another_torch_is_left_alone_and_it_says_what_lacks(made: Torch, lacks: str) -> None:
    log, loader = vars(made.graph).get("log"), vars(made.loader).get("_BaseDataLoaderIter")
    members = set(vars(loader)) if loader else set()
    assert made.arm() == f"this torch gives no sign of its {lacks}"
    if "backward" in lacks:
        assert vars(made.graph).get("log") is log
    if "input" in lacks and loader:
        assert set(vars(loader)) == members


def test_a_torch_that_would_compile_them_gets_none(torch: Torch) -> None:
    del torch.modules["torch"]
    assert torch.arm() == "this torch would compile what notes them"
    list(torch.loader._BaseDataLoaderIter(iter("a")))
    torch.backward()
    assert torch.kinds == []


def test_all_code_that_marks_is_passed_over_by_the_compiler(torch: Torch) -> None:
    torch.arm()
    classes = [
        each for each in vars(probe).values() if isinstance(each, type) and each.__module__ == probe.__name__
    ]
    functions = [
        each
        for of in classes
        for each in vars(of).values()
        if hasattr(getattr(each, "__func__", each), "__code__")
    ]
    assert len(torch.frames.skipped) == len(functions) > 15


def test_an_engine_is_in_its_backward_for_as_long_as_it_says(torch: Torch) -> None:
    class Engine:
        def __init__(self) -> None:
            self._running_engine_backward = False

    torch.arm()
    probe.arm_engine(torch.marks, Engine)
    probe.arm_engine(torch.marks, Engine)  # an arming was cut short
    made = Engine()
    made._running_engine_backward = True
    made._running_engine_backward = True  # one in another
    torch.backward()
    assert made._running_engine_backward
    made._running_engine_backward = False
    assert torch.kinds == [3, 3, 4, 4]
    assert vars(made) == {"_running_engine_backward": False}


def test_a_child_and_another_thread_leave_the_ring_as_it_is(tmp_path: Path) -> None:
    made = hooks.Ring(str(tmp_path / "ring"), 0, 0)
    one = probe.Marks(made.words, made.broke)
    one.add(probe.INPUT)
    child = os.fork()
    if not child:
        try:
            one.add(probe.INPUT_END)
            os._exit(int(one.armed))
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    other = threading.Thread(target=one.add, args=(probe.BACKWARD,))
    other.start()
    other.join()
    one.add(probe.UPDATE_END)
    found = ring.read((tmp_path / "ring").read_bytes()).marks
    assert [mark.kind for mark in found] == [probe.INPUT, probe.UPDATE_END]


def test_a_level_is_that_of_the_moment_and_each_comparison_marks_for_itself(torch: Torch) -> None:
    torch.arm()
    log, plain = torch.graph.log, logging.getLogger("marks of a test")
    plain.setLevel(logging.INFO)
    outer, inner = log.getEffectiveLevel() <= 10, log.getEffectiveLevel() <= 10
    assert [bool(outer), bool(inner), bool(inner), bool(outer)] == [False] * 4
    plain.setLevel(logging.DEBUG)
    assert log.getEffectiveLevel() == 10
    assert log.getEffectiveLevel() <= 10
    assert torch.kinds == [3, 3, 4, 4, 3]
