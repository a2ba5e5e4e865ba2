"""What recorders say, in words."""

from __future__ import annotations

import json

from cockpit.core.recorder.members import Memberships
from cockpit.core.recorder.merge import look
from cockpit.core.recorder.report import as_json, as_lines
from tests.core.test_recorder import PAIR, WORLD, calls, nccl, rank
from tests.recorder import recorded


def test_a_hang() -> None:
    assert as_lines(recorded.seen("missing"), {5: "no answer", 6: "no answer"}) == [
        "collectives:",
        "  rank 3 has not entered what others wait for",
        "  all_reduce of 2,000 Float, number 50 of group 4: rank 1 has waited 3.0 s; "
        "rank 3 has not entered; 2 more like it",
        "  all_reduce of 1 Float, number 13 of all ranks (group 0): ranks 0,2 have waited 3.0 s; "
        "ranks 1,3 have not entered",
        "  unknown for ranks 5-6: no answer",
    ]


def test_nothing_is_wrong() -> None:
    assert as_lines(recorded.seen("slow"), {}) == [
        "collectives:",
        "  no rank waits for another one (0-3 inspected)",
        # The innocent partner first: rank 2 is the slow one.
        "  arrives last in group 4: rank 3, in 52 of the last 52 collectives, 50 ms after the others",
        "  arrives last in group 3: rank 2, in 52 of the last 52 collectives, 50 ms after the others",
        "  arrives last in group 2: rank 2, in 13 of the last 13 collectives, 50 ms after the others",
        "  (the last one may itself have waited for another rank: 'cockpit ps' says which one is slow)",
    ]
    told = as_json(recorded.seen("slow"), {})["last"]
    assert [(one["group"], one["rank"], one["times"], round(one["lag_s"], 2)) for one in told] == [
        ("4", 3, 52, 0.05),
        ("3", 2, 52, 0.05),
        ("2", 2, 13, 0.05),
    ]


def test_of_ranks_that_did_not_answer_nothing_is_said() -> None:
    assert as_lines(look({}, Memberships(2)), {0: "no answer", 1: "no answer"}) == [
        "collectives:",
        "  unknown for ranks 0-1: no answer",
    ]


def test_what_does_not_match() -> None:
    assert as_lines(recorded.seen("size"), {})[1:] == [
        "  all_reduce of 10 Float, number 14 of all ranks (group 0): ranks 1-2 have been in it for 3.0 s, "
        "and all have entered",
        "  number 14 of all ranks (group 0): sizes differ: "
        "10 Float [10] (ranks 0,2-3), 12 Float [12] (rank 1)",
    ]
    assert as_lines(recorded.seen("operation"), {})[-1].endswith(
        "operations differ: all_reduce (ranks 0,2-3), broadcast (rank 1)"
    )


def test_what_is_not_known_is_said() -> None:
    tensor = PAIR._replace(desc="tp")
    both = {0: rank(*calls(tensor, 1)), 1: rank(*calls(tensor, 1))}
    memberships = Memberships(3)
    look(both, memberships)
    seen = look({0: rank(*calls(tensor, 1, 2, going=1)), 2: rank(*calls(WORLD, 1))}, memberships)
    assert (
        as_lines(seen, {})[1:]
        == [
            "  all_reduce of 8 Float, number 2 of group 7 (tp): rank 0 has been in it for 58.0 s; "
            "unknown for rank 1",
            "  all_reduce of 8 Float, number 1 of all ranks (group 0): unknown for rank 1",
        ][:1]
    )


def test_who_is_in_a_group_may_not_be_known() -> None:
    # The first collective of a group on gloo: who never entered it is unknown to be in it.
    seen = look({0: rank(*calls(PAIR, 1, going=1)), 1: rank(*calls(WORLD, 1))}, Memberships(2))
    assert as_lines(seen, {})[1] == (
        "  all_reduce of 8 Float, number 1 of group 7: rank 0 has been in it for 59.0 s, "
        "and all known members of this group have entered"
    )


def test_a_receive_and_the_form_for_programs() -> None:
    going = {"state": "started", "retired": False}
    receives = {"profiling_name": "nccl:recv 1<-0", "is_p2p": True, **going}
    seen = look({0: nccl(0, {}), 1: nccl(1, {}, receives)}, Memberships(2))
    assert as_lines(seen, {})[1:] == [
        "  rank 0 has not entered what others wait for",
        "  rank 1 has been in a recv from rank 0 for 57.0 s, number 0 of all ranks (group 0); "
        "rank 0 has not sent",
    ]
    told = json.loads(json.dumps(as_json(seen, {7: "no answer"})))
    assert {"peer": 0, "alone": True, "waited_s": 57.0}.items() <= told["pairs"][0].items()
    assert told["silent"] == {"7": "no answer"}
    told = as_json(recorded.seen("missing"), {})
    assert (told["heard"], told["missing"], len(told["waits"])) == ("0-3", "3", 4)
    assert {"waiting": "1", "absent": "3", "number": 50, "op": "all_reduce"}.items() <= told["waits"][
        0
    ].items()
    (one,) = as_json(recorded.seen("size"), {})["differences"]
    assert [(each["ranks"], each["inputs"]) for each in one["calls"]] == [("0,2-3", 10), ("1", 12)]
