"""The time index: read as it was written, fewer moments the older they are, damage costs what it says."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.base import times
from cockpit.base.times import FINEST_S, Tick, columns, fewer, line, thinned, ticks

NAMES = ("launcher.log", "rank-0.log", "rank-1.log", "rank-12.log")
MOMENTS = st.lists(
    st.tuples(
        st.integers(0, 10**12), st.dictionaries(st.sampled_from(NAMES), st.integers(0, 1 << 60), min_size=1)
    ),
    max_size=60,
)


def moments(
    count: int, every_s: float = FINEST_S, ranks: int = 2, start: float = 1_764_100_000.0
) -> list[Tick]:
    return [
        (start + every_s * place, {f"rank-{rank}.log": 100 * place + rank for rank in range(ranks)})
        for place in range(1, count + 1)
    ]


def split(data: Iterable[bytes]) -> list[bytes]:
    return b"".join(data).split(b"\n")


def sizes(some: Iterable[Tick]) -> list[tuple[float, dict[str, int]]]:
    """All sizes after each moment."""
    found, now = [], dict[str, int]()
    for at, changed in some:
        now = {**now, **changed}
        found.append((round(at, 3), {name: size for name, size in now.items() if size}))
    return found


def news(some: Iterable[Tick]) -> list[tuple[float, dict[str, int]]]:
    """Those moments that change something: columns have no others."""
    found = [(0.0, dict[str, int]()), *sizes(some)]
    return [after for before, after in pairwise(found) if after[1] != before[1]]


@given(MOMENTS)
def test_it_is_read_as_it_was_written(some: list[tuple[int, dict[str, int]]]) -> None:
    written: list[Tick] = [(ms / 1000, changed) for ms, changed in some]
    assert list(ticks(split(line(at, changed) for at, changed in written))) == written
    assert news(ticks(split(columns(written)))) == news(written)


def test_moments_are_the_fewer_the_older_they_are() -> None:
    some = moments(100_000)
    found = fewer(some, 1000)
    assert found[-1000:] == some[-1000:]
    assert len(found) < 15_000
    gaps = [after[0] - before[0] for before, after in pairwise(found)]
    for place in range(0, len(gaps), 100):
        age = found[-1][0] - found[place][0]
        assert gaps[place] <= 2 * max(FINEST_S, age / 1000)
    assert set(map(tuple, (each[1].items() for each in found))) <= {tuple(s.items()) for _, s in some}
    assert fewer(found, 1000) == found


def test_nodes_have_the_same_moments() -> None:
    """So that what they print is merged in as few batches."""
    one, other = (fewer(moments(100_000, start=1_764_100_000.0 + shift), 500) for shift in (0.0, 0.05))
    ends = [{int(at // 3.2) for at, _ in found[:1000]} for found in (one, other)]
    assert len(ends[0] ^ ends[1]) < len(ends[0]) / 50


def test_what_was_last_in_a_moment_counts_for_all_of_it() -> None:
    some: list[Tick] = [(100.0 + place / 10, {f"rank-{place % 3}.log": place}) for place in range(9000)]
    assert sizes(fewer(some, 1))[-1] == sizes(some)[-1]
    kept = dict(sizes(some))
    for at, now in sizes(fewer(some, 10)):
        assert now == kept[at]


def test_clocks_that_are_set_cost_nothing() -> None:
    some = moments(5000, 0.25)
    later = [(at + 1e9, {name: size + 10**6 for name, size in changed.items()}) for at, changed in some]
    assert len(fewer([*some, *later, *some], 15_000 + 7200)) == 15_000


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 24])
def test_a_file_is_thinned_to_half_of_its_limit(ranks: int) -> None:
    limit = 100_000
    data, sent = b"", moments(5000, ranks=ranks)
    for at, changed in sent:
        data += line(at, changed)
        if len(data) > limit:
            data = thinned(data, limit)
            assert len(data) <= limit // 2
    found = sizes(ticks(data.split(b"\n")))
    assert found[-1] == sizes(sent)[-1]
    assert found[0][0] - sent[0][0] < (sent[-1][0] - sent[0][0]) / 4, "the beginning is there too"


def test_of_the_end_alone_what_it_says_is_read() -> None:
    data = b"".join(columns(moments(10_000, ranks=8)))
    end = list(ticks(data[-(64 << 10) :].split(b"\n")[1:]))
    assert end[-1][0] == pytest.approx(moments(10_000)[-1][0])
    assert len(end) > 500
    assert len(end[0][1]) == 8, "of the first moment all sizes"


BAD = [
    b"[]",
    b"{}",
    b"\xff",
    b"[" * 100_000,
    b'{"t": NaN, "s": {}}',
    b'{"t": true, "s": {}}',
    b'{"t": 1e99, "s": {}}',
    b'{"t": 1, "s": {"rank-0.log": -1}}',
    b'{"t": 1, "s": {"rank-0.log": 1.5}}',
    b'{"t": 1, "s": {"../../etc/passwd": 1}}',
    b'{"t": 1, "s": [1]}',
    b'{"t": [], "s": {}}',
    b'{"t": [1, 2], "s": {"rank-0.log": [1]}}',
    b'{"t": [1, -2], "s": {"rank-0.log": [1, 1]}}',
    b'{"t": [1, 2], "s": {"rank-0.log": [1, -2]}}',
    b'{"t": [1.5, 2], "s": {"rank-0.log": [1, 2]}}',
    b'{"t": [1, 2], "s": {"rank-0.log": ["1", 2]}}',
    b'{"t": [1, 2], "s": {"rank-0.log": [1, 9223372036854775808]}}',
    b'{"t": [1, 2], "s": {"rank-0.log": [4611686018427387904, 4611686018427387904]}}',
    b'{"t": [99999999999999, 2], "s": {"rank-0.log": [1, 2]}}',
    b'{"t": [1, 2], "s": {"../x": [1, 2]}}',
    json.dumps({"t": [1] * 5000, "s": {"rank-0.log": [1] * 5000}}).encode(),
]


@pytest.mark.parametrize("bad", BAD)
def test_damage_costs_what_it_says(bad: bytes) -> None:
    some = moments(3000)
    whole = b"".join(columns(some)).split(b"\n")
    assert list(ticks([bad])) == []
    assert sizes(ticks([whole[0], bad, *whole[1:]])) == sizes(some)
    assert sizes(ticks(whole[1:]))[-1] == sizes(some)[-1]
    assert thinned(b"\n".join([bad, *whole])) == thinned(b"\n".join(whole))


def test_names_take_no_room() -> None:
    lines = (line(1.0, {f"rank-{rank}.log": 1}) for rank in range(20_000))
    assert sum(1 for _ in ticks(lines)) == 20_000
    assert times.FILES < 20_000


def test_a_thinned_file_that_cannot_fit_is_empty() -> None:
    assert thinned(line(1.0, {f"rank-{rank}.log": 1 << 60 for rank in range(1000)}), 1000) == b""
