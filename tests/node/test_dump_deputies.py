"""Who works while the main thread waits, what is polled and for how long: real processes, a real py-spy."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from cockpit.base.stacks.dump import Dump
from cockpit.core.stacks.classes import movement
from cockpit.node.stacks import idle, kernel
from tests.needs import beyond
from tests.node import spies
from tests.waiting import until

PROGRAM = """
import concurrent.futures, os, select, selectors, socket, subprocess, sys, threading, time

def trains(path=""):
    print(flush=True)
    time.sleep(1000)

def polls_flag(lock_path):
    print(flush=True)
    while os.path.exists(lock_path):
        # until whoever has it is through
        time.sleep(0.05)

def main(kind, folder):
    if kind == "join":
        thread = threading.Thread(target=trains)
        thread.start()
        thread.join()
    if kind == "future":
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            pool.submit(trains).result()
    if kind == "idle thread":
        threading.Thread(target=trains, daemon=True).start()
        time.sleep(1000)
    if kind == "child":
        subprocess.run([sys.executable, __file__, "inner", folder])
    if kind == "other rank":
        subprocess.run([sys.executable, __file__, "inner", folder], env={**os.environ, "RANK": "3"})
    if kind == "inner":
        trains()
    if kind == "selects":
        server = socket.create_server(("127.0.0.1", 0))
        print(flush=True)
        select.select([server], [], [])
    if kind == "epolls":
        server, selector = socket.create_server(("127.0.0.1", 0)), selectors.EpollSelector()
        selector.register(server, selectors.EVENT_READ)
        print(flush=True)
        selector.select()
    if kind == "receives":
        here, there = socket.socketpair()
        print(flush=True)
        here.recv(1)
    if kind == "works":
        print(flush=True)
        subprocess.run(["sh", "-c", "while :; do :; done"])
    if kind in ("stale", "held"):
        polls_flag(os.path.join(folder, kind + ".lock"))

