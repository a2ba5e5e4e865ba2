"""Many ranks, one stream: nothing lost, nothing reordered within a rank."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cockpit.core.logs.blocks import RECORD_LINES
from cockpit.core.logs.folding import RECORD_WAIT, Folded, Folder
from cockpit.core.logs.sources import Source
from tests.core.folds import said as said_of


def source(rank: int) -> Source:
    return ("node1", rank)


def merged(streams: list[list[bytes]], hold: float = 0) -> list[Folded]:
    folder = Folder(hold)
    for rank, lines in enumerate(streams):
        folder.add(source(rank), lines)
    return folder.flush()


def by_rank(items: list[Folded]) -> dict[Source, list[bytes]]:
    """Undo the folding."""
    lines: dict[Source, list[bytes]] = defaultdict(list)
    for item in items:
        assert len(set(item.sources)) == len(item.sources)
        for who, text in said_of(item):
            lines[who] += text.split(b"\n")
    return lines


TRACE = [
    b"Traceback (most recent call last):",
    b'  File "train.py", line 3, in <module>',
    b"    main()",
    b"ValueError: no",
]
texts = st.sampled_from(
    [b"a", b"b", b"c", b"", b"x 1", b"x 2", *TRACE, b"During handling of the above exception, x"]
)
steps = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 3), st.lists(texts, max_size=6)),
        st.floats(0, 1.5),
    ),
    max_size=25,
)


@given(steps, st.sampled_from([0, 0.5]))
@settings(max_examples=400)
def test_each_rank_keeps_its_lines_and_their_order(
    script: list[tuple[int, list[bytes]] | float], hold: float
) -> None:
    folder = Folder(hold)
    said: dict[Source, list[bytes]] = defaultdict(list)
    items: list[Folded] = []
    now = 0.0
    for step in script:
        if isinstance(step, tuple):
            folder.add(source(step[0]), step[1])
            said[source(step[0])] += step[1]
        else:
            now += step
            items += folder.drain(now)
    items += folder.flush()
    assert {who: lines for who, lines in said.items() if lines} == by_rank(items)
    assert folder.held == 0
    assert not any(folder.holds(source(rank)) for rank in range(4))


@given(st.lists(texts.filter(lambda text: text not in TRACE), max_size=30), st.integers(1, 9))
def test_equal_streams_fold_completely(lines: list[bytes], ranks: int) -> None:
    items = merged([lines] * ranks)
    assert [item.text for item in items] == lines
    assert all(len(item.sources) == ranks for item in items)


@given(st.lists(st.lists(texts.filter(lambda text: text not in TRACE), max_size=8), max_size=4))
def test_the_count_of_each_line_is_kept(streams: list[list[bytes]]) -> None:
    counted: Counter[bytes] = Counter()
    for item in merged(streams):
        counted.update(text for _, text in said_of(item))
    assert counted == Counter(line for lines in streams for line in lines)


def test_common_lines_fold_around_own_ones() -> None:
    own = [b"one", b"two", b"three", b"four"]
    items = merged([[b"begin", b"mine is " + word, b"end"] for word in own])
    assert [(item.text, len(item.sources)) for item in items] == [
        (b"begin", 4),
        *((b"mine is " + word, 1) for word in own),
        (b"end", 4),
    ]


def test_crossing_orders_do_not_block() -> None:
    assert [(item.text, len(item.sources)) for item in merged([[b"x", b"y"], [b"y", b"x"]])] == [
        (b"x", 1),
        (b"y", 2),
        (b"x", 1),
    ]


def test_a_line_waits_for_the_others_but_not_for_ever() -> None:
    folder = Folder(0.5)
    for rank in (0, 1, 2):
        folder.add(source(rank), [b"hello"])
    assert len(folder.drain(0)) == 1, "all have said it: no need to wait"
    folder.add(source(0), [b"step"])
    assert folder.drain(1.0) == []
    folder.add(source(1), [b"step"])
    assert folder.drain(1.4) == []
    assert folder.drain(1.5) == [Folded([source(0), source(1)], b"step")]
    folder.add(source(2), [b"step"])
    assert folder.drain(1.6) == []
    assert folder.drain(2.1) == [Folded([source(2)], b"step")]


def test_all_orders_cross() -> None:
    """Each rank begins elsewhere in the same circle of lines: nothing is ever ready by itself."""
    ranks, size = 16, 64
    circle = [b"%d" % number for number in range(size)]
    streams = [circle[rank * 4 :] + circle[: rank * 4] for rank in range(ranks)]
    items = merged(streams)
    assert by_rank(items) == {source(rank): lines for rank, lines in enumerate(streams)}


def test_tracebacks_stay_whole_and_fold() -> None:
    first, second, third = TRACE, [*TRACE[:-1], b"KeyError: 'x'"], TRACE
    items = merged([[b"a", *first, b"z"], [b"a", *second, b"z"], [b"a", *third, b"z"]])
    assert [(item.text.split(b"\n"), len(item.sources)) for item in items] == [
        ([b"a"], 3),
        (second, 1),
        (first, 2),
        ([b"z"], 3),
    ]


def test_chained_and_prefixed_tracebacks_are_one_record() -> None:
    chain = [*TRACE, b"", b"During handling of the above exception, another exception occurred:", b"", *TRACE]
    prefixed = [b"[rank3]: " + line if line else b"" for line in chain]
    hosts = [b"node7: " + line for line in TRACE]
    for record in (chain, prefixed, hosts):
        items = merged([[b"before", *record, b"after"]])
        assert [item.text for item in items] == [b"before", b"\n".join(record), b"after"]


def test_half_a_traceback_waits_for_the_rest() -> None:
    folder = Folder(0)
    folder.add(source(0), [b"a", *TRACE[:2]])
    folder.add(source(1), [b"b"])
    assert [item.text for item in folder.drain(0)] == [b"a", b"b"]
    assert folder.holds(source(0))
    folder.add(source(0), TRACE[2:])
    assert [item.text for item in folder.drain(1)] == [b"\n".join(TRACE)]


def test_half_a_traceback_is_given_up_after_a_while() -> None:
    folder = Folder(0)
    folder.add(source(0), TRACE[:2])
    assert folder.drain(10) == []
    assert folder.drain(10 + RECORD_WAIT / 2) == []
    assert [item.text for item in folder.drain(10 + RECORD_WAIT)] == [b"\n".join(TRACE[:2])]
    folder.add(source(0), [TRACE[0], *[b"  frame"] * (2 * RECORD_LINES)])
    assert folder.held > 0, "a traceback without end is cut"
    assert by_rank(folder.flush()) == {source(0): [TRACE[0], *[b"  frame"] * (2 * RECORD_LINES)]}


OOM = [
    b"Traceback (most recent call last):",
    b'  File "/work/train.py", line 31, in <module>',
    b"    main()",
    b"    ~~~~^^",
    b"torch.OutOfMemoryError: CUDA out of memory, GPU %(rank)d has 1.%(rank)d GiB free.",
]
"""A traceback that is another one on each rank."""


@pytest.mark.parametrize(
    "prefix",
    [
        *(b"", b"[rank%(rank)d]: ", b"[default%(rank)d]:", b"[1,%(rank)d]<stderr>:", b"%(rank)d: "),
        b"2026-11-20 03:14:01.12%(rank)d [rank%(rank)d]: ",
        b"i.name/0 [default%(rank)d]:[rank%(rank)d]: ",
    ],
)
@pytest.mark.parametrize("bar", [b"", b"12%%|#2   | 12/100 [00:10<01:20,  1.%(rank)dit/s]"])
def test_tracebacks_of_many_ranks_are_one_whatever_stands_before_them(prefix: bytes, bar: bytes) -> None:
    streams = []
    for rank in range(8):
        lines = [b"[INFO] begin", *OOM, b"[INFO] end"]
        lines[1] = bar + lines[1]
        streams.append([(prefix + line) % {b"rank": rank} for line in lines])
    items = merged(streams)
    assert by_rank(items) == {source(rank): lines for rank, lines in enumerate(streams)}
    assert [len(item.sources) for item in items] == [8, 8, 8]
    assert items[1].text.count(b"\n") == len(OOM) - 1
    assert b"GPU 0\xe2\x80\x937 has 1.0\xe2\x80\x931.7 GiB free." in items[1].text
    assert b"Traceback (most recent call last):" in items[1].text
    assert prefix == b"" or b"rank" not in items[1].text


def test_another_frame_is_another_traceback() -> None:
    other = [*OOM[:1], OOM[1].replace(b"31", b"32"), *OOM[2:]]
    items = merged(
        [[line % {b"rank": rank} for line in lines] for rank, lines in enumerate((OOM, other, OOM))]
    )
    assert sorted(len(item.sources) for item in items) == [1, 2]


def test_device_asserts_of_a_warp_fold_with_those_of_other_ranks() -> None:
    line = b"/src/Index.cu:90: run: block: [%d,0,0], thread: [%d,0,0] Assertion `i < n` failed."
    streams = [[line % (rank, thread * (rank + 1)) for thread in range(32)] for rank in range(4)]
    items = merged(streams)
    assert by_rank(items) == {source(rank): lines for rank, lines in enumerate(streams)}
    assert [len(item.sources) for item in items] == [4] * 32


def test_a_rank_that_is_behind_folds_with_the_same_step() -> None:
    def steps(first: int, last: int, rank: int) -> list[bytes]:
        return [b"step %d loss 2.%d%d" % (step, step, rank) for step in range(first, last)]

    items = merged([steps(1, 5, 0), steps(3, 7, 1), steps(2, 5, 2)])
    assert [len(item.sources) for item in items] == [1, 2, 3, 3, 1, 1]
    assert [item.text.split()[1] for item in items] == [b"1", b"2", b"3", b"4", b"5", b"6"]


def test_a_rank_that_is_behind_folds_with_equal_lines() -> None:
    counts = [b"heartbeat %d" % number for number in range(9)]
    items = merged([counts[:5], counts[2:], counts[1:]])
    assert [(item.text, len(item.sources)) for item in items] == [
        (b"heartbeat %d" % number, held) for number, held in enumerate([1, 2, 3, 3, 3, 2, 2, 2, 2])
    ]


def test_what_is_measured_may_be_said_again_later() -> None:
    """Equal numbers of other lines are no reason to wait for them."""
    streams = [
        [b"used 9.%d GB, %d MiB more" % ((rank + at) % 3, 7 + (rank * at) % 5) for at in range(9)]
        for rank in range(4)
    ]
    assert [len(item.sources) for item in merged(streams)] == [4] * 9


def test_without_shapes_only_equal_lines_fold() -> None:
    folder = Folder(0, shapes=False)
    for rank in range(3):
        folder.add(source(rank), [b"all", b"loss 2.%d" % rank])
    assert [len(item.sources) for item in folder.flush()] == [3, 1, 1, 1]


said = st.lists(
    st.one_of(
        texts, st.builds(b"step %d loss 2.%d".__mod__, st.tuples(st.integers(0, 3), st.integers(0, 9)))
    ),
    max_size=12,
)


@given(st.lists(said, max_size=5))
def test_originals_of_what_is_told_as_one_are_the_lines_that_were_printed(streams: list[list[bytes]]) -> None:
    items = merged(streams)
    assert by_rank(items) == {source(rank): lines for rank, lines in enumerate(streams) if lines}
    for item in items:
        assert not item.originals or len(item.originals) == len(item.sources)
        assert len(set(item.originals)) != 1
