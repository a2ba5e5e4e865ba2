"""Live lines, for people and as JSON."""

from __future__ import annotations

import io
import json
import re
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.cli.printer import GOES_ON, HELD_BYTES, JsonPrinter, Printer
from cockpit.core.logs.lines import MAX_LINE
from cockpit.core.text import sanitise

NAMES = {0: "node1", 1: "node1", 2: "node2", 3: "node2"}


class Screen(io.StringIO):
    """A stream that counts writes."""

    writes = 0

    def write(self, text: str, /) -> int:
        self.writes += 1
        return super().write(text)


def printer(*, colour: bool = False, terminal: bool = False, fold: bool = True) -> tuple[Printer, Screen]:
    screen = Screen()
    return Printer(screen, colour=colour, terminal=terminal, names=NAMES, fold=fold), screen


def lines(screen: io.StringIO) -> list[str]:
    """What was printed, labels without their padding."""
    return [re.sub(r" +\| ", " | ", line) for line in screen.getvalue().splitlines()]


def test_lines_are_folded_and_labelled() -> None:
    out, screen = printer()
    for rank, node in NAMES.items():
        out.feed(node, rank, b"hello\nmine is %d\n" % rank)
    out.feed("node1", None, b"launching\n")
    out.feed("node2", None, b"launching\n")
    out.feed("node2", 3, b"unfinished")
    out.close()
    assert sorted(lines(screen)) == sorted(
        [
            "[0-3] ×4 | hello",
            *(f"{node}:{rank} | mine is {rank}" for rank, node in NAMES.items()),
            "node[1-2]:launcher ×2 | launching",
            "node2:3 | unfinished",
        ]
    )
    text = screen.getvalue().splitlines()
    assert len({line.index(" | ") for line in text if not line.startswith("node[")}) == 1, (
        "labels are aligned"
    )


def said_by_all(out: Printer) -> None:
    """Lines that are equal, alike, and alike but for one that is far off."""
    for rank, node in NAMES.items():
        out.feed(
            node, rank, b"hello\nstep 7 loss 2.4%d\nmem %s GB\n" % (rank, b"9.5" if rank < 3 else b"0.1")
        )
    out.close()


def test_a_person_sees_lines_that_differ_in_numbers_as_one() -> None:
    out, screen = printer(terminal=True)
    said_by_all(out)
    assert lines(screen) == [
        "[0-3] ×4 | hello",
        "[0-3] ×4 | step 7 loss 2.40–2.43",
        "[0-2] ×3 | mem 9.5 GB",
        "node2:3 | mem 0.1 GB",
    ]


def test_a_program_that_reads_the_lines_gets_every_number() -> None:
    out, screen = printer()
    said_by_all(out)
    assert sorted(lines(screen)) == sorted(
        [
            "[0-3] ×4 | hello",
            *(f"{node}:{rank} | step 7 loss 2.4{rank}" for rank, node in NAMES.items()),
            "[0-2] ×3 | mem 9.5 GB",
            "node2:3 | mem 0.1 GB",
        ]
    )


@pytest.mark.parametrize("terminal", [False, True])
def test_unfolded_each_rank_has_its_lines(terminal: bool) -> None:
    out, screen = printer(terminal=terminal, fold=False)
    said_by_all(out)
    assert lines(screen) == [
        f"{node}:{rank} | {line}"
        for rank, node in NAMES.items()
        for line in ("hello", f"step 7 loss 2.4{rank}", f"mem {'9.5' if rank < 3 else '0.1'} GB")
    ]


def test_one_write_a_tick() -> None:
    out, screen = printer()
    for now in range(5):
        for rank, node in NAMES.items():
            out.feed(node, rank, b"a\nb\nc\n")
        out.tick(now)
    assert screen.writes == 5
    out.close()
    assert lines(screen) == [f"[0-3] ×4 | {line}" for line in "abc" * 5]


