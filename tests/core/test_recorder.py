"""Recorders of all ranks read together: who entered which collective, and what does not match."""

from __future__ import annotations

import json
from typing import Any

from cockpit.base.recorder.reading import read_json
from cockpit.base.recorder.trace import DONE, GOING, Call, Entry, Group, Trace, lows
from cockpit.core.masks import mask_of
from cockpit.core.recorder.members import Memberships
from cockpit.core.recorder.merge import Look, Recorded, look
from cockpit.core.recorder.work import work
from tests.recorder import recorded
from tests.recorder.named import slow

WORLD = Group("gloo", "0", "default_pg")
PAIR = Group("gloo", "7", "undefined")
SECOND = 1_000_000


def calls(group: Group, *numbers: int, going: int = 0, at: int = SECOND, **more: Any) -> list[Entry]:
    """Calls of one rank, a second apart; the last ``going`` of them are not done."""
    call = Call(group, "all_reduce", "8", 8, 8, "Float", -1)._replace(**more)
    return [
        Entry(call, number, at + place * SECOND, GOING if place >= len(numbers) - going else DONE)
        for place, number in enumerate(numbers)
    ]


def rank(*entries: Entry, whole: bool = True, taken: int = 60 * SECOND, **more: Any) -> Recorded:
    """What the recorder of one rank has."""
    rows = tuple(sorted(entries, key=lambda entry: entry.at_us))
    from_us = 0 if whole else rows[0].at_us
    return Recorded(taken, (Trace("test", "2.10", rows, from_us, whole, lows(rows), **more),))


def one(seen: Look, number: int, group: Group = WORLD) -> Any:
    """One collective."""
    (found,) = [each for each in seen.collectives if (each.group, each.number) == (group, number)]
    return found


# Real ones


def test_a_rank_that_hangs_before_a_collective() -> None:
    seen = recorded.seen("missing")
    found = seen.open()
    # Rank 1 waits for rank 3 in three buckets; ranks 0 and 2 for both of them in the collective of all.
    assert [(each.group.name, each.number, each.going, each.absent) for each in found] == [
        ("4", 50, 0b0010, 0b1000),
        ("4", 51, 0b0010, 0b1000),
        ("4", 52, 0b0010, 0b1000),
        ("0", 13, 0b0101, 0b1010),
    ]
    assert found[0].call[1:7] == ("all_reduce", "2000", 2000, 2000, "Float", -1)
    assert all(recorded.LATER_US <= each.waited_us < 4 * SECOND for each in found)
    assert seen.missing() == 0b1000
    assert seen.open(least_us=10 * SECOND) == []
    assert seen.differences() == []
    assert seen.heard == 0b1111


def test_a_rank_that_is_slow() -> None:
    seen = recorded.seen("slow")
    assert seen.open() == []
    found = work(seen, recorded.steps("slow"))
    assert all(each.us is not None and each.us > 0 for each in found)
    # Its partner of the tensor-parallel pair is last in the data-parallel one as often.
    lasts = [sorted((at, rank) for rank, at in each.arrivals.items())[-2:] for each in seen.collectives]
    late = [two[1][1] for two in lasts if len(two) == 2 and two[1][0] - two[0][0] > 20_000]
    assert late.count(3) > 20
    (named,) = slow(found)
    assert named.rank == 2
    assert 0.5 < named.excess < 2


def test_ranks_that_call_different_things() -> None:
    (where, size) = recorded.seen("size").differences()[0]
    assert (where.group.name, where.number, size.what) == ("0", 14, "size")
    assert [(mask, call.inputs) for mask, call in size.calls] == [(0b1101, 10), (0b0010, 12)]
    (where, operation) = recorded.seen("operation").differences()[0]
    assert (where.number, operation.what) == (14, "operation")
    assert [(mask, call.op) for mask, call in operation.calls] == [
        (0b1101, "all_reduce"),
        (0b0010, "broadcast"),
    ]


