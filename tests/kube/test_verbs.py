"""Verbs on pods behind the stub of kubectl: each is what it is over ssh."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.kube.stub import Stub, shown
from tests.waiting import until

INDEX = "batch.kubernetes.io/job-completion-index"
TRAIN = """
import os, time
for step in range(100_000):
    print("step", step, "of rank", os.environ["RANK"], flush=True)
    time.sleep(0.1)
"""


FORBIDDEN = (
    'Error from server (Forbidden): pods "train-0" is forbidden: User "ada" cannot get resource '
    '"pods/log" in API group "" in the namespace "ml"'
)


class Cockpit:
    """One on this machine, whose kubectl is the stub."""

    def __init__(self, home: Path, stub: Stub, quick: tuple[str, ...]) -> None:
        self._quick = quick
        self._env = {**os.environ, "PATH": stub.path, "XDG_STATE_HOME": str(home / "state")}
        self._home = home
        self._all: list[subprocess.Popen[bytes]] = []

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A verb to its end."""
        return subprocess.run(
            [*self._quick, *words],
            env=self._env,
            cwd=self._home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def start(self, *words: str) -> Path:
        """A verb that goes on; the file with all it says."""
        out = self._home / f"out{len(self._all)}"
        with out.open("wb") as file:
            made = subprocess.Popen(
                [*self._quick, *words],
                env=self._env,
                cwd=self._home,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self._all.append(made)
        return out

    def close(self) -> None:
        """End what goes on."""
        for each in self._all:
            each.kill()
            each.wait()


@pytest.fixture
def cockpit(tmp_path: Path, stub: Stub, quick_cockpit: tuple[str, ...]) -> Iterator[Cockpit]:
    """A cockpit; its processes end with the test."""
    made = Cockpit(tmp_path, stub, quick_cockpit)
    yield made
    made.close()


@pytest.fixture
def idle(stub: Stub) -> Stub:
    """A StatefulSet of two pods that idle."""
    stub.own("statefulset", "idle", {"app": "idle"})
    for index in range(2):
        stub.start(shown(f"idle-{index}", labels={"app": "idle"}, owner=("StatefulSet", "idle")))
    return stub


RUN = ("run", "--k8s", "sts/idle", "--slots", "1", "--launcher", "command", "--name", "one", "--headless")


def test_a_run_in_pods_that_idle(idle: Stub, cockpit: Cockpit, tmp_path: Path) -> None:
    file = tmp_path / "written"
    done = cockpit.run(*RUN, "--", "/bin/sh", "-c", f"echo hello $RANK; echo $RANK >{file}.$RANK")
    assert done.returncode == 0, done
    assert "idle-0:0" in done.stdout
    assert "hello 1" in done.stdout
    assert "a run in pods ends with its containers" in done.stderr
    fetched = cockpit.run("collect", "one", f"{file}.*", "-o", str(tmp_path / "here"))
    assert fetched.returncode == 0, fetched
    assert sorted(each.read_text() for each in (tmp_path / "here").rglob("written.*")) == ["0\n", "1\n"]


@pytest.mark.slow
def test_a_run_is_left_and_stopped(idle: Stub, cockpit: Cockpit, tmp_path: Path) -> None:
    out = cockpit.start(*RUN, "--", "/bin/sh", "-c", "echo up $RANK; exec sleep infinity")
    until(lambda: out.read_text().count("up") >= 2, "both ranks")
    cockpit.close()
    said = cockpit.run("ps", "one")
    assert "running" in said.stdout
    assert "a run in pods ends with its containers" in said.stdout
    stopped = cockpit.run("stop", "one")
    assert stopped.returncode == 0, stopped
    assert "running" not in cockpit.run("ps", "one").stdout.splitlines()[0]


@pytest.mark.slow
def test_a_pod_that_is_deleted_under_a_run_is_lost_with_the_reason(
    idle: Stub, cockpit: Cockpit, tmp_path: Path
) -> None:
    out = cockpit.start(*RUN, "--", "/bin/sh", "-c", "echo up $RANK; exec sleep infinity")
    until(lambda: out.read_text().count("up") >= 2, "both ranks")
    idle.end("idle-1", phase="Failed", reason="Evicted", message="The node was low on resource: memory.")
    until(lambda: "Evicted" in out.read_text(), "the reason")
    cockpit.close()
    first, *rows = cockpit.run("ps", "one").stdout.splitlines()
    assert "running" in first, "the other pod's rank goes on"
    gone = "gone: pod idle-1 has ended: Failed: Evicted: The node was low on resource: memory."
    assert any(gone in row for row in rows), "\n".join(rows)
    assert cockpit.run("stop", "one").returncode in (0, 1)


@pytest.fixture
def training(stub: Stub, tmp_path: Path) -> Stub:
    """An Indexed Job of two ranks that write to files of their own."""
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    for index in range(2):
        labels = {"job-name": "train", INDEX: str(index)}
        said = (
            f"RANK={index} WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=a MASTER_PORT=1 "
            f"exec {sys.executable} {script} >{tmp_path}/rank{index}.log 2>&1"
        )
        stub.start(shown(f"train-{index}-abcde", labels=labels), said)
        until((tmp_path / f"rank{index}.log").exists)
    return stub


@pytest.mark.slow
def test_a_job_of_others_is_watched_and_its_eviction_is_named(
    training: Stub, cockpit: Cockpit, tmp_path: Path
) -> None:
    out = cockpit.start("attach", "--k8s", "job/train", "--headless", "--name", "seen")
    until(lambda: all(f"train-{index}:{index}" in out.read_text() for index in range(2)), "lines of both")
    training.end("train-1-abcde", phase="Failed", reason="Evicted")
    until(lambda: "has ended: Failed: Evicted" in out.read_text(), "why it is gone")
    last = len(out.read_text())
    until(lambda: "train-0:0" in out.read_text()[last:], "the other one goes on")
    cockpit.close()
    shown_now = cockpit.run("ps", "seen").stdout
    assert "gone: pod train-1-abcde has ended: Failed: Evicted" in shown_now


@pytest.mark.slow
def test_what_ranks_write_to_their_container_is_here_byte_for_byte(
    stub: Stub, cockpit: Cockpit, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    for index in range(2):
        labels = {"job-name": "train", INDEX: str(index)}
        env = f"RANK={index} WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=a MASTER_PORT=1"
        stub.start(shown(f"train-{index}-abcde", labels=labels), f"{env} exec {sys.executable} {script} 2>&1")
    for wanted in (20, 60):
        out = cockpit.start("attach", "--k8s", "job/train", "--headless", "--name", "seen")
        until(partial(has, tmp_path, wanted, out), "lines of rank 1, also on the screen")
        cockpit.close()
    for rank in range(2):
        lines = list(spooled(tmp_path, rank))
        assert lines == [f"step {step} of rank {rank}" for step in range(len(lines))], (
            "none twice, none missing"
        )


@pytest.mark.slow
def test_who_may_not_read_logs_is_told_so_and_the_last_words_of_a_container_are_here(
    stub: Stub, cockpit: Cockpit, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    script = tmp_path / "train.py"
    script.write_text(
        f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.1)\nraise OSError(7)"
    )
    env = "RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=a MASTER_PORT=1"
    stub.start(shown("train-0", labels={"app": "x"}), f"{env} exec {sys.executable} {script} 2>&1")
    stub.say("nologs", FORBIDDEN)
    out = cockpit.start("attach", "--k8s", "app=x", "--headless", "--name", "seen")
    until(lambda: "ada may not get pods/log in namespace ml" in out.read_text(), "what is forbidden")
    stub.say("nologs", "")
    cockpit.close()
    out = cockpit.start("attach", "--k8s", "app=x", "--headless", "--name", "seen")
    until(lambda: [words for words in stub.calls if words[0] == "logs"][1:], "the second try")
    go.touch()
    until(lambda: "OSError: 7" in out.read_text(), "the last line before the container ended")


def has(home: Path, lines: int, out: Path) -> bool:
    """Whether so many lines of rank 1 are here, and some were printed."""
    return len(list(spooled(home, 1))) > lines and "train-1:1" in out.read_text()


def spooled(home: Path, rank: int) -> Iterator[str]:
    """The whole lines of a rank's log, as it is here."""
    for log in (home / "state" / "cockpit" / "runs" / "seen").glob(f"spool/*/rank-{rank}.log"):
        yield from log.read_text().rpartition("\n")[0].splitlines()


@pytest.mark.slow
def test_stacks_of_a_job_of_others(training: Stub, cockpit: Cockpit) -> None:
    done = cockpit.run("stacks", "-w", "pod/train-[0-1]-abcde", "-n", "ml")
    assert done.returncode == 0, done
    assert "train.py" in done.stdout
    assert "2 ranks on 2 nodes" in done.stderr
    assert "cockpit stacks -w 'pod/train-[0-1]-abcde' -n ml" in done.stdout, "what to type next leads there"


def test_what_is_wrong_with_each_pod_is_one_line(stub: Stub, cockpit: Cockpit) -> None:
    unfit = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes\x1b[2J",
    }
    stub.start(shown("a-0", labels={"app": "x"}))
    stub.show(shown("a-1", labels={"app": "x"}, phase="Pending", conditions=[unfit]))
    done = cockpit.run("run", "--k8s", "app=x", "--slots", "1", "--launcher", "command", "--", "true")
    assert done.returncode == 3, done
    assert "a-1: pod a-1 is Pending: Unschedulable: 0/3 nodes" in done.stderr
    assert "a-0:" not in done.stderr
    assert "\x1b" not in done.stderr
    assert "Traceback" not in done.stderr


def test_plan_says_what_ends_a_run_in_pods(idle: Stub, cockpit: Cockpit) -> None:
    done = cockpit.run("plan", "--k8s", "sts/idle", "--slots", "1", "--launcher", "command", "--", "true")
    assert done.returncode == 0, done
    assert "note: a run in pods ends with its containers" in done.stderr
    assert not [words for words in idle.calls if "exec" in words], "it contacts no node"


@pytest.mark.slow
def test_the_limit_of_a_volume_is_the_room_of_a_run(tmp_path: Path, stub: Stub, cockpit: Cockpit) -> None:
    """Its file system has more, but the pod would be evicted."""
    volume = tmp_path / "it's scratch"
    volume.mkdir()
    (volume / "data").write_bytes(bytes(3 << 20))
    for name, limit in (("small", "4Mi"), ("large", "1Gi")):
        stub.start(shown(name, volumes={str(volume): limit}))
    words = ("--slots", "1", "--launcher", "command", "--node-dir", str(volume / "runs"), "--headless")
    done = cockpit.run("run", "-w", "pod/small", *words, "--", "true")
    assert done.returncode != 0
    assert f"no room for run folders in {volume}" in done.stderr, done.stderr
    done = cockpit.run("run", "-w", "pod/large", *words, "--", "true")
    assert done.returncode == 0, done.stderr


def test_doctor_looks_into_pods(idle: Stub, cockpit: Cockpit) -> None:
    done = cockpit.run("doctor", "-w", "pod/idle-[0-1]", "--slots", "1", "--launcher", "command", "--json")
    assert "Traceback" not in done.stderr
    assert json.loads(done.stdout)["nodes"] == ["idle-0", "idle-1"]