def test_a_line_of_both_kinds_and_odd_names() -> None:
    out, screen = printer()
    for node in ("gpu[0", "a,b"):
        out.feed(node, None, b"x\n")
    out.feed("evil\x1b[2J", 7, b"y\n")
    out.feed("node1", 5, b"x\n")
    out.close()
    assert lines(screen) == ["[5],gpu[0,a,b:launcher ×3 | x", r"evil\x1b[2J:7 | y"]


def test_traceback_of_torch_is_one_and_not_labelled_twice() -> None:
    out, screen = printer()
    for rank, node in NAMES.items():
        record = ["Traceback (most recent call last):", "  File", "ValueError"]
        out.feed(node, rank, "".join(f"[rank{rank}]: {line}\n" for line in record).encode())
    out.close()
    assert lines(screen) == [
        "[0-3] ×4 | Traceback (most recent call last):",
        "[0-3] ×4 |   File",
        "[0-3] ×4 | ValueError",
    ]


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_bar(terminal: bool) -> None:
    out, screen = printer(terminal=terminal)
    now = 100.0
    for step in range(50):
        out.feed("node1", 0, b"\r%d%%" % step)
        out.tick(now)
        now += 0.125
    out.feed("node1", 0, b"\r100%\nnext\n")
    out.close()
    states = ["0%", "16%", "32%", "48%"] if terminal else []
    assert lines(screen) == [f"node1:0 | {line}" for line in [*states, "100%", "next"]]


def test_equal_progress_bars_fold() -> None:
    out, screen = printer(terminal=True)
    for rank, node in NAMES.items():
        out.feed(node, rank, b"\r 5%")
    out.tick(0)
    assert lines(screen) == ["[0-3] ×4 |  5%"]
    for rank, node in NAMES.items():
        out.feed(node, rank, b"\r 6%%|####| 6/99 [00:0%d<09:12, 1.%dit/s]" % (rank, rank))
    out.tick(9)
    assert lines(screen)[1:] == ["[0-3] ×4 |  6%|####| 6/99 [00:00<09:12, 1.0–1.3it/s]"]


def test_unfinished_line_is_shown_once_when_it_rests() -> None:
    out, screen = printer(terminal=True)
    out.feed("node1", 0, b"Password: ")
    for now in (0, 1, 1.9):
        out.tick(now)
    assert screen.getvalue() == "", "it may be the first half of a line that is being written"
    for now in (2, 3, 10):
        out.tick(now)
    assert lines(screen) == ["node1:0 | Password: "]
    out.feed("node1", 0, b"\n")
    out.close()
    assert lines(screen) == ["node1:0 | Password: "] * 2


def test_long_lines_are_cut_on_a_terminal_only() -> None:
    long = b"x" * 10_000
    out, screen = printer(terminal=True)
    out.feed("node1", 0, long + b"\n")
    out.close()
    assert lines(screen) == ["node1:0 | " + "x" * 4096 + " … (+5,904 bytes)"]
    out, screen = printer()
    out.feed("node1", 0, long + b"\n")
    out.close()
    assert lines(screen) == ["node1:0 | " + "x" * 10_000]


def test_line_of_many_megabytes_comes_in_pieces_that_say_so() -> None:
    out, screen = printer()
    out.feed("node1", 0, b"x" * (MAX_LINE + 5) + b"\n")
    out.close()
    assert lines(screen) == [f"node1:0 | {'x' * MAX_LINE}{GOES_ON}", "node1:0 | xxxxx"]


class Sink(io.StringIO):
    """A stream that keeps nothing, and knows the longest text it was given."""

    longest = 0

    def write(self, text: str, /) -> int:
        self.longest = max(self.longest, len(text))
        return len(text)


