"""Sources of nodes, and slots that nobody has named: from the GPUs of each node."""

from __future__ import annotations

from pathlib import Path

import pytest

from cockpit.base.answers import VisibleGpus
from cockpit.errors import CockpitError, Exit
from cockpit.plans.launch import LaunchJob
from cockpit.plans.nodes import gpus
from cockpit.plans.nodes.hostfile import Host, parse
from cockpit.plans.nodes.sources import nodes_from
from cockpit.plans.plan import build_plans


def test_one_number_of_slots_for_all_that_have_none(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("gpu01\nbig1 slots=2\n")
    hosts = nodes_from([str(path)], slots=4)
    assert [(host.name, len(host.slots)) for host in hosts] == [("gpu01", 4), ("big1", 2)]
    assert [host.open for host in nodes_from([str(path)])] == [True, False]
    with pytest.raises(CockpitError, match="--slots 4: every node already has its number of slots"):
        nodes_from(["-w", "gpu01:8"], slots=4)


def test_filters_of_open_nodes() -> None:
    assert nodes_from(["-w", "gpu[1-3]"], include="gpu1@gpu3:0,2") == (Host("gpu1"), Host("gpu3", (0, 2)))
    assert nodes_from(["-w", "gpu[1-3]"], exclude="gpu[1-2]") == (Host("gpu3"),)
    with pytest.raises(CockpitError, match=r"gpu1 has no number of slots to exclude from.*--slots 8"):
        nodes_from(["-w", "gpu1"], exclude="gpu1:0")
    with pytest.raises(CockpitError, match="host gpu1 has no slot 4096"):
        nodes_from(["-w", "gpu1"], include="gpu1:4096")
    with pytest.raises(CockpitError, match="no host gpu9 among the nodes"):
        nodes_from(["-w", "gpu[1-3]"], include="gpu9")


@pytest.mark.parametrize(
    ("answer", "launcher", "slots"),
    [
        (VisibleGpus(8), "deepspeed", range(8)),
        (VisibleGpus(2, "4,6"), "deepspeed", (4, 6)),
        (VisibleGpus(2, " 6, 4"), "torchrun", (4, 6)),
        # As CUDA reads it: nothing after the first that there is not.
        (VisibleGpus(2, "0,1,9,2"), "torchrun", (0, 1)),
        (VisibleGpus(2, "GPU-2c1a,MIG-7"), "torchrun", (0, 1)),
        (VisibleGpus(1, "999999999999"), "command", (0,)),
        (VisibleGpus(1, "9999"), "command", (0,)),
        (VisibleGpus(1, "\u0663"), "command", (0,)),
    ],
)
def test_a_slot_for_each_gpu(answer: VisibleGpus, launcher: str, slots: tuple[int, ...]) -> None:
    assert gpus.filled(Host("gpu01"), answer, launcher).slots == tuple(slots)


@pytest.mark.parametrize(
    ("answer", "launcher", "says"),
    [
        (None, "torchrun", "gpu01: no number of slots given, and no GPU is visible there; "),
        (VisibleGpus(0, "", "CUDA error 100"), "torchrun", "(CUDA_VISIBLE_DEVICES is empty there); "),
        (VisibleGpus(0, None, "no libcuda"), "torchrun", "visible there (no libcuda); give it: --slots 8"),
        (VisibleGpus(1, "GPU-2c1a"), "deepspeed", "CUDA_VISIBLE_DEVICES=GPU-2c1a there, and DeepSpeed"),
        (VisibleGpus(1, "\x1b[2J"), "deepspeed", r"CUDA_VISIBLE_DEVICES='\x1b[2J' there"),
    ],
)
def test_a_node_whose_gpus_say_nothing(answer: VisibleGpus | None, launcher: str, says: str) -> None:
    with pytest.raises(CockpitError) as caught:
        gpus.filled(Host("gpu01"), answer, launcher)
    assert says in str(caught.value)
    assert caught.value.code is Exit.NODE_UNFIT


def test_slots_that_were_given_stay() -> None:
    assert gpus.filled(Host("gpu01", (0, 1)), VisibleGpus(8), "deepspeed").slots == (0, 1)


def test_nodes_with_different_numbers_are_told_apart() -> None:
    hosts = [*parse("gpu[01-03]:8\nbig1:4"), Host("old1", (4, 5))]
    assert gpus.told(hosts) == "slots, one per GPU: gpu[01-03] 8, big1 4, old1 2 (4-5)"


def test_a_plan_asks_no_node_and_says_what_it_needs() -> None:
    job = LaunchJob("otter", nodes_from(["-w", "gpu[01-04],big1:2"]), ("train.py",), "/")
    with pytest.raises(CockpitError) as caught:
        build_plans(job)
    assert str(caught.value) == (
        "gpu[01-04]: no number of slots given, and nobody has counted the GPUs there; "
        "give it: --slots 8 for all nodes, -w 'gpu[01-04]:8', or slots=8 in the hostfile"
    )
