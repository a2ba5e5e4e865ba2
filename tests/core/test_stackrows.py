"""Classes and the tree as lines: what is folded, what stands out, what is printed."""

from __future__ import annotations

import json

import pytest

from cockpit.base.stacks.dump import Dump, Frame, Process, Thread
from cockpit.core.masks import mask_of
from cockpit.core.stacks.classes import classes, movement
from cockpit.core.stacks.flamegraph import to_folded, to_speedscope
from cockpit.core.stacks.snapshot import Place, Sample, Snapshot
from cockpit.core.stacks.text import as_lines
from cockpit.core.stacks.tree import StackTree
from cockpit.core.stacks.tree_lines import LEVELS, place, rows
from cockpit.core.stacks.verdict import verdict
from cockpit.core.stacks.words import being_words, does_words
from cockpit.core.text import ascii_text

MAIN = Frame("main", "./train.py", 212)
LIBRARY = tuple(Frame(f"inner{number}", "torch/x.py", number) for number in range(4))
REDUCE = Frame("all_reduce", "torch/distributed/distributed_c10d.py", 3252)
WAITS = (MAIN, *LIBRARY, REDUCE)
READS = (MAIN._replace(line=183), Frame("read_shard", "./data.py", 118))


def dump(rank: int, frames: tuple[Frame, ...], at: float = 0.0, **facts: object) -> Dump:
    process = Process(100 + rank, 7, "S")._replace(**facts)  # type: ignore[arg-type]
    source = "buf = f.read()" if frames == READS else ""
    return Dump(rank, at, process, "plain", (Thread("MainThread", 1, False, False, frames),), source)


def snapshot(*samples: dict[int, Dump], world: int = 4) -> Snapshot:
    taken = [Sample(float(number), dict(dumps), {}, 0.1) for number, dumps in enumerate(samples)]
    return Snapshot(
        "20261121-040000", "otter", "otter", {rank: Place("gpu01") for rank in range(world)}, taken
    )


def hung(at: float) -> dict[int, Dump]:
    return {rank: dump(rank, READS if rank == 2 else WAITS, at) for rank in range(4)}


def tree_of(dumps: dict[int, Dump]) -> StackTree:
    tree = StackTree()
    for rank, one in dumps.items():
        tree.add(rank, one.frames)
    return tree


def test_the_odd_ones_come_first_and_say_what_they_do() -> None:
    found = classes(snapshot(hung(0), hung(1)))
    assert [one.ranks for one in found] == [mask_of([2]), mask_of([0, 1, 3])]
    assert [one.movement for one in found] == ["frozen", "frozen"]
    assert found[0].source == "buf = f.read()"
    assert found[1].doing.what == "all_reduce"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (dump(0, WAITS), dump(0, WAITS, 1), "frozen"),
        (dump(0, WAITS), dump(0, READS, 1), "moving"),
        (dump(0, WAITS), dump(0, WAITS, 1, main_cpu_s=0.5), "moving"),
        (dump(0, WAITS), dump(0, WAITS, 1, main_cpu_s=0.01), "frozen"),
        (dump(0, WAITS), dump(0, WAITS, 1, switches=100), "polls"),
        (dump(0, WAITS), dump(0, WAITS, 1, switches=2), "frozen"),
        (dump(0, WAITS), dump(0, WAITS, 1, ticks=8), "moving"),
        (dump(0, WAITS), Dump(0, 1.0, error="denied"), ""),
    ],
)
def test_frozen_or_moving(before: Dump, after: Dump, expected: str) -> None:
    assert movement([before, after]) == expected


def test_native_frames_neither_part_ranks_nor_move_them() -> None:
    wait = Frame("c10d::Work::wait", "libtorch_cpu.so", 0, True)
    ends = [(wait, Frame(f"inner{number}", "libc.so.6", 0, True)) for number in range(3)]
    samples = [
        {rank: dump(rank, READS if rank == 2 else (*WAITS, *ends[(rank + at) % 3]), at) for rank in range(4)}
        for at in range(2)
    ]
    # py-spy got no native frames of this one.
    samples[1][3] = dump(3, WAITS, 1)
    found = classes(snapshot(*samples))
    assert [(one.ranks, one.movement, one.doing.what) for one in found] == [
        (mask_of([2]), "frozen", ""),
        (mask_of([0, 1, 3]), "frozen", "all_reduce"),
    ]


def test_those_without_a_stack_are_one_class_for_one_reason() -> None:
    gone = {rank: Dump(rank, 0.0, error="gone", what=f"its process {100 + rank} ended") for rank in range(3)}
    taken = snapshot({**gone})
    taken.ranks = {rank: Place("gpu01", pid=100 + rank) for rank in range(4)}
    (found,) = classes(taken)
    assert (found.ranks, found.doing.text) == (mask_of(range(3)), "its process ended")