def test_real_recorders_that_are_shorter() -> None:
    dumps = {number: json.loads(data) for number, data in recorded.dumps("missing").items()}
    for dump in dumps.values():
        dump["entries"] = dump["entries"][-9:]
    seen = look(
        recorded.recorded({number: json.dumps(dump).encode() for number, dump in dumps.items()}),
        Memberships(4),
    )
    assert seen.missing() == 0b1000
    assert {each.absent for each in seen.collectives} == {0, 0b1000, 0b1010}
    assert all(us for us in seen.complete_us.values())


# Who did not enter


def test_an_entry_that_fell_out_is_no_absence() -> None:
    short = rank(*calls(WORLD, 4, 5, at=4 * SECOND), whole=False)
    seen = look({0: rank(*calls(WORLD, 1, 2, 3, 4, 5)), 1: short}, Memberships(2))
    assert [(each.number, each.absent, each.unknown, each.entered) for each in seen.collectives] == [
        (number, 0, 0, 0b11) for number in range(1, 6)
    ]
    assert not one(seen, 2).complete
    assert one(seen, 4).complete


def test_what_a_rank_did_before_all_that_it_remembers_is_unknown() -> None:
    # Its ring is full of another group: it may have entered this one, or not.
    busy = rank(*calls(WORLD, 500, 501, at=10 * SECOND), whole=False)
    memberships = Memberships(3)
    pair = rank(*calls(PAIR, 1), *calls(WORLD, 499, 500, 501, at=9 * SECOND))
    look({0: pair, 1: pair}, memberships)
    seen = look({0: rank(*calls(PAIR, 1, 2, going=1)), 1: busy}, memberships)
    found = one(seen, 2, PAIR)
    assert (found.members, found.absent, found.unknown) == (0b11, 0, 0b10)
    assert seen.missing() == 0


def test_a_rank_that_has_entered_nothing_is_absent_and_one_that_does_not_answer_unknown() -> None:
    seen = look({0: rank(*calls(WORLD, 1, going=1)), 2: rank()}, Memberships(3))
    found = one(seen, 1)
    assert (found.going, found.absent, found.unknown) == (0b001, 0b100, 0b010)
    assert seen.missing() == 0b100


def test_members_are_learned_and_kept() -> None:
    memberships = Memberships(4)
    both = rank(*calls(PAIR, 1))
    look({1: both, 3: both}, memberships)
    assert (memberships.of(PAIR), memberships.sure(PAIR)) == (0b1010, False)
    # A rank whose recorder is empty now, or that does not answer, is still in its group.
    seen = look({1: rank(*calls(PAIR, 2, going=1)), 3: rank()}, memberships)
    assert one(seen, 2, PAIR).absent == 0b1000
    seen = look({1: rank(*calls(PAIR, 2, going=1))}, memberships)
    assert one(seen, 2, PAIR).unknown == 0b1000
    assert (memberships.of(WORLD), memberships.sure(WORLD)) == (0b1111, True)


def test_members_that_torch_tells() -> None:
    nccl = Group("nccl", "2", "mesh_tp")
    told = rank(*calls(nccl, 1, going=1), members={"2": (0, 1), "9": (5, 6), "8": (0, 700)})
    memberships = Memberships(4)
    seen = look({0: told}, memberships)
    # A rank that was never seen in it is known to be in it; a rank speaks for its own groups alone.
    assert (one(seen, 1, nccl).members, one(seen, 1, nccl).unknown, one(seen, 1, nccl).sure) == (3, 2, True)
    assert memberships.of(Group("nccl", "9", "")) == memberships.of(Group("nccl", "8", "")) == 0
    # Two ranks that contradict each other are both not believed.
    other = rank(*calls(nccl, 1), members={"2": (1, 2)})
    seen = look({0: told, 1: other}, Memberships(4))
    assert (one(seen, 1, nccl).members, one(seen, 1, nccl).sure) == (0b11, False)


