"""The stack tree holds every stack, however it was put together; packed dumps come back as they were."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.base.masks import count, mask_of, ranks_of
from cockpit.base.stacks import (
    UNPACKED_LIMIT,
    Child,
    Dump,
    Frame,
    Process,
    Thread,
    dump_from_json,
    dump_json,
    pack,
    unpack,
)
from cockpit.base.tree import StackTree

FRAMES = st.builds(
    Frame, st.sampled_from("abc"), st.sampled_from(["./x.py", "torch/y.py"]), st.integers(0, 3)
)
STACKS = st.lists(FRAMES, max_size=6).map(tuple)
JOBS = st.dictionaries(st.integers(0, 40), STACKS, max_size=8)
THREADS = st.builds(
    Thread,
    st.text(max_size=5),
    st.integers(0, 9),
    st.booleans(),
    st.booleans(),
    STACKS,
    st.lists(st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2), max_size=2).map(tuple),
)
NAMES = st.text(max_size=3)
CHILDREN = st.builds(Child, st.integers(1, 9), NAMES, st.just("S"), st.lists(THREADS, max_size=2).map(tuple))
DUMPS = st.builds(
    Dump,
    st.integers(0, 99),
    st.floats(0, 1e9),
    st.none()
    | st.builds(
        Process,
        st.integers(1, 9),
        st.integers(0, 9),
        st.sampled_from("RSDTZ"),
        cpu_s=st.floats(0, 1e9),
        main_cpu_s=st.floats(0, 1e9),
        children=st.lists(CHILDREN, max_size=2).map(tuple),
    ),
    st.sampled_from(["plain", "native", ""]),
    st.lists(THREADS, max_size=3).map(tuple),
    notes=st.lists(st.text(max_size=3), max_size=2).map(tuple),
)


def tree_of(job: dict[int, tuple[Frame, ...]]) -> StackTree:
    tree = StackTree()
    for rank, frames in job.items():
        tree.add(rank, frames)
    return tree


def told(tree: StackTree) -> list[tuple[int, Frame, int, int]]:
    return [(depth, branch.frame, branch.ranks, branch.ends) for depth, branch in tree.walk()]


@given(JOBS)
def test_every_stack_can_be_read_back(job: dict[int, tuple[Frame, ...]]) -> None:
    found: dict[int, tuple[Frame, ...]] = {}
    path: list[Frame] = []
    for depth, branch in tree_of(job).walk():
        path[depth:] = [branch.frame]
        found.update(dict.fromkeys(ranks_of(branch.ends), tuple(path)))
    assert found == {rank: frames for rank, frames in job.items() if frames}


@given(JOBS)
def test_ranks_part_and_never_double(job: dict[int, tuple[Frame, ...]]) -> None:
    tree = tree_of(job)
    for level, ranks, ends in [
        (tree.branches(), tree.ranks, 0),
        *((branch.branches(), branch.ranks, branch.ends) for _, branch in tree.walk()),
    ]:
        parts = [branch.ranks for branch in level] + [ends]
        assert sum(map(count, parts)) == count(ranks)
        assert mask_of(rank for part in parts for rank in ranks_of(part)) == ranks


@given(JOBS, JOBS, JOBS)
def test_nodes_may_be_merged_in_any_order(
    one: dict[int, tuple[Frame, ...]], two: dict[int, tuple[Frame, ...]], three: dict[int, tuple[Frame, ...]]
) -> None:
    # Ranks of different nodes are different ones.
    jobs = [
        {rank * 3 + number: frames for rank, frames in job.items()}
        for number, job in enumerate((one, two, three))
    ]
    left, right = tree_of(jobs[0]), tree_of(jobs[1])
    left.merge(tree_of(jobs[1]))
    left.merge(tree_of(jobs[2]))
    right.merge(tree_of(jobs[2]))
    right.merge(tree_of(jobs[0]))
    assert told(left) == told(right) == told(tree_of({**jobs[0], **jobs[1], **jobs[2]}))


def test_a_stack_of_thousands_of_frames() -> None:
    deep = tuple(Frame("again", "./x.py", 1) for _ in range(5000))
    tree = tree_of({0: deep, 1: (*deep, Frame("end", "./x.py", 2))})
    other = tree_of({2: deep})
    tree.merge(other)
    assert max(depth for depth, _ in tree.walk()) == 5000
    (dump,) = unpack(pack([Dump(0, 1.0, threads=(Thread("MainThread", 1, True, True, deep),))]), str)
    assert dump.frames == deep


@given(st.lists(DUMPS, max_size=4))
def test_dumps_travel_unchanged(dumps: list[Dump]) -> None:
    assert unpack(pack(dumps), str) == dumps
    assert [dump_from_json(dump_json(dump), str) for dump in dumps] == dumps


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"frames": [], "nodes": [[0, 0]], "dumps": []}',
        '{"frames": [["a", "b", 1, 0]], "nodes": [[5, 0]], "dumps": []}',
        '{"frames": [["a"]], "nodes": [], "dumps": []}',
        '{"frames": [], "nodes": [], "dumps": [{"rank": 0}]}',
        '{"frames": [], "nodes": [], "dumps": [7]}',
    ],
)
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a packed dump"):
        unpack(zlib.compress(text.encode()), str)


def test_what_is_not_whole_or_too_large_is_refused() -> None:
    whole = pack([Dump(0, 1.0)])
    for data in (b"", b"junk", whole[:-3], zlib.compress(b" " * (UNPACKED_LIMIT + 1))):
        with pytest.raises(ValueError, match="not a packed dump"):
            unpack(data, str)


def test_every_string_of_a_node_is_cleaned() -> None:
    thread = Thread("t", 1, True, True, (Frame("f", "x", 1),), ({"v": "w"},))
    process = Process(1, 2, "S", "w", "c", "t", children=(Child(3, "n", "S", (thread,)),))
    seen: list[str] = []

    def clean(text: str) -> str:
        seen.append(text)
        return "clean"

    (dump,) = unpack(pack([Dump(0, 1.0, process, "plain", (thread,), "s", "e", "w", "h", ("n",))]), clean)
    assert dump.threads[0].frames == (Frame("clean", "clean", 1),)
    assert dump.threads[0].locals == ({"clean": "clean"},)
    assert dump.process is not None
    assert dump.process.children[0].name == "clean"
    assert {dump.way, dump.source, dump.error, dump.what, dump.hint, *dump.notes} == {"clean"}
    assert {"f", "x", "v", "w", "s", "e", "h", "n", "c", "t", "plain"} <= set(seen)