def test_chains_of_libraries_are_one_line_that_opens() -> None:
    tree = tree_of(hung(0))
    closed = rows(tree, odd=mask_of([2]))
    assert [row.note or (row.frame and row.frame.name) for row in closed] == [
        "main", "read_shard", "main", "4 library frames", "all_reduce",
    ]  # fmt: skip
    fold = closed[3]
    assert (fold.frame, fold.folded) == (None, 4)
    opened = rows(tree, {fold.key})
    assert [row.frame.name for row in opened if row.frame] == [
        "main", "read_shard", "main", *(frame.name for frame in LIBRARY), "all_reduce",
    ]  # fmt: skip
    assert [row.frame for row in rows(tree, library=True) if row.frame] == [
        row.frame for row in opened if row.frame
    ]


def test_where_ranks_part_it_is_said_how_many_are_where() -> None:
    found = rows(tree_of(hung(0)), odd=mask_of([2]))
    assert [(row.here, row.missing) for row in found[:3]] == [
        (mask_of([2]), mask_of([0, 1, 3])),
        (0, 0),
        (mask_of([0, 1, 3]), mask_of([2])),
    ]
    assert [row.odd for row in found] == [True, True, False, False, False]
    assert found[-1].kind == "collective"


def test_what_branches_have_in_common_is_shown_once() -> None:
    other = (MAIN._replace(line=214), *WAITS[1:])
    tree = tree_of({0: dump(0, WAITS), 1: dump(1, other), 2: dump(2, READS)})
    found = rows(tree)
    (fold,) = [row for row in found if row.note.startswith("as above")]
    assert fold.ranks == mask_of([1])
    assert fold.folded == 5
    assert len(rows(tree, {fold.key})) > len(found)
    # What only the odd rank is in stays in sight.
    assert not [row for row in rows(tree, odd=mask_of([1])) if row.note.startswith("as above")]


def test_the_deepest_stack_has_lines_too() -> None:
    deep = tuple(Frame(f"again{number}", "./x.py", number) for number in range(3000))
    assert len(rows(tree_of({0: dump(0, deep)}))) == 3000


def test_text_names_the_odd_rank_and_who_is_missing() -> None:
    first, second = hung(0), hung(1)
    second[3] = Dump(3, 1.0, error="denied", what="permission denied", hint="sudo …")
    shown = snapshot(first, second)
    text = "\n".join(as_lines(shown, verdict(shown), threads="all"))
    assert text.splitlines()[0].startswith("rank 2 ")
    assert "data.py:118" in text
    assert "buf = f.read()" in text
    assert "4 library frames" in text
    assert "  3: permission denied" in text
    assert "rank 2, thread MainThread" in text
    assert as_lines(snapshot(), verdict(snapshot()))
    assert any(char in text for char in "└├·")
    assert ascii_text(text).isascii()
    assert len(ascii_text(text).splitlines()) == len(text.splitlines())


def test_who_sleeps_is_not_said_to_poll() -> None:
    asleep = [{0: dump(0, READS, at, call="clock_nanosleep", switches=50 + 10 * at)} for at in (0, 1)]
    (found,) = classes(snapshot(*asleep, world=1))
    assert (found.movement, found.facts) == ("polls", "sleeps")


@pytest.mark.parametrize(
    ("text", "many"),
    [
        ("receives from a socket", "receive from a socket"),
        ("reads /data/sleeps", "read /data/sleeps"),
        ("reads or writes", "read or write"),
        ("flushes /data/its", "flush /data/its"),
        ("waits for a build, or for its lock", "wait for a build, or for its lock"),
        ("waits for its device", "wait for their device"),
        ("is at its end, and waits for another thread", "are at their end, and wait for another thread"),
        ("no Python stack", "no Python stack"),
    ],
)
def test_what_several_do_is_said_of_several(text: str, many: str) -> None:
    assert (does_words(text, 0b100), does_words(text, 0b101)) == (text, many)


@pytest.mark.parametrize(
    ("detail", "words"),
    [
        ("It sleeps.", "sleeping"),
        ("It runs.", "running"),
        ("It receives from a socket.", "receiving from a socket"),
        ("It is building an extension that others wait for.", "building an extension that others wait for"),
        ("It reads or writes a file.", ""),
        ("It moves: it is late, or in a loop.", ""),
        ("Its main thread is at its end.", ""),
    ],
)
def test_what_one_does_is_said_after_its_place(detail: str, words: str) -> None:
    assert being_words(detail) == words


