"""What each part of ``make gpu`` must show; whatever it looks at is given to it, so a stand-in does as well.

Each returns what it has seen, in a few words, or raises an AssertionError that says what was expected.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from cockpit.base.answers import RecorderItem
from cockpit.base.profile.summary import RankProfile
from cockpit.base.recorder.trace import GOING, Trace
from cockpit.core.stacks.class_facts import kind_of
from cockpit.core.stacks.classes import classes
from cockpit.core.stacks.ras import Ras
from cockpit.core.stacks.snapshot import Snapshot

PHASES = ("input_s", "forward_s", "backward_s", "update_s", "other_s")
"""Those that one rank alone has: it waits for nobody."""


class Lacking(Exception):
    """What a part needs is not here; the text says what."""


def measured(samples: Sequence[Sequence[Mapping[str, Any]]], pid: int) -> str:
    """NVML's columns.

    :param samples: some while a GPU is in use, each with an entry a GPU
    :param pid: of the process that uses it
    """
    used: Mapping[str, Any] = max(
        (gpu for sample in samples for gpu in sample), key=lambda gpu: gpu["utilisation_percent"] or 0
    )
    assert used["name"], "a GPU has a name"
    assert 0 < (used["utilisation_percent"] or 0) <= 100, "the GPU in use is said to be busy"
    assert 0 < used["memory_bytes"] <= used["memory_total_bytes"], "memory in use is a part of all of it"
    for gpu in samples[-1]:
        assert gpu["errors"] is None or gpu["errors"] >= 0, "memory errors are counted"
        assert gpu["slowed"] is None or isinstance(gpu["slowed"], list), "why clocks are slowed is known"
    named = any(str(pid) in gpu["processes"] for gpu in samples[-1])
    gib, all_gib = used["memory_bytes"] / 2**30, used["memory_total_bytes"] / 2**30
    whose = "the process is named" if named else "the driver does not name the process (in a container?)"
    return f"{used['name']}: {used['utilisation_percent']} %, {gib:.1f} of {all_gib:.1f} GiB; {whose}"


def waits(snapshot: Snapshot, native: Snapshot) -> str:
    """The stack of a rank that waits in CUDA.

    :param native: another snapshot, with native frames
    """
    (found,) = classes(snapshot)
    said = f"{found.doing.text or found.doing.kind} at {found.source!r}"
    assert kind_of(found) == "sync", f"it waits for its device, it is said: {said}"
    frames = [frame.name for one in classes(native) for frame in one.frames if frame.native]
    inner = [name for name in frames if "ynchronize" in name]
    shown = inner[-1] if inner else f"none of {len(frames)} native frames says so"
    return f"waits for its device at {found.source!r}, {found.movement or 'one sample'}; {shown}"


def phases(rows: Sequence[Mapping[str, Any]], own: Sequence[float], within: float = 0.1) -> str:
    """Phases of steps.

    :param rows: of ``cockpit metrics --json``
    :param own: how long each of these steps took by the program's own clock, seconds
    :param within: the share of a step by which the two may differ
    """
    known = [row for row in rows if row["step_s"] and all(row[name] is not None for name in PHASES)]
    assert len(known) >= 5, f"steps have phases: {len(known)} of {len(rows)} do"
    for row in known:
        whole = sum(row[name] for name in PHASES)
        assert abs(whole - row["step_s"]) <= 0.02 * row["step_s"] + 0.002, f"phases are all of a step: {row}"
    step, mine = median(row["step_s"] for row in known), median(own)
    assert abs(step - mine) <= within * mine, f"a step takes {mine:.4f} s, not {step:.4f} s"
    shares = {name: median(row[name] for row in known) / step for name in PHASES}
    assert min(shares[name] for name in ("forward_s", "backward_s", "update_s")) > 0, (
        f"no phase is empty: {shares}"
    )
    return f"{step:.4f} s: " + ", ".join(f"{name[:-2]} {share:.0%}" for name, share in shares.items())


def profiled(summary: RankProfile, steps: int) -> str:
    """The profile of a rank, with kernels."""
    assert summary.device == "gpu", "the trace has kernels"
    assert summary.backend == "nccl", f"the backend is nccl, not {summary.backend!r}"
    assert len(summary.steps) == steps, f"{steps} steps, not {len(summary.steps)}"
    for step in summary.steps:
        assert step.compute > 0, f"kernels run in step {step.step}"
        whole = step.data + step.compute + step.communication + step.idle
        assert whole == step.took, f"each moment of step {step.step} counts once"
    kernels = [one for one in summary.operations if one.kind == "compute" and one.own and one.count]
    assert kernels, "kernels are operations"
    collectives = {one.name for one in summary.collectives}
    assert any("reduce" in name.lower() for name in collectives), f"NCCL's collectives: {collectives}"
    took = sum(step.took for step in summary.steps)
    share = sum(step.compute for step in summary.steps) / took
    most = max(kernels, key=lambda one: one.own).name
    return f"compute {share:.0%} of {steps} steps; most in {most[:60]}; {', '.join(sorted(collectives))}"


def recorded(item: RecorderItem, traces: Sequence[Trace], backend: str = "nccl") -> str:
    """What the flight recorder says while a collective waits for the device."""
    assert not item.kind, f"it answers: {item.what}"
    entries = [one for trace in traces for one in trace.entries if one.call.group.backend == backend]
    assert any(one.call.op == "all_reduce" for one in entries), f"collectives of {backend}: {len(entries)}"
    going = [f"{one.call.op} {one.number}" for one in entries if one.state == GOING]
    return f"{len(entries)} collectives of {backend}, under way: {', '.join(going[-3:]) or 'none'}"


def heard(ras: Ras | None) -> str:
    """What NCCL's RAS says.

    :raises Lacking: no rank has it
    """
    if ras is None:
        raise Lacking("no rank listens for NCCL RAS (NCCL before 2.24, or NCCL_RAS_ENABLE=0)")
    assert ras.node, f"RAS answers: {ras.silent}"
    assert ras.communicators >= 1, "there is a communicator"
    assert [one.rank for one in ras.ranks] in ([], [0]), f"its processes are ranks: {ras.ranks}"
    return f"NCCL {ras.version}: {ras.communicators} communicators, {ras.odd} with something odd"


def traced(table: str) -> str:
    """Kernels in nsys's report.

    :param table: of ``nsys stats``, as CSV
    """
    lines = table.splitlines()
    head = next((at for at, line in enumerate(lines) if "Instances" in line and "," in line), None)
    assert head is not None, f"nsys has a table of kernels: {table[-300:]!r}"
    rows = list(csv.DictReader(lines[head:]))
    assert any(int(row["Instances"] or 0) > 0 for row in rows if row["Instances"]), "kernels ran"
    return f"{len(rows)} kernels, most time in {(rows[0].get('Name') or '?')[:60]}"
