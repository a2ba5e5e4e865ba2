"""Which lines are of one shape, and what stands for them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.core.logs.folding import Folder, folded
from cockpit.core.logs.shapes import DASH, FAR, LINE_MAX, shape_of
from cockpit.core.logs.sources import rank_of
from tests.core.folds import said as said_of

TRACE = [b"Traceback (most recent call last):", b'  File "t.py", line 3']


def rows(*lines: str) -> list[str]:
    """What becomes of lines that ranks print at the same time, without an order."""
    items = folded((("n", rank), line.encode()) for rank, line in enumerate(lines))
    return [item.text.decode() for item in items]


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("step 1216 loss 2.41", "step 1216 loss 2.47", "step 1216 loss 2.41–2.47"),
        ("reward -0.5 kl 1e-05", "reward -0.3 kl 0.00002", "reward -0.5–-0.3 kl 1e-05–0.00002"),
        ("41,216 tokens/s", "39,001 tokens/s", "39,001–41,216 tokens/s"),
        ("mem 9.5GiB, 71%", "mem 10GiB, 68%", "mem 9.5–10GiB, 68–71%"),
        ("340/5004 loss=0.31", "340/5004 loss=0.30", "340/5004 loss=0.30–0.31"),
        ("Rank 9 is up, pid 48123", "Rank 10 is up, pid 911", "Rank 9–10 is up, pid 911–48123"),
        ("using cuda:0 here", "using cuda:7 here", "using cuda:0–7 here"),
        ("<Model at 0x7f31a0>", "<Model at 0x55d0c>", "<Model at 0x55d0c>"),
        ("[rank0] is up", "[rank1] is up", "[rank0–1] is up"),
        ("3f9c12ab04de is done in 1 s", "3f9c12ab04de is done in 2 s", "3f9c12ab04de is done in 1–2 s"),
        ("took 0:00:12.3 of 1 s", "took 0:00:12.9 of 2 s", "took 0:00:12.3 of 1–2 s"),
        (
            "[2026-11-20 03:14:01,123] [INFO] [engine.py:96:log_dist] [Rank 0] used 3.1 GB",
            "[2026-11-20 03:14:01,131] [INFO] [engine.py:96:log_dist] [Rank 1] used 3.2 GB",
            "[2026-11-20 03:14:01,123] [INFO] [engine.py:96:log_dist] [Rank 0–1] used 3.1–3.2 GB",
        ),
        ("[default0]:[rank0]: ready in 3 s", "[default1]:[rank1]: ready in 4 s", "ready in 3–4 s"),
        ("[1,0]<stderr>:ready in 3 s", "[1,9]<stderr>:ready in 4 s", "ready in 3–4 s"),
        (" 9: ready in 3 s", "10: ready in 3 s", "ready in 3 s"),
        (
            "i.name/0 [default2]:[rank2]: ready now",
            "i.name/0 [default3]:[rank3]: ready now",
            "ready now",
        ),
        (
            "8%|#  | 8/99 [01:10<1:20, 1.1s/it]",
            "8%|#  | 8/99 [01:11<1:20, 1.2s/it]",
            "8%|#  | 8/99 [01:10<1:20, 1.1–1.2s/it]",
        ),
        (
            "12%|█▏        | 12/100 [00:10<01:20,  1.1it/s]",
            "12%|█▏        | 12/100 [00:11<01:22,  1.2it/s]",
            "12%|█▏        | 12/100 [00:10<01:20,  1.1–1.2it/s]",
        ),
        (
            "/src/Index.cu:1290: run: block: [12,0,0], thread: [33,0,0] Assertion `i < n` failed.",
            "/src/Index.cu:1290: run: block: [127,100,0], thread: [0,0,0] Assertion `i < n` failed.",
            "/src/Index.cu:1290: run: block: [12–127,0–100,0], thread: [0–33,0,0] Assertion `i < n` failed.",
        ),
        ("\x1b[32mready\x1b[0m in 3 s", "\x1b[33mready\x1b[0m in 4 s", "\x1b[32mready\x1b[0m in 3–4 s"),
        ("3 files read", "3 files read", "3 files read"),
        ("[rank0]: =====", "[rank1]: =====", "====="),
        ("[rank0]: | 3 | 0.1 |", "[rank1]: | 3 | 0.1 |", "| 3 | 0.1 |"),
        ("[default0]:python3: it failed", "[default1]:python3: it failed", "python3: it failed"),
        (
            "2026-11-20 03:10:00 | INFO | train_inner | loss=7.9, ppl=63.8",
            "2026-11-20 03:10:01 | INFO | train_inner | loss=7.8, ppl=63.9",
            "2026-11-20 03:10:00 | INFO | train_inner | loss=7.8–7.9, ppl=63.8–63.9",
        ),
    ],
)
def test_lines_that_differ_in_numbers_times_and_prefixes_are_one(one: str, other: str, both: str) -> None:
    assert rows(one, other) == [both]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # Another word, another one with a number in it.
        ("loss 2.41", "acc 2.41"),
        ("node gpu01 is up", "node gpu02 is up"),
        ("host 10.0.0.3:29500 answers", "host 10.0.0.4:29500 answers"),
        ("wrote ckpt/step_100.pt", "wrote ckpt/step_200.pt"),
        ("read /data/1/x.bin", "read /data/2/x.bin"),
        ("model-00001-of-00004.safetensors loaded", "model-00002-of-00004.safetensors loaded"),
        ("layer-3: frozen", "layer-4: frozen"),
        ("commit 3f2a9c1 checked out", "commit 4f2a9c1 checked out"),
        ("loss3 is 1.0", "loss4 is 1.0"),
        # Another step, another place in the program.
        ("step 1216 loss 2.41", "step 1217 loss 2.41"),
        ("Epoch [3] loss 2.41", "Epoch [4] loss 2.41"),
        ("loss 2.41 at 340/5004", "loss 2.41 at 341/5004"),
        ("epoch 001:   100 / 30720 loss=7.9", "epoch 001:   200 / 30720 loss=7.9"),
        (" iteration      100/     500 | lm loss: 2.1", " iteration      200/     500 | lm loss: 2.1"),
        ('File "a.py", line 3, in f', 'File "a.py", line 4, in f'),
        ("train.py:12: begins", "train.py:14: begins"),
        ("3f9c12ab04de is done in 1 s", "3f9c12ab04df is done in 1 s"),
        ("request 12345678-9abc-def0 is done", "request 12345678-9abc-def1 is done"),
        # Odd ones.
        ("loss 2.41", "loss nan"),
        ("loss 2.41", "loss inf"),
        ("loss 2.41", "loss -2.41"),
        ("loss 2.41", "loss 24.1"),
        ("loss 2.41", "loss 0.0"),
        ("read 4096 tokens", "read 12 tokens"),
        ("read 10 tokens", "read 100 tokens"),
        # An error and none.
        ("found 0 ERROR lines", "found 3 ERROR lines"),
        # Nothing but numbers; a table.
        ("0.11 0.12 0.13", "0.11 0.12 0.14"),
        ("a 1 2 3", "a 1 2 4"),
        ("| loss | 0.31 |", "| loss | 0.32 |"),
        ("[rank0]: | loss | 0.31 |", "[rank1]: | loss | 0.32 |"),
        ("1 Mi " + "x" * LINE_MAX, "2 Mi " + "x" * LINE_MAX),
    ],
)
def test_lines_that_differ_in_more_are_not(one: str, other: str) -> None:
    assert rows(one, other) == [one, other]


def test_one_far_off_stays_a_line_of_its_own() -> None:
    lines = [f"step 7 loss {2.4 + rank / 1000:.3f}" for rank in range(63)]
    assert rows(*lines, "step 7 loss 1e4") == ["step 7 loss 2.400–2.462", "step 7 loss 1e4"]
    assert rows(*lines, "step 7 loss nan") == ["step 7 loss 2.400–2.462", "step 7 loss nan"]
    assert rows(*(f"rank {rank} of 64 is here" for rank in (0, 1, 63))) == ["rank 0–63 of 64 is here"]


numbers = st.one_of(
    st.integers(-(10**12), 10**12).map(str),
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(str),
    st.floats(0, 10).map("{:.3f}".format),
    st.integers(0, 10**9).map("{:,}".format),
)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=8))
def test_a_range_has_every_number_and_none_that_is_far(pairs: list[tuple[str, str]]) -> None:
    for item in folded((("n", at), f"loss {a} of {b} mine".encode()) for at, (a, b) in enumerate(pairs)):
        assert all(
            "loss {} of {} mine".format(*pairs[rank_of(rank) or 0]).encode() == text
            for (_, rank), text in said_of(item)
        )
        for place in (1, 3):
            told = item.text.split()[place].split(DASH)
            said = [float(text.split()[place].replace(b",", b"")) for _, text in said_of(item)]
            least, greatest = (float(told[end].replace(b",", b"")) for end in (0, -1))
            assert (least, greatest) == (min(said), max(said))
            assert least * greatest >= 0
            if len(pairs) == 2:
                small, big = sorted(map(abs, said)) if len(said) == 2 else (1.0, 1.0)
                assert big < FAR * small or (small == 0 and big < FAR)


@given(st.lists(st.binary(max_size=80), max_size=6))
def test_any_bytes_are_kept(lines: list[bytes]) -> None:
    items = folded((("n", rank), line) for rank, line in enumerate(lines))
    assert sorted((who, text) for item in items for who, text in said_of(item)) == sorted(
        (("n", rank), line) for rank, line in enumerate(lines)
    )


odd = st.text(st.sampled_from("ab1 \0\x01\x02x,.:/-[]\n|%"), max_size=30).map(str.encode)


@given(st.lists(odd, max_size=6), st.booleans())
def test_lines_that_look_like_keys_are_kept(streams: list[bytes], traceback: bool) -> None:
    folder = Folder(0)
    lines = [[*TRACE, text] if traceback else text.split(b"\n") for text in streams]
    for rank, some in enumerate(lines):
        folder.add(("n", rank), some)
    said: dict[int, list[bytes]] = {}
    for item in folder.flush():
        for (_, who), text in said_of(item):
            said.setdefault(rank_of(who) or 0, []).extend(text.split(b"\n"))
    assert said == {rank: b"\n".join(some).split(b"\n") for rank, some in enumerate(lines)}


@pytest.mark.parametrize(
    "text", [b"1", b"[", b" ", b"a1", b"1,", b"1.", b"-1", b"1e", b"0x", b"/1", b"11:", b"\x1b[1"]
)
def test_hostile_lines_have_no_shape_or_one_soon(text: bytes) -> None:
    assert shape_of(text * (1 << 20)) is None
    shape_of((text * LINE_MAX)[:LINE_MAX])
