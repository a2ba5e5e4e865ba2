"""Made-up runs on this machine, over or going on, written as quickly as files are: for lists of many."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cockpit import paths
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry

ENDS = ("ended", "failed", "ended", "stopped", "ended", "failed", "ended", "lost")
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n"


@dataclass(frozen=True)
class KnownRun:
    """A run to write.

    :param end: ``ended``, ``failed``, ``stopped``, ``lost``; empty: it goes on, as far as is known here
    """

    name: str
    began: float
    lasted_s: float = 3600.0
    end: str = "ended"
    nodes: Sequence[str] = ("gpu01", "gpu02")
    ranks: int = 2
    steps: int = 200
    total: int = 5000
    program: Sequence[str] = ("train.py", "--config", "c4-1b.json")
    more: Mapping[str, Any] = field(default_factory=dict)
    """Fields of its manifest."""

    def write(self) -> RunFolder:
        """Write it among the runs known here."""
        made = paths.runs() / self.name
        nodes = [
            NodeEntry(node, f"/none/{node}", list(range(self.ranks * at, self.ranks * (at + 1))), "local")
            for at, node in enumerate(self.nodes)
        ]
        command = ["cockpit", "run", "hosts", "--", *self.program]
        manifest = Manifest(
            self.name, self.began, nodes, "deepspeed", self.program, "/home/ada/job", command=command
        )
        made.mkdir(parents=True, mode=0o700)
        for above in (paths.state(), paths.runs()):
            above.chmod(0o700)
        journal: list[dict[str, Any]] = []
        for index, node in enumerate(nodes):
            self._copies(made / "spool" / f"{index:04d}-{node.name}", index, node)
            if self.end == "lost":
                journal.append({"t": self.until, "e": "node_lost", "node": node.name, "why": "rebooted"})
            elif self.end:
                journal.append({"t": self.until, "e": "complete", "node": node.name})
        (made / "manifest.json").write_text(json.dumps({**asdict(manifest), **self.more}))
        (made / "journal.jsonl").write_text("".join(json.dumps(each) + "\n" for each in journal))
        return RunFolder(made)

    @property
    def until(self) -> float:
        """When it ended."""
        return self.began + self.lasted_s

    def _copies(self, spool: Path, index: int, node: NodeEntry) -> None:
        spool.mkdir(parents=True)
        events = [{"t": self.began, "e": "rank_started", "rank": rank, "pid": 1} for rank in node.ranks]
        if self.end == "stopped":
            events.append({"t": self.until - 2, "e": "stop_requested", "reason": "asked for", "by": "ada"})
        for rank in node.ranks if self.end not in ("", "lost") else ():
            how = {"ended": {"code": 0}, "stopped": {"signal": 15}, "failed": {"code": int(rank == 0)}}
            events.append({"t": self.until - 1, "e": "rank_exited", "rank": rank, **how[self.end]})
        if self.end not in ("", "lost"):
            events.append({"t": self.until, "e": "ended"})
        (spool / "events.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events))
        for rank in node.ranks:
            text = "".join(
                f"step {step}/{self.total} loss {loss(step):.3f}\n"
                for step in range(max(1, self.steps - 40), self.steps + 1)
            )
            (spool / f"rank-{rank}.log").write_text(
                text + (OOM if self.end == "failed" and rank == 0 else "")
            )
            size = (spool / f"rank-{rank}.log").stat().st_size
            with (spool / "times.jsonl").open("a") as file:
                for t, many in ((self.began, 0), (self.until - 3, size)):
                    file.write(json.dumps({"t": t, "s": {f"rank-{rank}.log": many}}) + "\n")


def loss(step: int) -> float:
    """One that falls."""
    return 3 - step / 1000 if step < 1300 else 1 + 910 / step


def many(count: int, now: float) -> list[RunFolder]:
    """So many runs that are over, one each half an hour, the last one an hour ago; named by their number."""
    return [
        KnownRun(
            f"run-{at:04d}",
            now - 1800.0 * (count - at) - 3600.0,
            lasted_s=1500.0,
            end=ENDS[at % len(ENDS)],
            nodes=("gpu01", "gpu02") if at % 3 else ("gpu03",),
        ).write()
        for at in range(count)
    ]
