"""A rank that makes steps without torch: its ring is the probe's, and it answers orders for profiles."""

from __future__ import annotations

import gzip
import json
import os
import time
from pathlib import Path
from typing import Any

from cockpit.base import record
from cockpit.base.profile import order
from cockpit.node.probe.hooks import ORDER, Ring
from tests.node.kineto import Made
from tests.waiting import until

STEP_S = 0.1
_CANCEL = 6
_READY, _PROFILING, _WRITTEN, _MISSED = (
    order.STATES.index(state) for state in ("ready", "profiling", "written", "missed")
)


class StandIn:
    """What the probe has in its place: :class:`cockpit.node.probe.profiling.Profiles`."""

    def __init__(self, ring: Ring, rank: int, reports: Path) -> None:
        self._ring, self._rank, self._reports = ring, rank, reports
        self._number = 0

    def stepped(self, step: int) -> int:
        """As that of the probe."""
        page = self._ring.words[ORDER:]
        number, first, steps = page[0], page[1], page[2]
        end = step >= first + steps - 1
        if number != self._number:
            self._number = number
            self._ring.answer(number, _MISSED if step >= first else _READY, "")
        elif page[_CANCEL] == number:
            self._ring.answer(number, order.STATES.index("cancelled"), "")
            return int(number)
        elif step == first - 1:
            page[18], page[19] = time.time_ns(), time.monotonic_ns()
            self._ring.answer(number, _PROFILING, "")
        elif end and step >= first:
            page[20], page[21] = time.time_ns(), time.monotonic_ns()
            self._write(bytes(page[8:16]).partition(b"\0")[0].decode(), first, steps)
            self._ring.answer(number, _WRITTEN, "")
        return int(number) if page[17] in (_WRITTEN, _MISSED) else -1

    def _write(self, name: str, first: int, steps: int) -> None:
        made = Made(cockpit={"rank": str(self._rank), "first": first, "steps": steps, "torch": "2"})
        for step in range(steps):
            at = step * 10_000_000
            made.step(first + step, at, 10_000_000).op("aten::mm", at + 1000, 5_000_000)
            made.gloo("all_reduce", at + 6_000_000, 1_000_000, [[128]])
        whose = f"{os.environ['COCKPIT_RUN']}.{os.environ['COCKPIT_NODE']}.rank-{self._rank}"
        path = self._reports / f"{whose}.torch.step-{first}.{name}.trace.json.gz"
        path.write_bytes(gzip.compress(made.text().encode(), 1))


def make_steps() -> None:
    """Make them until the end of the process."""
    folder, rank = Path(os.environ["COCKPIT_DIR"]), int(os.environ["RANK"])
    until(lambda: (folder / record.RECORD).is_file(), "the run record begins")
    rings = json.loads((folder / record.RECORD).read_text())["rings"]
    with open("/proc/self/stat", "rb") as file:
        ticks = int(file.read().rpartition(b")")[2].split()[19])
    makes: Any = lambda ring: StandIn(ring, rank, folder / record.REPORTS)  # noqa: E731
    ring = Ring(f"{rings}/{rank}.{os.getpid()}.ring", rank, ticks, makes)
    step = 0
    while True:
        time.sleep(STEP_S)
        step += 1
        ring.add(step)
