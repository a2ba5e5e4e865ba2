"""Snapshots as flame graphs: folded stacks, and speedscope's file format."""

from __future__ import annotations

from collections import Counter
from typing import Any

from cockpit.base.stacks.dump import Frame
from cockpit.core.inferred import MARK
from cockpit.core.masks import count
from cockpit.core.ranks import mask_text
from cockpit.core.stacks.classes import classes
from cockpit.core.stacks.snapshot import Snapshot

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def to_folded(snapshot: Snapshot) -> str:
    """One line per stack, ``outer;inner N``: N dumps of main threads had it, over all ranks and samples."""
    found = Counter(
        ";".join(map(_folded, dump.frames))
        for sample in snapshot.samples
        for dump in sample.dumps.values()
        if dump.frames
    )
    return "".join(f"{stack} {number}\n" for stack, number in sorted(found.items()))


def to_speedscope(snapshot: Snapshot) -> dict[str, Any]:
    """One profile per class of the newest sample, weighted by its number of ranks."""
    frames: dict[Frame, int] = {}
    profiles = []
    for found in classes(snapshot):
        if found.frames:
            mark = MARK if found.ranks & snapshot.inferred else ""
            name = f"ranks {mark}{mask_text(found.ranks)}: {found.doing.text}"
            stack = [frames.setdefault(frame, len(frames)) for frame in found.frames]
            profiles.append(sampled(name, [stack], [count(found.ranks)]))
    return file_of(snapshot.title, [speedscope(frame) for frame in frames], profiles)


def sampled(name: str, samples: list[list[int]], weights: list[int]) -> dict[str, Any]:
    """One profile of speedscope's format: stacks of numbers of frames, outermost first, and their weights."""
    return {
        "type": "sampled",
        "name": name,
        "unit": "none",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }


def file_of(name: str, frames: list[dict[str, Any]], profiles: list[dict[str, Any]]) -> dict[str, Any]:
    """A whole file of it."""
    return {
        "$schema": SCHEMA,
        "name": name,
        "exporter": "cockpit",
        "activeProfileIndex": 0,
        "shared": {"frames": frames},
        "profiles": profiles,
    }


def _folded(frame: Frame) -> str:
    place = f"{frame.file}:{frame.line}" if frame.line else frame.file
    # Both are separators of the format.
    return f"{frame.name} ({place})".replace(";", ",").replace("\n", " ")


def speedscope(frame: Frame) -> dict[str, Any]:
    """A frame of that format."""
    told: dict[str, Any] = {"name": frame.name, "file": frame.file, "line": frame.line}
    return {name: value for name, value in told.items() if value}
