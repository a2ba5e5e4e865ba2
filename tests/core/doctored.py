"""Eight nodes that are alike, to plant differences and faults in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cockpit.base.answers import FactsAnswer, SeekAnswer
from cockpit.base.checkup_answers import (
    CheckupAnswer,
    Disk,
    Gpu,
    Interface,
    Leftovers,
    Limits,
    Network,
    Port,
    Profiling,
    ReachAnswer,
    Session,
    System,
)
from cockpit.core.doctor.node_checks import Look, Looks

NODES = [f"gpu{number:02d}" for number in range(1, 9)]
GB = 10**9

Plant = Callable[[Look], Look]


def _disk(role: str, path: str, kind: str, total: int, free: int) -> Disk:
    return Disk(role, path, total, free, kind, 1 << 24, 1 << 23)


def healthy(number: int) -> Look:
    """A node without a fault; sizes differ a little from node to node, as they do."""
    node = NODES[number]
    condition = CheckupAnswer(
        system=System(
            "6.8.0", "glibc 2.39", "Xeon 8480", 112, "performance", 0.3, 2164 * GB + number, 2100 * GB
        ),
        limits=Limits(65536, 8_000_000, None),
        disks=(
            _disk("run folders", "/tmp/cockpit-1000", "ext4", 1800 * GB, (900 + number) * GB),
            _disk("/tmp", "/tmp", "ext4", 1800 * GB, (900 + number) * GB),
            _disk("/dev/shm", "/dev/shm", "tmpfs", 1080 * GB, 1079 * GB),
            _disk("working directory", "/data/work", "nfs4", 90_000 * GB, 40_000 * GB),
        ),
        network=Network(
            (Interface("eno1", 9000, 100_000, (f"10.0.0.{number + 1}",)),),
            tuple(Port(f"mlx5_{card}/1", "ACTIVE", "400 Gb/sec (4X NDR)") for card in range(8)),
        ),
        driver="570.86.15",
        gpus=tuple(Gpu(index, "NVIDIA H100", GB, 85 * GB, 0, 1980, 700, True) for index in range(8)),
        profiling=Profiling(1, 4),
        session=Session(),
        port=() if number == 0 else None,
        leftovers=Leftovers(),
        login={},
        code={"train.py": "aa" * 8, "data.py": "bb" * 8},
        names={peer: (f"10.0.0.{place + 1}",) for place, peer in enumerate(NODES)},
    )
    return Look(
        machine=f"boot-{node}",
        host=node,
        uid=1000,
        facts=FactsAnswer(
            "/opt/venv/bin/python",
            "3.12.3",
            tuple(range(112)),
            deepspeed="0.19.8",
            torch="2.13.0",
            accelerate="1.15",
            free_bytes=900 * GB,
            packages={"nvidia-nccl-cu13": "2.29.2", "numpy": "2.2.1"},
        ),
        condition=condition,
        ranks=SeekAnswer(()),
        offset_s=0.004 * number,
        rtt_s=0.001,
        reached=ReachAnswer("", f"10.0.0.{number + 1}", "eno1") if number else None,
    )


def looks(plants: dict[int, Plant] | None = None, **more: Any) -> Looks:
    """Eight nodes; on those of ``plants`` (from 1 on) something is not as it was."""
    nodes = {name: healthy(number) for number, name in enumerate(NODES)}
    for number, plant in (plants or {}).items():
        name = NODES[number - 1]
        nodes[name] = plant(nodes[name])
    return Looks(nodes, **{"port": 29500, "address": "10.0.0.1", **more})


def facts(**changed: Any) -> Plant:
    """Other facts."""
    return lambda look: replace(look, facts=replace(look.facts, **changed))  # type: ignore[type-var]


def condition(**changed: Any) -> Plant:
    """Another condition."""
    return lambda look: replace(look, condition=replace(look.condition, **changed))


def part(name: str, **changed: Any) -> Plant:
    """Another value in one part of the condition."""
    return lambda look: condition(**{name: replace(getattr(look.condition, name), **changed)})(look)


def disk(role: str, **changed: Any) -> Plant:
    """Another disk."""
    return lambda look: condition(
        disks=tuple(
            replace(each, **changed) if each.role == role else each for each in look.condition.disks or ()
        )
    )(look)


def gpu(index: int, **changed: Any) -> Plant:
    """Another GPU."""
    return lambda look: condition(
        gpus=tuple(
            replace(each, **changed) if each.index == index else each for each in look.condition.gpus or ()
        )
    )(look)


def look(**changed: Any) -> Plant:
    """Another look."""
    return lambda one: replace(one, **changed)
