"""What a real kubectl and a real API server refuse, in cockpit's words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kube.cluster import cluster
from tests.kube.real import jobs, pods
from tests.kube.real.pods import Cockpit, Object
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.slow]

Make = Callable[[dict[str, Any]], Object]

EATS = """
import time
print("step 1", flush=True)
held = []
for _ in range(400):
    held.append(bytearray(b"x" * (1 << 20)))
    time.sleep(0.02)
"""


def refused(user: Cockpit, *words: str) -> str:
    """What ``ps`` of pods says when it cannot be had."""
    done = user.run("stacks", *words, timeout=PATIENCE_S)
    assert done.returncode not in (0, 1), done
    assert "Traceback" not in done.stderr
    return done.stderr


def test_one_who_may_only_look_is_told_which_right_is_missing(make: Make, tmp_path: Path) -> None:
    make(jobs.alone("looked")).running()
    said = refused(Cockpit(tmp_path / "viewer", "viewer"), "-w", "pod/looked")
    assert "create" in said
    assert "pods/exec" in said


def test_a_context_that_nobody_has(tmp_path: Path) -> None:
    said = refused(Cockpit(tmp_path / "none", "nowhere"), "-w", "pod/any")
    assert "nowhere" in said
    assert "context" in said


def test_a_namespace_that_is_somebody_elses(user: Cockpit) -> None:
    said = refused(user, "--k8s", "job/any", "-n", "kube-system")
    assert "kube-system" in said
    assert "forbidden" in said or "may not" in said


def test_a_pod_that_is_not_there(user: Cockpit) -> None:
    assert "nobody" in refused(user, "-w", "pod/nobody")


def test_a_pod_that_waits_for_a_node(make: Make, user: Cockpit) -> None:
    made = pods.pod("waits", ["sleep", "infinity"], nodeSelector={"kubernetes.io/hostname": "node9"})
    make(made)
    until(lambda: pods.shown("waits")[0]["status"].get("conditions"), "why it waits")
    said = refused(user, "-w", "pod/waits")
    assert "Pending" in said or "pending" in said
    assert "didn't match" in said


def test_an_image_that_is_nowhere(make: Make, user: Cockpit) -> None:
    made = pods.pod("pulls", ["sleep", "infinity"])
    made["spec"]["containers"][0]["image"] = "docker.io/lab/other:1"
    make(made)
    until(
        lambda: "ErrImageNeverPull" in pods.asked("get", "pods", "pulls", "-o", "json"),
        "why it does not start",
    )
    assert "ErrImageNeverPull" in refused(user, "-w", "pod/pulls")


def test_a_container_that_a_pod_does_not_have(make: Make, user: Cockpit) -> None:
    make(jobs.alone("other")).running()
    said = refused(user, "-w", "pod/other:side")
    assert "side" in said
    assert "main" in said


def test_an_image_without_a_shell(make: Make, user: Cockpit) -> None:
    make(pods.pod("bare", ["/pause"], bare=True)).running()
    assert "/bin/sh" in refused(user, "-w", "pod/bare")


def test_an_image_without_python(make: Make, user: Cockpit) -> None:
    made = pods.pod("shell", ["sleep", "infinity"])
    make(made).running()
    said = refused(user, "-w", "pod/shell", "--python", "/no/such/python3")
    assert "/no/such/python3" in said


def test_an_api_server_that_is_gone(make: Make, user: Cockpit) -> None:
    make(jobs.alone("cut")).running()
    cluster.hold("kube-apiserver")
    try:
        until(lambda: cluster.kubectl("get", "--raw=/readyz").returncode != 0, "the end of the API server")
        said = refused(user, "-w", "pod/cut")
        assert "API server" in said
    finally:
        cluster.release("kube-apiserver")
        until(lambda: cluster.kubectl("get", "--raw=/readyz").returncode == 0, "the API server")


def test_a_container_that_is_killed_for_its_memory(make: Make, user: Cockpit, tmp_path: Path) -> None:
    pod = make(jobs.alone("eats", EATS, memory="96Mi"))
    pod.running()
    out = tmp_path / "attach"
    process = user.start(out, "attach", "-w", "pod/eats", "--name", "eats", "--headless")
    try:
        until(lambda: "OOMKilled" in out.read_text(), "what killed it")
    finally:
        process.terminate()
        process.wait()