def test_for_how_long_it_is_certain() -> None:
    waits = rank(*calls(WORLD, 1, going=1, at=10 * SECOND), taken=60 * SECOND)
    seen = look({0: waits, 1: rank(taken=13 * SECOND), 2: rank(taken=50 * SECOND)}, Memberships(3))
    # Rank 1 was looked at first, three seconds after it was due; what it did since is not known.
    assert one(seen, 1).waited_us == 3 * SECOND
    seen = look({0: waits, 1: rank(taken=9 * SECOND)}, Memberships(2))
    assert one(seen, 1).waited_us == 0
    entered = rank(*calls(WORLD, 1, going=1, at=20 * SECOND))
    assert one(look({0: waits, 1: entered}, Memberships(2)), 1).waited_us == 40 * SECOND


def test_a_group_whose_name_is_used_again_begins_anew() -> None:
    again = [*calls(WORLD, 56, 57), *calls(WORLD, 1, 2, going=1, at=30 * SECOND)]
    seen = look({0: rank(*again, whole=False), 1: rank(*again[:-1], whole=False)}, Memberships(2))
    assert [(each.number, each.absent) for each in seen.collectives] == [(1, 0), (2, 0b10)]


OLD = calls(WORLD, *range(1, 31))
"""Thirty collectives, the last one 30 s after the beginning; then the group is destroyed and made again."""


def renewed(*numbers: int, behind: int = 0) -> list[Entry]:
    """What is called in the new group, of which all are not done."""
    again = calls(WORLD, *numbers, going=len(numbers), at=32 * SECOND, inputs=20, outputs=20)
    return [*OLD, *(entry._replace(at_us=entry.at_us - behind) for entry in again)]


def test_what_was_called_before_a_group_began_anew_is_not_compared() -> None:
    # Rank 1 hangs before it enters anything of the new one; its calls of the old one have the same numbers.
    hangs = {0: rank(*renewed(1)), 1: rank(*OLD), 2: rank(*renewed(1))}
    seen = look(hangs, Memberships(3))
    assert [(each.number, each.going, each.absent, each.unknown) for each in seen.collectives] == [
        (1, 0b101, 0b010, 0)
    ]
    assert seen.differences() == []
    assert seen.missing(SECOND) == 0b010
    # Its recorder has forgotten the oldest, but reaches back to before the new group.
    hangs[1] = rank(*OLD[5:], whole=False)
    assert look(hangs, Memberships(3)).missing(SECOND) == 0b010
    # It is full of what it did since.
    hangs[1] = rank(*calls(PAIR, 500, 501, at=50 * SECOND), whole=False)
    seen = look(hangs, Memberships(3))
    assert (seen.missing(SECOND), one(seen, 1).unknown) == (0, 0b010)


def test_all_ranks_in_a_group_that_began_anew() -> None:
    # One that has forgotten the old one, and one whose clock is behind.
    late = rank(*[entry for entry in renewed(1, 2, 3) if entry.at_us > 32 * SECOND], whole=False)
    seen = look(
        {0: rank(*renewed(1, 2, 3, behind=400_000)), 1: late, 2: rank(*renewed(1, 2, 3))}, Memberships(3)
    )
    assert [(each.number, each.going, each.absent) for each in seen.collectives] == [
        (1, 0b101, 0),
        (2, 0b111, 0),
        (3, 0b111, 0),
    ]
    assert seen.differences() == []


def test_a_group_that_began_anew_twice() -> None:
    third = [entry._replace(at_us=entry.at_us + 10 * SECOND) for entry in calls(WORLD, 1, 2, at=32 * SECOND)]
    seen = look({0: rank(*renewed(1, 2), *third), 1: rank(*renewed(1, 2))}, Memberships(2))
    assert [(each.number, each.absent) for each in seen.collectives] == [(1, 0b10), (2, 0b10)]


# What does not match


