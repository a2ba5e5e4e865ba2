"""What a profile of this node's ranks would meet, before it is ordered."""

from __future__ import annotations

import os
from typing import Any, Dict

from cockpit.base import record, verbs
from cockpit.base.gate import SIZE
from cockpit.base.shared_fields import Target
from cockpit.node import procfs, space
from cockpit.node.calls import Call
from cockpit.node.profile import rings


def window(call: Call) -> Dict[str, Any]:
    """The steps of each rank, and why it cannot be profiled; the room for files, and how busy the node is."""
    asked = call.asked(verbs.Window)
    finder = rings.Finder(asked.dir)
    ranks = [_of(finder, target, asked.kind) for target in asked.targets]
    places = [os.path.join(asked.dir, record.REPORTS) if asked.dir else "/tmp"]
    if asked.kind == "nsys":
        from cockpit.node.profile import nsys

        whys, temporary = nsys.ready(asked.dir, asked.targets)
        ranks = [dict(one, why=one["why"] or whys[one["rank"]]) for one in ranks]
        places.append(temporary)
    return {
        "ranks": ranks,
        "free": min(map(_free, places)),
        "load": os.getloadavg()[0] / (os.cpu_count() or 1),
    }


def _of(finder: rings.Finder, target: Target, kind: str) -> Dict[str, Any]:
    told: Dict[str, Any] = {"rank": target.rank, "step": None, "age_s": None, "step_s": None, "why": ""}
    if not procfs.alive(target.pid, target.ticks):
        return dict(told, why="its process has ended")
    try:
        one = finder.open(target.rank)
    except rings.Unable as error:
        return dict(told, why=str(error) if kind == "torch" else "")
    try:
        said = one.read()
        if said.steps:
            told.update(step=said.steps[-1].step, age_s=rings.age_s(said), step_s=rings.usual_s(said))
        if kind == "torch":
            rings.ready(said)
            one.answer()
            one.lock()
    except rings.Unable as error:
        told["why"] = str(error)
    finally:
        one.close()
    return told


def _free(folder: str) -> int:
    try:
        return SIZE.nearest(space.free(folder))
    except OSError:
        return 0
