"""The cluster itself: three nodes, nothing of it outside."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kube.cluster import cluster, config
from tests.kube.real import pods
from tests.kube.real.pods import Object

pytestmark = [pytest.mark.slow]


def test_three_nodes_are_ready_and_a_job_is_spread_over_them(
    make: Callable[[dict[str, Any]], Object],
) -> None:
    assert sorted(cluster.ready()) == ["node1", "node2", "node3"]
    make(pods.job("spread", ["sleep", "infinity"])).running()
    assert {item["spec"]["nodeName"] for item in pods.shown("spread")} == {"node1", "node2", "node3"}


def test_the_machine_keeps_its_settings_and_its_network() -> None:
    """Kubelet wants other values, and has them: in files of its own."""
    outside = Path("/proc/sys/kernel/panic_on_oops").read_text()
    for number in (1, 2, 3):
        made = cluster.FOLDER / f"node{number}/sysctls/kernel.panic_on_oops"
        assert made.read_text() == "1\n"
    assert Path("/proc/sys/kernel/panic_on_oops").read_text() == outside
    assert "containerd" not in Path("/proc/mounts").read_text()
    assert "cni0" not in os.listdir("/sys/class/net")


def test_nothing_leads_out_of_the_cluster() -> None:
    pid = cluster.running()
    routes = Path(f"/proc/{pid}/net/route").read_text().splitlines()[1:]
    assert all(line.split()[1] != "00000000" for line in routes), routes
    assert config.CONTROL.startswith("10.99.")
