"""Collections of which the truth is known: ranks that go through steps and meet in collectives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from cockpit.base.profile.summary import Collective, Operation, RankProfile, StepTimes
from cockpit.core.profile.collection import DONE, Collection, RankResult

MS = 1_000_000
START = 1_800_000_000 * 1000 * MS
"""Unix nanoseconds on our clock at which the first step begins everywhere."""
MOVES = 20 * MS
"""What moving the gradients takes once all are there."""


@dataclass(frozen=True)
class Work:
    """What a rank does in a step before it meets the others, milliseconds.

    :param update: after that
    :param operations: name: kind, milliseconds and calls of a step; empty: the usual
    """

    data: float = 5
    forward: float = 80
    backward: float = 160
    idle: float = 10
    update: float = 25
    idle_in: str = "forward"
    operations: Mapping[str, tuple[str, float, int]] | None = None

    @property
    def before(self) -> float:
        return self.data + self.forward + self.backward + self.idle


Does = Callable[[int, int], Work]
"""By rank and step."""


def collection(
    ranks: int,
    does: Does,
    *,
    steps: Sequence[int] = range(700, 705),
    nodes: int = 1,
    ahead: Mapping[str, float] | None = None,
    known: bool = True,
    phases: bool = True,
    group: str = "0",
    meets: Callable[[int], str] | None = None,
    collectives: int = 1,
    **more: object,
) -> Collection:
    """Ranks that do this, and then all reduce their gradients.

    :param ahead: how far the clock of a node is ahead of ours, seconds; ``known``: the collection says so
    :param meets: the group of each rank; None: one for all
    :param collectives: how many a step, of which the first is waited in
    """
    ahead = dict(ahead or {})
    group_of = meets or (lambda rank: group)
    node_of = {rank: f"gpu{rank * nodes // ranks + 1:02d}" for rank in range(ranks)}
    begins = dict.fromkeys(range(ranks), START)
    rows: dict[int, list[StepTimes]] = {rank: [] for rank in range(ranks)}
    calls: dict[int, list[Collective]] = {rank: [] for rank in range(ranks)}
    for step in steps:
        arrives = {rank: begins[rank] + round(does(rank, step).before * MS) for rank in range(ranks)}
        members = {
            one: [r for r in range(ranks) if group_of(r) == one] for one in map(group_of, range(ranks))
        }
        for rank in range(ranks):
            work, same = does(rank, step), members[group_of(rank)]
            end = max(arrives[one] for one in same) + MOVES
            spent = end - arrives[rank]
            took = end - begins[rank] + round(work.update * MS)
            shift = round(ahead.get(node_of[rank], 0.0) * 1000 * MS)
            marks = {
                "input": work.data,
                "forward": work.forward,
                "backward": work.backward + spent / MS,
                "update": work.update,
            }
            if work.idle_in in marks:
                marks[work.idle_in] += work.idle
            rows[rank].append(
                StepTimes(
                    step=step,
                    began=begins[rank] + shift,
                    took=took,
                    data=round(work.data * MS),
                    compute=round((work.forward + work.backward + work.update) * MS),
                    communication=spent,
                    idle=round(work.idle * MS),
                    phases=tuple(round(one * MS) for one in marks.values()) if phases else (),
                )
            )
            for number in range(collectives):
                first = number == 0
                calls[rank].append(
                    Collective(
                        step=step,
                        name="all_reduce",
                        group=group_of(rank),
                        key=str(number),
                        size=100 << 20 if first else 4096,
                        ranks=len(same),
                        began=arrives[rank] - begins[rank] if first else number * MS,
                        took=spent if first else MS,
                        exposed=spent if first else 0,
                    )
                )
            begins[rank] += took
    results = {
        rank: RankResult(
            rank,
            node_of[rank],
            DONE,
            began=START / 1e9,
            file=f"run.{node_of[rank]}.rank-{rank}.torch.step-{steps[0]}.id.trace.json.gz",
            size=3 << 20,
            summary=RankProfile(
                rank=rank,
                node=node_of[rank],
                device="gpu",
                backend="nccl",
                steps=tuple(rows[rank]),
                operations=tuple(_operations(does(rank, steps[0]), len(steps))),
                operations_all=4,
                names="same",
                collectives=tuple(calls[rank]),
                collectives_all=len(calls[rank]),
                before=0.3,
                stop_s=0.5,
                file="x.gz",
                size=3 << 20,
                sha256="0" * 64,
            ),
        )
        for rank in range(ranks)
    }
    made = Collection(
        1, "id", "20261121-otter", "torch", START / 1e9, steps[0], len(steps), results=results,
        offsets=ahead if known else {}, before=0.3, after=0.3,
    )  # fmt: skip
    return replace(made, **more)  # type: ignore[arg-type]


def _operations(work: Work, steps: int) -> list[Operation]:
    usual = {
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__": ("data", work.data, 1),
        "aten::mm": ("compute", work.forward * 0.7 + work.backward * 0.7, 96),
        "aten::gelu": ("compute", work.forward * 0.3 + work.backward * 0.3, 24),
        "aten::_fused_adam_": ("compute", work.update, 1),
    }
    return [
        Operation(name=name, kind=kind, own=round(own * MS * steps), count=count * steps)
        for name, (kind, own, count) in (work.operations or usual).items()
    ]