def test_what_may_differ() -> None:
    def differs(*several: dict[str, Any]) -> str:
        ranks = {number: rank(*calls(WORLD, 1, **more)) for number, more in enumerate(several)}
        found = one(look(ranks, Memberships(len(several))), 1).difference
        return found.what if found else ""

    assert differs({}, {}, {"shapes": "2x4"}) == ""
    assert differs({}, {"inputs": 9, "outputs": 9}) == "size"
    assert differs({}, {"dtype": "Half"}) == "type"
    assert differs({}, {"dtype": ""}) == ""
    assert differs({"op": "all_to_all_single"}, {"op": "all_to_all_single", "inputs": 9}) == ""
    assert differs({"op": "gather"}, {"op": "gather", "outputs": 0}) == ""
    assert differs({"op": "all_gather"}, {"op": "all_gather_v", "inputs": 9}) == "operation"


def test_calls_that_are_sent_off_together_are_one() -> None:
    together = [*calls(WORLD, 1, inputs=8), *calls(WORLD, 1, inputs=16, at=SECOND + 1)]
    seen = look({0: rank(*together), 1: rank(*together)}, Memberships(2))
    assert len(seen.collectives) == 1
    assert one(seen, 1).difference is None
    assert one(seen, 1).arrivals == {0: SECOND, 1: SECOND}
    seen = look({0: rank(*together), 1: rank(*together[:1])}, Memberships(2))
    assert one(seen, 1).difference is not None


# NCCL


def nccl(rank: int, *entries: dict[str, Any], ranks: str = "[0, 1]") -> Recorded:
    """A dump as ``FlightRecorder`` of torch writes it for NCCL."""
    usual = {
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": 1,
        "p2p_seq_id": 0,
        "op_id": 1,
        "profiling_name": "nccl:all_reduce",
        "input_sizes": [[3, 4]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[3, 4]],
        "output_dtypes": ["BFloat16"],
        "state": "completed",
        "retired": True,
        "is_p2p": False,
    }
    dump = {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
        "entries": [
            {**usual, "record_id": place, "time_created_ns": (place + rank + 1) * 10**9, **entry}
            for place, entry in enumerate(entries)
        ],
    }
    return Recorded(60 * SECOND, (read_json(json.dumps(dump).encode(), "dump_nccl_trace_json"),))


def test_nccl_of_two_ranks() -> None:
    started = {"collective_seq_id": 2, "state": "started", "retired": False}
    seen = look({0: nccl(0, {}, started), 1: nccl(1, {})}, Memberships(2))
    assert [(each.number, each.going, each.absent, each.sure) for each in seen.open()] == [
        (2, 0b01, 0b10, True)
    ]
    assert not seen.open()[0].group.timed


def test_a_receive_that_nobody_sends() -> None:
    receives = {"profiling_name": "nccl:recv 1<-0", "p2p_seq_id": 4, "is_p2p": True}
    going = {**receives, "state": "scheduled", "retired": False}
    (pair,) = look({5: nccl(5, {}, going)}, Memberships(6)).pairs
    assert (pair.rank, pair.peer, pair.entry.number, pair.entry.call.op) == (5, 0, 4, "recv")
    # In another group the numbers are those of places in it.
    alone = nccl(5, {**going, "process_group": ["3", "pp"]}).traces[0]
    (pair,) = look({5: Recorded(60 * SECOND, (alone,))}, Memberships(6)).pairs
    assert pair.peer is None
    told = alone._replace(members={"3": (2, 5)})
    (pair,) = look({5: Recorded(60 * SECOND, (told,))}, Memberships(6)).pairs
    assert pair.peer == 2


def test_recorders_of_two_backends_of_one_rank() -> None:
    gloo = rank(*calls(WORLD, 1))
    both = Recorded(60 * SECOND, (gloo.traces[0], nccl(0, {}).traces[0]))
    seen = look({0: both, 1: gloo}, Memberships(2))
    assert [(each.group.backend, each.entered, each.unknown, each.absent) for each in seen.collectives] == [
        ("gloo", 0b11, 0, 0),
        ("nccl", 0b01, 0, 0b10),
    ]
    assert mask_of([0, 1]) == seen.heard