main(*sys.argv[1:])
"""

KINDS = (
    *("join", "future", "idle thread", "child", "other rank", "stale", "held"),
    *("selects", "epolls", "receives", "works"),
)

POLLING = ("stale", "held")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    spies.forget(monkeypatch)


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Dump]]]:
    """Three dumps of each, some time after it has come to rest; in the last one those that poll pause."""
    folder = tmp_path_factory.mktemp("deputies")
    script = folder / "train.py"
    script.write_text(PROGRAM)
    for name in ("stale", "held"):
        (folder / f"{name}.lock").touch()
    os.utime(folder / "stale.lock", (1, time.time() - 3600))
    env = {**os.environ, "RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1"}
    started = [
        subprocess.Popen([sys.executable, str(script), kind, str(folder)], stdout=subprocess.PIPE, env=env)
        for kind in KINDS
    ]
    with spies.ending(started):
        for process in started:
            assert process.stdout
            assert process.stdout.readline() == b"\n"
            spies.in_state(process.pid, "S")
        with (folder / "held.lock").open() as _:
            looks = [spies.look(*(process.pid for process in started)) for _ in range(3)]
            # On a busy machine one that is to ask again may wait for a CPU whenever it is looked at.

            def paused() -> bool:
                looks.append(spies.look(*(process.pid for process in started)))
                return pause(looks[-1])

            until(lambda: pause(looks[-1]) or paused(), "those that poll pause")
        yield {kind: [look[place] for look in looks[-3:]] for place, kind in enumerate(KINDS)}


def pause(look: Sequence[Dump]) -> bool:
    """Whether those that poll are in a pause, as far as the kernel said before py-spy came."""
    calls = [dump.main and dump.main.call for kind, dump in zip(KINDS, look, strict=True) if kind in POLLING]
    return calls == ["clock_nanosleep"] * len(POLLING)


@pytest.mark.parametrize(("kind", "deputy"), [("join", "thread"), ("future", "thread"), ("child", "child")])
def test_whoever_works_for_the_main_thread_is_looked_at(
    dumps: dict[str, list[Dump]], kind: str, deputy: str
) -> None:
    found = dumps[kind][-1]
    assert found.deputy is not None
    assert (found.deputy.kind, found.frames[-1].name) == (deputy, "trains")
    assert found.threads[0].frames[-1].name != "trains"
    assert found.source == "time.sleep(1000)"
    assert found.main is not None
    assert (found.main.call, found.main.state) == ("clock_nanosleep", "S")
    assert found.deputy.process.switches_after >= found.deputy.process.switches > 0


@pytest.mark.parametrize("kind", ["idle thread", "other rank", "stale"])
def test_who_only_runs_beside_it_is_not(dumps: dict[str, list[Dump]], kind: str) -> None:
    assert dumps[kind][-1].deputy is None


def test_what_sampling_causes_is_no_movement_and_polling_is(dumps: dict[str, list[Dump]]) -> None:
    assert {kind: movement(each) for kind, each in dumps.items()} == {
        **dict.fromkeys(KINDS, "frozen"),
        **dict.fromkeys(POLLING, "polls"),
        "works": "moving",
    }


def test_that_somebody_else_looks_brings_no_data(dumps: dict[str, list[Dump]]) -> None:
    first, second, last = dumps["receives"]
    assert second.process is not None
    assert movement([first, last]) == "polls"  # woken by the look between
    assert movement([first, second]) == "frozen"


@pytest.mark.parametrize(("kind", "call"), [("selects", ("select", "pselect6")), ("epolls", ("epoll_wait",))])
def test_what_a_server_waits_for_is_told(dumps: dict[str, list[Dump]], kind: str, call: tuple[str]) -> None:
    found = dumps[kind][-1].process
    assert found is not None
    assert found.call in call
    assert found.target == "listening socket"


def test_processes_below_that_work_are_seen_to(dumps: dict[str, list[Dump]]) -> None:
    first, *_, last = (each.process for each in dumps["works"])
    assert first is not None
    assert last is not None
    assert last.below_s > first.below_s
    assert dumps["join"][-1].process.below_s == 0  # type: ignore[union-attr]


def test_the_file_of_a_lock_that_is_polled_is_named(dumps: dict[str, list[Dump]]) -> None:
    stale, held = dumps["stale"][-1].lock, dumps["held"][-1].lock
    assert stale is not None
    assert held is not None
    assert (os.path.basename(stale.path), stale.holder) == ("stale.lock", 0)
    assert stale.age_s > 3500
    assert (os.path.basename(held.path), held.holder) == ("held.lock", os.getpid())
    assert dumps["stale"][-1].loop == "while os.path.exists(lock_path):"
    assert [kind for kind in KINDS if dumps[kind][-1].lock] == ["stale", "held"]


def test_a_lock_is_named_though_its_poller_was_awake_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two pauses it asks for the file, and may wait for a CPU for long."""
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "held.lock").touch()
    look = kernel.look

    def awake(pid: int, ticks: int) -> kernel.ProcessFacts | None:
        found = look(pid, ticks)
        return found and found._replace(process=found.process._replace(state="R", call="", wchan=""))

    monkeypatch.setattr(kernel, "look", awake)
    command = [sys.executable, str(tmp_path / "train.py"), "held", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        try:
            assert process.stdout.readline() == b"\n"
            looks = (spies.look(process.pid)[0] for _ in itertools.count())
            found = until(lambda: next((one for one in [next(looks)] if one.lock), None), "the lock is named")
        finally:
            process.kill()
    assert found is not None
    assert found.lock is not None
    assert found.lock.path == str(tmp_path / "held.lock")
    assert found.process is not None
    assert found.process.call == ""


def test_for_how_long_a_thread_has_slept() -> None:
    began = time.monotonic()
    with subprocess.Popen(["sleep", "100"]) as process:
        spies.in_state(process.pid, "S")
        slept_s = 0.0
        while slept_s < 0.5:
            slept_s = idle.seconds(process.pid, process.pid)
            if slept_s < 0:
                beyond("this kernel does not say when a thread ran last")
            time.sleep(0.05)
        assert slept_s <= time.monotonic() - began
        affinity = os.sched_getaffinity(0)
        assert affinity == os.sched_getaffinity(os.getpid())
        process.kill()
    assert idle.seconds(process.pid, process.pid) == -1


def test_a_lock_nobody_can_name_is_none(tmp_path: Path) -> None:
    from cockpit.base.stacks.dump import Frame
    from cockpit.node.stacks import locks

    frames = (Frame("wait", "torch/utils/file_baton.py", 3),)
    assert locks.file_of(os.getpid(), frames, ()) is None
    gone = {"lock_file": f"'{tmp_path}/gone.lock'"}
    assert locks.file_of(os.getpid(), frames, (gone,)) is None
    (tmp_path / "lock").touch()
    found = locks.file_of(os.getpid(), frames, ({"build_directory": f"'{tmp_path}'"},))
    assert found is not None
    assert found.path == f"{tmp_path}/lock"
