"""Exceptions of the program, raised in the middle of the probe's code: it gets them, and all goes on."""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cockpit.base.progress import ring
from cockpit.node.probe import hooks, server, sitecustomize
from tests.open_files import open_files


class LateError(Exception):
    """Raised by the program's handler."""


def late(number: int, frame: object) -> None:
    """The program's handler."""
    raise LateError


def drops(number: int, frame: object) -> None:
    """One that needs no frame."""
    del number, frame
    raise LateError


class Program:
    """Something that handles signals."""

    def late(self, *told: object) -> None:
        """A method."""
        late(*told)  # type: ignore[arg-type]

    def __call__(self, number: int, frame: object) -> None:
        raise LateError


HANDLERS: dict[str, Any] = {
    "function": late,
    "method": Program().late,
    "object": Program(),
    "partial": functools.partial(Program.late, Program()),
    "any arguments": lambda *told: late(*told),
    "no frame kept": drops,
}


def interrupt() -> None:
    """A signal comes."""
    signal.raise_signal(signal.SIGUSR2)


@pytest.fixture(params=HANDLERS)
def handled(request: pytest.FixtureRequest) -> Iterator[None]:
    """The program handles a signal, in one way or another."""
    before = signal.signal(signal.SIGUSR2, HANDLERS[request.param])
    yield
    signal.signal(signal.SIGUSR2, before)


class Interrupted:
    """A ring to which nothing is added at the first attempt."""

    def __init__(self, made: hooks.Ring) -> None:
        self._made = made
        self.words, self.broke = made.words, made.broke
        self._left = 1

    def add(self, step: int) -> None:
        """A step has just ended."""
        if self._left:
            self._left = 0
            interrupt()
        self._made.add(step)


def numbers(path: Path) -> list[int]:
    """The steps of a ring on which the hook has not given up."""
    found = ring.read(path.read_bytes())
    assert found.broken == ""
    return [step.step for step in found.steps]


@pytest.mark.usefixtures("handled")
def test_of_an_optimizer(tmp_path: Path) -> None:
    steps = hooks.Steps(Interrupted(hooks.Ring(str(tmp_path / "r"), 0, 1)))  # type: ignore[arg-type]
    both = object(), object()
    with pytest.raises(LateError):
        steps.optimizer(both[0])
    for made in (both[1], *both, *both):
        steps.optimizer(made)
    assert numbers(tmp_path / "r") == [2, 3]


@pytest.mark.usefixtures("handled")
def test_of_an_engine(tmp_path: Path) -> None:
    steps = hooks.Steps(Interrupted(hooks.Ring(str(tmp_path / "r"), 0, 1)))  # type: ignore[arg-type]
    engine = object()
    with pytest.raises(LateError):
        steps.engine(engine, 1)
    for step in (2, 3):
        steps.engine(engine, step)
    assert numbers(tmp_path / "r") == [2, 3]


def test_an_error_of_the_hook_itself_ends_it(tmp_path: Path) -> None:
    steps = hooks.Steps(hooks.Ring(str(tmp_path / "r"), 0, 1))
    steps.engine(object(), "no number")  # type: ignore[arg-type]
    assert ring.read((tmp_path / "r").read_bytes()).broken.startswith("TypeError: ")
    steps.engine(object(), 1)
    assert ring.read((tmp_path / "r").read_bytes()).steps == ()


def a_torch(register: Callable[[Any], object]) -> types.ModuleType:
    """A torch without a server."""
    torch = types.ModuleType("torch")
    torch.compiler = types.SimpleNamespace(is_compiling=lambda: False)  # type: ignore[attr-defined]
    module = types.ModuleType("torch.optim.optimizer")
    module.register_optimizer_step_post_hook = register  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    return torch


@pytest.fixture
def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> hooks.Hooks:
    """The probe of this process, with nothing to serve."""
    monkeypatch.setitem(sys.modules, "torch.optim.optimizer", types.ModuleType("none"))
    monkeypatch.setattr(hooks.Hooks, "_server", lambda self: None)
    return hooks.Hooks(str(tmp_path), "auto", 3, str(tmp_path), sitecustomize.interrupted)


def told(folder: Path) -> dict[str, Any]:
    """What it says of itself."""
    said: dict[str, Any] = json.loads((folder / f"3.{os.getpid()}.json").read_text())
    return said


@pytest.mark.usefixtures("handled")
@pytest.mark.parametrize("registered", [False, True])
def test_of_arming(tmp_path: Path, probe: hooks.Hooks, registered: bool) -> None:
    """It is done again, and no step is counted twice."""
    asked: list[Any] = []
    made: list[Any] = []

    def register(hook: Any) -> None:
        asked.append(hook)
        if registered or len(asked) > 1:
            made.append(hook)
        if len(asked) == 1:
            interrupt()

    torch = a_torch(register)
    with pytest.raises(LateError):
        probe.after(torch)
    probe.after(torch)
    assert (told(tmp_path)["steps"], told(tmp_path)["server"]) == ("", "")
    one = object()
    for _ in range(3):
        for hook in made:
            hook(one, (), {})
    assert numbers(tmp_path / f"3.{os.getpid()}.ring") == [1, 2, 3]


def test_an_error_of_torch_is_not_the_programs(tmp_path: Path, probe: hooks.Hooks) -> None:
    def register(hook: Any) -> None:
        json.dumps(object())

    probe.after(a_torch(register))
    assert told(tmp_path)["steps"].startswith("TypeError: Object of type object is not")


@pytest.mark.usefixtures("handled")
def test_of_making_the_ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def keep(value: object) -> None:
        if isinstance(value, hooks.Ring):
            interrupt()

    with monkeypatch.context() as patch:
        patch.setattr(hooks, "_keep", keep)
        with pytest.raises(LateError):
            hooks.Hooks(str(tmp_path), "auto", 3, str(tmp_path), sitecustomize.interrupted)
    again = hooks.Hooks(str(tmp_path), "auto", 3, str(tmp_path), sitecustomize.interrupted)
    again.after(types.ModuleType("deepspeed.runtime.engine"))
    assert "DeepSpeedEngine" in told(tmp_path)["steps"], "there is a ring, and none of its engines"


def test_of_a_debugger() -> None:
    def trace(frame: types.FrameType, event: str, told: object) -> Any:
        if frame.f_code is os.path.join.__code__:
            raise LateError
        return None

    def traced() -> None:
        before = sys.gettrace()
        try:
            sys.settrace(trace)
            os.path.join("a", "b")
        finally:
            sys.settrace(before)

    with pytest.raises(LateError) as raised:
        traced()
    assert sitecustomize.interrupted(raised.value)  # type: ignore[no-untyped-call]


def test_threads_of_the_server_get_no_signal_whatever_interrupts() -> None:
    masks: list[set[Any]] = []
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    before = signal.signal(signal.SIGUSR2, late)
    files = open_files()

    def start() -> None:
        thread = threading.Thread(target=lambda: masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
        thread.start()
        thread.join()
        interrupt()

    try:
        with pytest.raises(LateError):
            server.unheard(start)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked
    assert {signal.SIGUSR1, signal.SIGTERM, signal.SIGALRM, signal.SIGPROF} <= masks[0]
    assert signal.SIGSEGV not in masks[0]
    assert not open_files() - files, "those of earlier tests may be closed meanwhile"
