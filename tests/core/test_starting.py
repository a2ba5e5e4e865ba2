"""A run before its first step: when it is called so, and what each rank is said to do."""

from __future__ import annotations

from cockpit.core.run.model import RunModel
from cockpit.core.run.starting import SETTLED_S, doing, is_starting
from cockpit.core.run.summary import state_text
from tests.happened import happened

NOW = 1_795_233_881.0


def launched(ranks: int = 4) -> RunModel:
    model = RunModel()
    tell(model, "", "planned", nodes={"gpu01": list(range(ranks))})
    tell(model, "gpu01", "supervisor_started", NOW - 30, probe="auto")
    return model


def tell(model: RunModel, node: str, kind: str, at: float = NOW, **data: object) -> None:
    model.apply(happened(at, kind, node, data))


def test_it_starts_until_a_step_is_known_or_it_has_printed_and_a_minute_is_over() -> None:
    model = launched(1)
    assert is_starting(model, NOW, stepped=False, printed=False)
    tell(model, "gpu01", "rank_started", NOW - SETTLED_S + 1, rank=0, pid=7)
    assert is_starting(model, NOW, stepped=False, printed=True), "what it prints may be of its imports"
    assert not is_starting(model, NOW, stepped=True, printed=False)
    assert not is_starting(model, NOW + 1, stepped=False, printed=True)
    assert not is_starting(model, NOW, stepped=False, printed=None), "where nobody watches, nobody knows"
    assert is_starting(model, NOW + 3600, stepped=False, printed=False), "nothing tells that it works"
    assert state_text(model, starting=True) == "starting"
    assert state_text(model) == "running"
    tell(model, "gpu01", "rank_exited", NOW, rank=0, code=0, signal=None)
    assert not is_starting(model, NOW, stepped=False, printed=False)


def test_what_ranks_do_is_said_as_far_as_it_is_known() -> None:
    model = launched()
    assert doing(model, NOW) == ["ranks 0-3: waiting for the launcher"]
    for rank in (0, 1, 2):
        tell(model, "gpu01", "rank_started", NOW - 12 - rank, rank=rank, pid=7 + rank)
    tell(model, "gpu01", "rank_probe", rank=0, pid=7)
    tell(model, "gpu01", "rank_probe", rank=1, pid=8, torch="2.6.0")
    assert doing(model, NOW, builds={2: "shm_comm"}, printed=lambda rank: rank == 1) == [
        "rank 0: started 12 s ago, importing torch, no output yet",
        "rank 1: started 13 s ago, torch imported, no step yet",
        "rank 2: started 14 s ago, building op shm_comm, torch not imported, no output yet",
        "rank 3: waiting for the launcher",
    ]
    assert (
        doing(model, NOW, entered={1: 12}.get)[1] == "rank 1: started 13 s ago, in collectives, no step yet"
    )


def test_a_rendezvous_is_said_until_the_group_is_there() -> None:
    model = launched()
    for rank in range(4):
        tell(model, "gpu01", "rank_started", NOW - 40, rank=rank, pid=7 + rank)
    times: list[dict[str, float]] = [
        {"rendezvous_at": NOW - 30},
        {"rendezvous_at": NOW - 34, "group_at": NOW - 36},
        {"rendezvous_at": NOW - 34, "group_at": NOW - 20},
        {"group_at": NOW - 20},
    ]
    for rank, known in enumerate(times):
        tell(model, "gpu01", "rank_probe", rank=rank, pid=7 + rank, torch="2.6.0", **known)
    assert doing(model, NOW) == [
        "ranks 0-1: started 40 s ago, in rendezvous for 34 s",
        "ranks 2-3: started 40 s ago, process group initialized, no step yet",
    ]
    assert doing(model, NOW - 60)[0].endswith("in rendezvous for 0 s"), "a clock that was set back"


def test_many_groups_are_counted() -> None:
    model = launched(9)
    for rank in range(9):
        tell(model, "gpu01", "rank_started", NOW - 9, rank=rank, pid=7 + rank)
    lines = doing(model, NOW, builds={rank: f"op{rank}" for rank in range(9)})
    assert lines[-1] == "and 3 more groups of ranks"
    assert len(lines) == 7
