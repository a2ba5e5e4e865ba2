"""Whatever the chunks: every line is in one segment, and batches are of a size that can be worked with."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from cockpit.core.logs import batches as segments
from cockpit.core.logs.batches import LATELY, PROMPT_S, Collector, Segment
from cockpit.core.logs.excerpt import LONG, TEXT_MAX

texts = st.text("ab\r\n", max_size=20).map(str.encode)
steps = st.lists(st.one_of(st.tuples(st.integers(0, 3), texts), st.just("seal")), max_size=30)


def unfinished(collector: Collector) -> dict[int, bytes]:
    return {line.source: line.state for line in collector.unfinished()}


@given(steps, st.integers(1, 5), st.integers(1, 40))
@settings(max_examples=300)
def test_segments_are_the_whole_lines_of_each_log(
    script: list[tuple[int, bytes] | str], most_lines: int, most_bytes: int
) -> None:
    logs: dict[int, bytes] = defaultdict(bytes)
    found: list[list[Segment]] = []
    collector = Collector()
    lines, size = segments.BATCH_LINES, segments.BATCH_BYTES
    segments.BATCH_LINES, segments.BATCH_BYTES = most_lines, most_bytes
    try:
        for step in [*script, "seal"]:
            if isinstance(step, tuple):
                collector.feed(step[0], len(logs[step[0]]), step[1])
                logs[step[0]] += step[1]
            else:
                found += collector.seal(0.0)[0]
    finally:
        segments.BATCH_LINES, segments.BATCH_BYTES = lines, size
    done: dict[int, int] = defaultdict(int)
    for batch in found:
        assert [part.source for part in batch] == sorted({part.source for part in batch})
        assert sum(part.lines for part in batch) <= most_lines + len(batch)
        for part in batch:
            assert part.start == done[part.source]
            done[part.source] = part.end
            text = logs[part.source][part.start : part.end]
            assert text.endswith(b"\n")
            assert text.count(b"\n") == part.lines
    for source, log in logs.items():
        assert done[source] == log.rfind(b"\n") + 1


def test_what_is_known_already_is_passed_over() -> None:
    collector = Collector()
    collector.feed(0, 0, b"one\ntw")
    collector.feed(0, 2, b"e\ntw")
    collector.feed(0, 4, b"two\nthree\n")
    assert collector.seal(0.0)[0] == [[Segment(0, 0, 14, 3)]]


def test_after_a_gap_it_goes_on_where_the_bytes_begin() -> None:
    collector = Collector()
    collector.feed(0, 0, b"one\ntw")
    collector.feed(0, 100, b"x\n")
    assert collector.seal(0.0)[0] == [[Segment(0, 0, 4, 1), Segment(0, 100, 2, 1)]]


def test_a_batch_too_long_is_cut_so_that_what_was_said_at_a_time_stays_together() -> None:
    collector = Collector()
    for rank in range(4):
        collector.feed(rank, 0, b"x\n" * 1500)
    batches, _ = collector.seal(0.0)
    assert [[part.lines for part in batch] for batch in batches] == [[250] * 4] * 6


def test_many_bytes_do_not_wait_for_the_batch() -> None:
    collector = Collector()
    chunk = (b"x" * 1023 + b"\n") * 1024
    for number in range(20):
        collector.feed(0, number * len(chunk), chunk)
        assert sum(len(piece.data) for piece in collector._pieces) <= segments.HOLD
    batches, _ = collector.seal(0.0)
    assert sum(part.lines for batch in batches for part in batch) == 20 * 1024
    assert all(part.length <= segments.BATCH_BYTES for batch in batches for part in batch)


def test_a_line_too_long_to_be_read_whole_is_a_segment_of_its_own() -> None:
    collector = Collector()
    piece = b"x" * (LONG // 2 + 1)
    collector.feed(0, 0, b"a\n" + piece)
    collector.feed(0, 2 + len(piece), piece)
    collector.feed(0, 2 + 2 * len(piece), piece + b"\nb\nc\n")
    assert collector.seal(0.0)[0] == [
        [Segment(0, 0, 2, 1), Segment(0, 2, 3 * len(piece) + 1, 1), Segment(0, 3 * len(piece) + 3, 4, 2)]
    ]


class Steps:
    """Ranks that print a line a step, each at its own moment; a look every 0.1 s.

    :param ranks: how many
    """

    def __init__(self, ranks: int) -> None:
        self.collector = Collector()
        self.ends = [0] * ranks
        self.now = 0.0

    def line(self, rank: int) -> None:
        self.collector.feed(rank, self.ends[rank], b"step\n")
        self.ends[rank] += 5

    def look(self) -> list[list[int]]:
        self.now += 0.1
        return [[part.source for part in batch] for batch in self.collector.seal(self.now, wait_s=0.25)[0]]


def test_what_ranks_print_of_one_step_is_one_batch_whenever_it_arrives() -> None:
    steps = Steps(4)
    for step in range(20):
        shown = []
        for rank in (2, 0, 3, 1) if step else (0, 1, 2, 3):
            steps.line(rank)
            if step:
                shown += steps.look()
        while not shown:
            shown += steps.look()
        assert shown == [[0, 1, 2, 3]], f"step {step}"
        assert steps.look() == []


def test_lines_wait_for_no_rank_that_is_silent_for_long() -> None:
    steps = Steps(3)
    for rank in range(3):
        steps.line(rank)
    while not steps.look():
        pass
    for _ in range(LATELY):
        steps.line(0)
        assert [steps.look() for _ in range(4)] == [[], [], [], [[0]]]
    steps.line(0)
    assert steps.look() == [[0]], "nobody else has spoken for a while"


def test_a_bar_that_ended_is_not_missing_from_the_screen_for_a_moment() -> None:
    steps = Steps(2)
    for rank in range(2):
        steps.line(rank)
    steps.look()
    steps.collector.feed(0, 5, b" 99%\r")
    steps.look()
    assert unfinished(steps.collector)
    steps.collector.feed(0, 10, b"100%\n")
    assert steps.look() == [[0]]


def test_an_unfinished_line_is_no_rest_before_the_lines_above_it_are_in_a_batch() -> None:
    collector = Collector()
    for source in range(2):
        collector.feed(source, 0, b"both\n")
    assert collector.seal(0.0, wait_s=1.0)
    collector.feed(0, 5, b"one\npar")
    collector.feed(1, 5, b"par")
    collector.seal(2.0, wait_s=1.0)
    assert [rest[:3] for rest in collector.rests()] == [(1, 5, 8)]
    assert collector.seal(2.0)[0] == [[Segment(0, 5, 4, 1)]]
    assert [rest[:3] for rest in collector.rests()] == [(0, 9, 12), (1, 5, 8)]


def test_a_clock_set_back_holds_nothing() -> None:
    steps = Steps(2)
    for rank in range(2):
        steps.line(rank)
    steps.look()
    steps.line(0)
    assert steps.look() == []
    steps.now -= 3600
    assert steps.look() == [[0]]


def test_progress_bars_show_their_last_state_at_once() -> None:
    collector = Collector()
    collector.feed(0, 0, b"done\n 10%")
    assert unfinished(collector) == {}
    collector.feed(0, 9, b"\r 20%\r")
    _, changed = collector.seal(1.0)
    assert changed
    assert unfinished(collector) == {0: b" 20%"}
    assert not collector.seal(2.0)[1]
    collector.feed(0, 15, b" 30")
    assert unfinished(collector) == {0: b" 30"}
    collector.feed(0, 18, b"%\n")
    assert unfinished(collector) == {}


def test_a_prompt_shows_when_it_has_stood_for_a_moment() -> None:
    collector = Collector()
    collector.feed(3, 0, b"(Pdb) ")
    assert collector.seal(1.0) == ([], True)
    assert unfinished(collector) == {}
    assert collector.seal(1.0 + PROMPT_S) == ([], True)
    assert [(line.state, line.size, line.since) for line in collector.unfinished()] == [(b"(Pdb) ", 6, 1.0)]
    assert collector.seal(9.0) == ([], False)
    collector.feed(3, 6, b"n")
    collector.seal(9.1)
    assert unfinished(collector) == {}


@given(st.lists(st.sampled_from([b"ab", b"\r", b"c" * 5000, "é".encode(), b"x"]), max_size=12))
def test_an_unfinished_line_is_held_in_little_memory(parts: list[bytes]) -> None:
    collector = Collector()
    line = b""
    for part in parts:
        collector.feed(0, len(line), part)
        line += part
    collector.seal(0.0)
    collector.seal(PROMPT_S)
    state = line.rstrip(b"\r").rpartition(b"\r")[2]
    shown = unfinished(collector).get(0, b"")
    assert len(shown) <= TEXT_MAX
    assert state.startswith(shown)
    assert len(shown) >= min(len(state), TEXT_MAX - 3)
