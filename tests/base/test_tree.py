"""The stack tree holds every stack, however it was put together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cockpit.base.stacks.dump import Frame
from cockpit.core.masks import count, mask_of, ranks_of
from cockpit.core.stacks.tree import BRANCHES, FULL, StackTree

FRAMES = st.builds(
    Frame, st.sampled_from("abc"), st.sampled_from(["./x.py", "torch/y.py"]), st.integers(0, 3)
)
STACKS = st.lists(FRAMES, max_size=6).map(tuple)
JOBS = st.dictionaries(st.integers(0, 40), STACKS, max_size=8)


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
def test_nodes_may_answer_in_any_order(
    one: dict[int, tuple[Frame, ...]], two: dict[int, tuple[Frame, ...]], three: dict[int, tuple[Frame, ...]]
) -> None:
    # Ranks of different nodes are different ones.
    jobs = [
        {rank * 3 + number: frames for rank, frames in job.items()}
        for number, job in enumerate((one, two, three))
    ]
    left, right = tree_of({**jobs[0], **jobs[1], **jobs[2]}), tree_of({**jobs[1], **jobs[2], **jobs[0]})
    assert told(left) == told(right)


def test_a_stack_of_thousands_of_frames() -> None:
    deep = tuple(Frame("again", "./x.py", 1) for _ in range(5000))
    tree = tree_of({0: deep, 1: (*deep, Frame("end", "./x.py", 2))})
    tree.add(2, deep)
    assert max(depth for depth, _ in tree.walk()) == 5000


def test_a_tree_that_is_full_says_so_and_keeps_every_rank() -> None:
    tree = StackTree()
    for rank in range(60):
        tree.add(rank, tuple(Frame("again", "./x.py", rank) for _ in range(1000)))
    branches = [branch for _, branch in tree.walk()]
    assert BRANCHES <= len(branches) <= BRANCHES + 60
    assert tree.ranks == (1 << 60) - 1
    assert sum(branch.ends for branch in branches) == tree.ranks
    assert "not in the tree" in tree.below[FULL].frame.name
    # Where a stack is in the tree already, a full one has it still.
    tree.add(99, tuple(Frame("again", "./x.py", 0) for _ in range(1000)))
    assert sum(branch.ends for branch in branches if branch.ends & 1) == 1 << 99 | 1
    # In another order another stack finds no room; none is lost.
    again = StackTree()
    for rank in reversed(range(60)):
        again.add(rank, tuple(Frame("again", "./x.py", rank) for _ in range(1000)))
    assert again.ranks == (1 << 60) - 1
    assert sum(branch.ends for _, branch in again.walk()) == again.ranks
