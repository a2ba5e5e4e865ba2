"""Launch in pods that idle: leave, come back, fetch, stop."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kube.cluster import cluster
from tests.kube.real import jobs, pods
from tests.kube.real.pods import Cockpit, Object
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.slow]

Make = Callable[[dict[str, Any]], Object]


class Run:
    """A run of three ranks, one a pod, that goes on until somebody stops it."""

    def __init__(self, make: Make, user: Cockpit, out: Path) -> None:
        self.idle = make(pods.stateful("idle"))
        self.pods = self.idle.running()
        self.user, self.out = user, out
        words = ["run", "--k8s", self.idle.word, "--name", "train", "--slots", "1", "--launcher", "command"]
        words += ["--headless", "--failure-wait", "0"]
        program = ["python3", "-u", "-c", jobs.TRAINS]
        self.process = user.start(out, *words, program=program)
        until(self.trained, "all ranks train")

    def spooled(self) -> list[bytes]:
        return [log for log in self.user.spooled("train") if log.startswith(b"step 1\n")]

    def trained(self) -> bool:
        """Whether lines of all ranks are here."""
        assert self.process.poll() is None, self.out.read_text()
        return len(self.spooled()) == 3

    def written(self) -> list[bytes]:
        """The ranks' logs in the pods."""
        find = "cat $(find /tmp /root -name 'rank-*.log' -path '*train*' 2>/dev/null)"
        return [pods.asked("exec", name, "--", "sh", "-c", find).encode() for name in self.pods]

    def ps(self) -> dict[str, Any]:
        done = self.user.run("ps", "train", "--json")
        assert done.stdout, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def left(self) -> list[str]:
        """The pods in which a rank runs."""
        lines = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"
        return [
            name for name in self.pods if "print('step'" in pods.asked("exec", name, "--", "sh", "-c", lines)
        ]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def run(make: Make, user: Cockpit, tmp_path: Path) -> Iterator[Run]:
    """One that trains, watched."""
    made = Run(make, user, tmp_path / "run")
    yield made
    made.end()


def further(run: Run) -> None:
    """Return once every rank's log here has grown by lines that were not there."""
    before = [len(log) for log in run.spooled()]
    until(
        lambda: all(len(log) > old + 20 for log, old in zip(run.spooled(), before, strict=True)), "new lines"
    )


def assert_whole(run: Run) -> None:
    """No line here is lost, cut or doubled."""
    for log in run.spooled():
        lines = log.decode().rpartition("\n")[0].splitlines()
        assert lines == [f"step {number}" for number in range(1, len(lines) + 1)]


@pytest.mark.parametrize("user", ["kubectl", "kubectl-1.20"], indirect=True)
def test_a_run_is_left_and_found_again_and_stopped(run: Run) -> None:
    assert_whole(run)
    run.end()  # by SIGKILL: nobody said that the run is to go on
    told = run.ps()
    assert told["state"] == "running", told
    assert [rank["text"] for rank in told["ranks"]] == ["running"] * 3
    stacks = json.loads(run.user.run("stacks", "train", "--json").stdout)
    assert sorted(stacks["ranks"]) == ["0", "1", "2"]
    done = run.user.run("stop", "train", "--now")
    assert done.returncode == 0, done.stderr
    assert run.ps()["state"] != "running"
    done = run.user.run("logs", "train")
    assert "step 1\n" in done.stdout, done.stderr
    assert len(run.spooled()) == 3
    assert_whole(run)
    assert run.left() == []


def test_ctrl_c_leaves_all_ranks_and_sigterm_stops_them(run: Run) -> None:
    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(PATIENCE_S) == 130, run.out.read_text()
    assert run.left() == run.pods
    run.process = run.user.start(run.out, "attach", "train", "--headless")
    until(lambda: "step" in run.out.read_text(), "it is back")
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(PATIENCE_S) == 1, run.out.read_text()
    assert run.left() == []
    assert_whole(run)


def test_a_killed_kubectl_is_one_link_lost_for_a_moment(run: Run) -> None:
    killed = pods.children(run.process.pid, "kubectl")
    assert len(killed) == 3
    pods.kill(killed)
    until(lambda: len(set(pods.children(run.process.pid, "kubectl")) - set(killed)) == 3, "other kubectls")
    further(run)
    assert_whole(run)
    assert run.ps()["state"] == "running"


def test_an_api_server_that_is_away_for_half_a_minute_loses_nothing(run: Run) -> None:
    cluster.hold("kube-apiserver")
    try:
        until(lambda: cluster.kubectl("get", "--raw=/readyz").returncode != 0, "the end of the API server")
        until(lambda: "lost" in run.out.read_text() or "stale" in run.out.read_text(), "what is said of it")
        with pytest.raises(subprocess.TimeoutExpired):
            run.process.wait(30)  # it goes on, without any of its nodes
    finally:
        cluster.release("kube-apiserver")
    until(lambda: cluster.kubectl("get", "--raw=/readyz").returncode == 0, "the API server")
    further(run)
    assert_whole(run)
    told = run.ps()
    assert told["state"] == "running", told


def test_a_pod_that_is_deleted_in_mid_run_is_named_and_the_others_go_on(run: Run) -> None:
    gone = run.pods[1]
    pods.asked("delete", "pod", gone, "--grace-period=0", "--force")
    until(lambda: f"pod {gone} " in run.out.read_text(), "what is said of the pod")
    run.idle.running()  # another one of its name, in which nothing of the run is
    before = run.out.stat().st_size
    until(lambda: b"step" in run.out.read_bytes()[before:], "more of the others")
    assert "Traceback" not in run.out.read_text()
    told = run.ps()
    assert [rank["text"] for rank in told["ranks"]] == ["running", "gone", "running"]
    assert f"{gone} is a new container, started at" in str(told["nodes"][1]), told["nodes"]


def test_a_node_that_is_lost_is_stale_and_the_others_go_on(run: Run) -> None:
    """Kubernetes itself waits for minutes before it gives a node up."""
    lost = pods.node_of(run.pods[1])
    cluster.hold(lost)
    try:
        until(
            lambda: f"{run.pods[1]}: connection lost (the run continues)" in run.out.read_text(),
            "what is said of it",
        )
        until(lambda: lost not in cluster.ready(), "the node is not Ready")
        before = run.out.stat().st_size
        until(lambda: b"step" in run.out.read_bytes()[before:], "more of the others")
        told = run.ps()
        assert [rank["text"] for rank in told["ranks"]] == ["running"] * 3, "nobody knows better"
        assert [node["link"] for node in told["nodes"]] == ["ok", "stale", "ok"], told["nodes"]
        assert run.process.poll() is None
    finally:
        cluster.release(lost)
        until(lambda: lost in cluster.ready(), "the node is back")
    # Its containers went with its power, and the API server counts no restart of them.
    again = f"{run.pods[1]} is a new container, started at"
    until(lambda: again in run.out.read_text(), "what became of the container")
    assert run.process.poll() is None
    assert "Traceback" not in run.out.read_text()