@pytest.mark.parametrize("kind", ["folded", "unfolded", "terminal", "json"])
def test_a_line_without_end_is_printed_as_it_comes(kind: str) -> None:
    sink = Sink()
    out = (
        JsonPrinter(sink)
        if kind == "json"
        else Printer(sink, colour=False, terminal=kind == "terminal", names=NAMES, fold=kind != "unfolded")
    )
    data = b"A" * (256 << 10)
    tracemalloc.start()
    try:
        for _ in range(256):
            out.feed("node1", 0, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sink.longest <= HELD_BYTES + 2 * MAX_LINE
    assert peak < 24 << 20  # of 64 MiB


def test_colour() -> None:
    out, screen = printer(colour=True)
    out.feed("node1", 0, b"\x1b[31mred\x1b]0;title\x07\n")
    out.close()
    assert screen.getvalue().endswith(" | \x1b[31mred\\x1b]0;title\\x07\x1b[0m\n")
    out, screen = printer()
    out.feed("node1", 0, b"\x1b[31mred\x1b[0m\n")
    out.close()
    assert lines(screen) == ["node1:0 | red"]


def test_stream_that_lacks_characters() -> None:
    raw = io.BytesIO()
    out = Printer(io.TextIOWrapper(raw, "ascii"), colour=False, terminal=False, names=NAMES)
    for rank, node in NAMES.items():
        out.feed(node, rank, "é\n".encode())
    out.close()
    assert raw.getvalue().replace(b" ", b"") == rb"[0-3]\xd74|\xe9" + b"\n"


chunks = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 2, 3, None]),
        st.sampled_from([b"a", b"b\n", b"\x1b[2J", b"\xff\n", b"\n", b"Z"]),
    ),
    max_size=40,
)


@given(chunks, st.booleans())
def test_nothing_is_dropped(fed: list[tuple[int | None, bytes]], ticking: bool) -> None:
    out, screen = printer()
    logs: dict[int | None, bytes] = {}
    for now, (rank, data) in enumerate(fed):
        out.feed("node1", rank, data)
        logs[rank] = logs.get(rank, b"") + data
        if ticking:
            out.tick(now)
    out.close()
    shown: dict[int | None, list[str]] = {rank: [] for rank in logs}
    for line in screen.getvalue().splitlines():
        label, text = re.split(" +[|] ", line, maxsplit=1)
        ranks = re.search(r"\[(.+)\]", label)
        if "launcher" in label:
            shown[None].append(text)
        for part in ranks[1].split(",") if ranks else []:
            first, _, last = part.partition("-")
            for rank in range(int(first), int(last or first) + 1):
                shown[rank].append(text)
        if found := re.match(r"node1:(\d+)$", label):
            shown[int(found[1])].append(text)
    for who, log in logs.items():
        said = log.split(b"\n")
        if not said[-1]:
            said.pop()
        assert shown[who] == [sanitise(line, colour=False) for line in said]


def test_json() -> None:
    screen = io.StringIO()
    out = JsonPrinter(screen)
    out.feed("node1", 0, b"one\r\n\r1%\r2%")
    out.event("rank_exited", rank=0, code=1, where=object)
    out.feed("node1", 0, b"\n\xff\x1b" + "\u202e".encode() + b"\nend")
    out.feed("node2", None, b"x", offset=100)
    out.close()
    assert screen.getvalue().isascii()
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", screen.getvalue())
    found = [json.loads(line) for line in screen.getvalue().splitlines()]
    assert found == [
        {"event": "log", "node": "node1", "rank": 0, "offset": 0, "text": "one"},
        {"event": "rank_exited", "rank": 0, "code": 1, "where": "<class 'object'>"},
        {"event": "log", "node": "node1", "rank": 0, "offset": 5, "text": "2%"},
        {"event": "log", "node": "node1", "rank": 0, "offset": 12, "text": "\\xff\x1b\u202e"},
        {"event": "log", "node": "node1", "rank": 0, "offset": 18, "text": "end"},
        {"event": "log", "node": "node2", "rank": None, "offset": 100, "text": "x"},
    ]
    assert isinstance(found[0]["offset"], int)


def test_launchers_that_say_the_same_stand_in_the_hostfile_s_order() -> None:
    stream = io.StringIO()
    printer = Printer(stream, colour=False, terminal=False, names={0: "zeus", 1: "apollo"})
    for node in ("apollo", "zeus"):
        printer.feed(node, None, b"starting\n")
    printer.close()
    assert "zeus,apollo:launch" in stream.getvalue()
