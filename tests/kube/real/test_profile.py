"""nsys in pods, and volumes that are too small for it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kube.real import jobs, pods
from tests.kube.real.pods import Cockpit, Object
from tests.needs import require
from tests.waiting import until

pytestmark = pytest.mark.slow

Make = Callable[[dict[str, Any]], Object]
ENDS = "import time\nfor step in range(1, 31):\n    print('step', step, flush=True)\n    time.sleep(0.1)\n"
FULL = """
import time
open("/scratch/much", "wb").write(bytes(64 << 20))
print("written", flush=True)
time.sleep(10**6)
"""


@pytest.mark.parametrize(("options", "reports"), [((), 2), (("--per-rank",), 4)], ids=["pod", "rank"])
def test_nsys_reports_come_out_of_pods(
    options: tuple[str, ...], reports: int, make: Make, user: Cockpit
) -> None:
    nsys = require("nsys")
    idle = make(pods.stateful("traced", 2, scratch="8Gi"))
    idle.running()
    words = [
        "run",
        "--k8s",
        idle.word,
        "--name",
        "traced",
        "--slots",
        "2",
        "--launcher",
        "command",
        "--headless",
    ]
    words += ["--node-dir", f"{pods.SCRATCH}/runs", "--profile", "nsys", "--trace", "osrt", *options]
    done = user.run(*words, "--nsys", nsys, "--", "python3", "-u", "-c", ENDS)
    assert done.returncode == 0, done.stderr
    found = sorted(user.folder("traced").rglob("*.nsys-rep"))
    assert len(found) == reports, done.stderr
    there = "find /scratch -name '*.nsys-rep' | xargs sha256sum"
    sums = {
        line.split()[0]
        for name in pods.names("traced")
        for line in pods.asked("exec", name, "--", "sh", "-c", there).splitlines()
    }
    assert {hashlib.sha256(path.read_bytes()).hexdigest() for path in found} == sums


def test_a_volume_that_is_too_small_for_a_report_is_left_alone(
    make: Make, user: Cockpit, tmp_path: Path
) -> None:
    """Its file system has room enough, and its pod would be evicted."""
    require("nsys")
    idle = make(pods.stateful("small", 1, scratch="300Mi"))
    idle.running()
    words = [
        "run",
        "--k8s",
        idle.word,
        "--name",
        "small",
        "--slots",
        "1",
        "--launcher",
        "command",
        "--headless",
    ]
    words += ["--node-dir", f"{pods.SCRATCH}/runs", "--profile", "nsys-ready", "--trace", "osrt"]
    out = tmp_path / "run"
    process = user.start(out, *words, program=["python3", "-u", "-c", jobs.TRAINS])
    try:
        until(lambda: b"step 3\n" in b"".join(user.spooled("small")), "it trains")
        done = user.run("profile", "small", "--kind", "nsys", "--seconds", "2")
        assert done.returncode != 0
        assert "too little room for reports on small-0" in done.stderr, done.stderr
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_an_evicted_pod_is_named_with_the_kubelets_words(make: Make, user: Cockpit, tmp_path: Path) -> None:
    make(jobs.alone("full", FULL, into="", scratch="16Mi")).running()
    out = tmp_path / "attach"
    process = user.start(out, "attach", "-w", "pod/full", "--name", "full", "--headless")
    try:
        until(lambda: "pod full has ended: Failed: Evicted: " in out.read_text(), "the eviction")
        assert 'Usage of EmptyDir volume "scratch" exceeds the limit "16Mi"' in out.read_text()
        assert b"written\n" in b"".join(user.spooled("full"))
        told = json.loads(user.run("ps", "full", "--json").stdout)
        assert "Evicted" in json.dumps(told), told
    finally:
        process.kill()
        process.wait()