def test_text_of_many_scattered_ranks_stays_short() -> None:
    dumps = {rank: dump(rank, WAITS if rank % 3 else READS) for rank in range(1024) if rank % 5}
    shown = snapshot(dumps)
    shown.ranks.update({rank: Place("gpu01") for rank in range(0, 1024, 5)})
    lines = as_lines(shown, verdict(shown))
    assert max(map(len, lines[-20:])) < 120
    assert any(line.startswith("273 ranks 3,6,9,12,18,21,24,27,33,36,39,42,48,51,…: ") for line in lines)
    columns = {line[:24].rstrip() for line in lines if line.endswith("read_shard  data.py:118")}
    assert columns == {"3,6,9,12,18,21,… (273)"}
    assert any(line.startswith("  0,5,10,15,20,25,30,35,40,45,50,… (205): ") for line in lines)


def test_folded_and_speedscope() -> None:
    shown = snapshot(hung(0), hung(1))
    lines = to_folded(shown).splitlines()
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == 8
    assert "main (./train.py:183);read_shard (./data.py:118) 2" in lines
    told = json.loads(json.dumps(to_speedscope(shown)))
    assert {profile["endValue"] for profile in told["profiles"]} == {1, 3}
    assert all(frame < len(told["shared"]["frames"]) for p in told["profiles"] for frame in p["samples"][0])


def test_a_deep_tree_is_drawn_in_room_that_grows_with_it_and_not_with_its_square() -> None:
    # More functions in turn than are seen to repeat.
    down = {
        odd: tuple(Frame(f"again{odd}", "./train.py", number % 40) for number in range(3000))
        for odd in (0, 1)
    }
    down = {odd: tuple(one._replace(name=f"{one.name}-{one.line}") for one in down[odd]) for odd in down}
    deep = {rank: dump(rank, (MAIN, *down[rank % 2])) for rank in range(4)}
    found = rows(tree_of(deep))
    assert len(found) == 1 + 2 * 3000
    assert len({row.key for row in found}) == len(found)
    assert max(len(row.guides) for row in found) < 2 * LEVELS + 10
    assert found[3000].key == place((MAIN, *down[0]))
    told = snapshot(deep)
    text = "\n".join(as_lines(told, verdict(told)))
    assert text.count("again1") >= 3000
    assert len(text) < 6000 * 200


def test_a_tree_that_is_full_says_so_in_print() -> None:
    many = {
        rank: dump(rank, tuple(Frame(f"f{rank}", "./train.py", 7) for _ in range(1000))) for rank in range(60)
    }
    told = snapshot(many, world=60)
    assert "(not in the tree: it has 50,000 calls already)" in "\n".join(as_lines(told, verdict(told)))


WALK = tuple(Frame("walk", "./tree.py", 31) for _ in range(812))
LEAF = (Frame("walk", "./tree.py", 29), Frame("read", "./data.py", 5))


def test_deep_recursion_is_one_line_that_opens() -> None:
    dumps = {rank: dump(rank, (MAIN, *WALK, *LEAF)) for rank in range(2)}
    tree = tree_of(dumps)
    found = rows(tree)
    assert [row.frame.name if row.frame else row.note for row in found] == [
        "main", "walk  tree.py:31  recurse ×812", "walk", "read",
    ]  # fmt: skip
    folded = found[1]
    assert (folded.folded, folded.ranks) == (812, 0b11)
    assert len(rows(tree, {folded.key})) == len(found) + 812
    assert len(rows(tree, library=True)) == 815
    text = "\n".join(as_lines(snapshot(dumps), verdict(snapshot(dumps)), threads="main"))
    assert text.count("walk  tree.py:31  recurse ×812") == 2  # the tree, and the thread
    assert text.count("walk") < 9
    assert "recurse x812" in ascii_text(text)


def test_functions_that_call_each_other_are_one_line_and_a_few_calls_are_not() -> None:
    pair = (Frame("even", "./a.py", 2), Frame("odd", "./b.py", 4))
    _, folded, *rest = rows(tree_of({0: dump(0, (MAIN, *pair * 200, *LEAF[1:]))}))
    assert folded.note == "even, odd recurse ×199"
    # Its last call says where it stands.
    assert [row.frame.name for row in rest if row.frame] == ["odd", "read"]
    few = rows(tree_of({0: dump(0, (MAIN, *WALK[:4], *LEAF[1:]))}))
    assert len(few) == 6
    # Ranks part in it: what each of them has for itself is folded as well.
    parted = rows(tree_of({0: dump(0, (MAIN, *WALK[:50])), 1: dump(1, (MAIN, *WALK[:90], *LEAF))}))
    assert [row.note for row in parted if row.frame is None] == [
        "walk  tree.py:31  recurse ×49",
        "walk  tree.py:31  recurse ×40",
    ]
