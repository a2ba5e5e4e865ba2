"""Attach to what runs in pods: ranks, the stacks of a hang, logs byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kube.real import jobs, pods
from tests.kube.real.pods import Cockpit, Object
from tests.waiting import until

pytestmark = [pytest.mark.slow]

Make = Callable[[dict[str, Any]], Object]


def written(names: list[str]) -> list[bytes]:
    """What the ranks of torchrun have written so far, pod by pod, in order of their content."""
    find = "cat /tmp/logs/*/attempt_0/0/stdout.log"
    return sorted(pods.asked("exec", name, "--", "sh", "-c", find).encode() for name in names)


def test_the_hung_rank_of_a_jobs_torchrun_is_named_and_its_logs_are_exact(
    make: Make, user: Cockpit, tmp_path: Path
) -> None:
    job = make(jobs.torchrun("hang"))
    names = job.running()
    until(lambda: any("it hangs" in pods.asked("logs", name) for name in names), "a hang")

    def judged() -> dict[str, Any] | None:
        done = user.run("stacks", "--k8s", job.word, "--json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found if found["verdict"]["certainty"] == "sure" else None

    found = until(judged, "a sure verdict")
    assert found is not None
    assert found["verdict"]["ranks"] == "0", found["verdict"]
    assert "hang" in found["verdict"]["where"]
    assert sorted(found["ranks"]) == ["0", "1", "2"]
    assert len({rank["node"] for rank in found["ranks"].values()}) == 3

    out = tmp_path / "attach"
    process = user.start(out, "attach", "--k8s", job.word, "--name", "hang", "--headless", "--json")
    try:

        def exact() -> bool:
            assert process.poll() is None, out.read_text()
            logs = written(names)
            return all(logs) and [log for log in user.spooled("hang") if log in logs] == logs

        until(exact, "the logs of all ranks here, byte for byte")
    finally:
        process.terminate()
        process.wait()


COUNTS = """
import time
for step in range(1, 301):
    print("step", step, "loss", 1 / step, flush=True)
    time.sleep(0.02)
time.sleep(1000)
"""


def test_output_of_a_container_is_here_byte_for_byte(make: Make, user: Cockpit, tmp_path: Path) -> None:
    make(jobs.alone("says", COUNTS, into="")).running()
    process = user.start(tmp_path / "attach", "attach", "-w", "pod/says", "--name", "says", "--headless")
    try:
        until(lambda: "step 300 loss" in pods.asked("logs", "says"), "its last line")
        whole = pods.asked("logs", "says").encode()
        until(lambda: whole in user.spooled("says"), "the same here")
    finally:
        process.terminate()
        process.wait()


def test_the_ranks_of_a_job_are_listed_and_looked_into(make: Make, user: Cockpit, tmp_path: Path) -> None:
    pod = make(jobs.alone("alone"))
    pod.running()
    until(lambda: b"step 3\n" in pods.read("alone", "/tmp/out.log"), "three steps")
    out = tmp_path / "attach"
    process = user.start(out, "attach", "-w", "pod/alone", "--name", "alone", "--headless", "--json")
    try:
        until(lambda: any(each.get("event") == "sample" for each in pods.events(out)), "a sample")
        told = json.loads(user.run("ps", "alone", "--json").stdout)
        assert [rank["text"] for rank in told["ranks"]] == ["running"], told
        doctor = user.run("doctor", "-w", "pod/alone")
        assert "Traceback" not in doctor.stderr
        assert "alone" in doctor.stdout, doctor.stderr
    finally:
        process.terminate()
        process.wait()
