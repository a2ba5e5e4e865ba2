"""What launchers, collectors and loggers put before a line, and what they do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.core.logs.prefixes import TRACEBACK, body, head, message, speaker, split
from tests.logs.corpus import PREFIXES, prefixed

BODIES = [
    b"step 3 loss 2.1",
    b'  File "/work/train.py", line 3, in <module>',
    b"RuntimeError: x",
    b"    return self.net(x)",
]


@pytest.mark.parametrize("name", PREFIXES)
@pytest.mark.parametrize("text", BODIES)
def test_what_launchers_put_in_front_is_found(name: str, text: bytes) -> None:
    line = prefixed(text, PREFIXES[name])
    prefix, rest = split(line)
    assert prefix + rest == line
    assert rest.strip() == text.strip()
    assert rest[:1] == text[:1]  # indented or not


@pytest.mark.parametrize(
    ("prefix", "text"),
    [
        ("[2026-11-20 03:14:05,123] ", "[ERROR] [train.py:12:main] x"),
        ("2026/11/20 03:14:05 ", "x"),
        ("2026-11-20 03:14:05.1 [rank12]: ", "x"),
        ("[pod/trainer-0/pytorch] 2026-11-20T03:14:05.123456Z [rank12]: ", "x"),
        ("worker-5: [rank22]: ", "x"),
        ("ip-10-0-3-7: ", "x"),
        (" 3: ", "x"),
        ("trainer-1  | ", "loss 3"),
        ("(Trainer pid=3391, ip=10.0.0.3) ", "x"),
        ("Nov 20 03:14:05 gpu01 torchrun[4711]: ", "x"),
        ("[ 1234.567890] ", "Out of memory: Killed process 3"),
        ("[1,mpirank:0,algo-1]<stdout>:", "x"),
        ("[prterun-gpu01-4711@1,3]<stderr>: ", "x"),
    ],
)
def test_more_of_them(prefix: str, text: str) -> None:
    assert split((prefix + text).encode()) == (prefix.encode(), text.encode())


@pytest.mark.parametrize(
    "line",
    [
        *("ValueError: x", "urllib3.exceptions.MaxRetryError: x", "KeyError", "zlib.error: -3", "fatal: x"),
        *("top1: 71.3", "layer-3: 0.1", "val-loss: -2", "loss: 3", "iter 12: loss 3", "Epoch 3: 12%|█"),
        *(
            "[12][340/5004] loss",
            "[340/5004]: loss",
            "[INFO]: x",
            "[ERROR]: x",
            "[E626 10:00:00.1 a.cpp:3] x",
        ),
        *("  File x", "", " ", "gpu01:4711:4790 [5] NCCL INFO x", "srun: error: gpu01: task 3: Killed"),
        *("a | b | c", "Iter | Loss", "{'loss': 3}", "12", "12 : 3", "3/12: x"),
    ],
)
def test_what_is_none(line: str) -> None:
    assert split(line.encode()) == (b"", line.encode())


def test_a_speaker_is_the_same_at_any_time() -> None:
    lines = [b"2026-11-20 03:14:%02d [rank3]: x" % at for at in range(5)]
    assert {speaker(split(line)[0]) for line in lines} == {b"[rank3]:"}
    assert speaker(b"[rank3]: ") != speaker(b"[rank4]: ")
    assert speaker(b"Fri Nov 20 03:14:05 2026[1,3]<stderr>:") == b"[1,3]<stderr>:"


@pytest.mark.parametrize(
    ("before", "prefix"),
    [
        ("", ""),
        ("[rank3]: ", "[rank3]: "),
        ("2026-11-20 03:14:05 ERROR train: ", "2026-11-20 03:14:05 ERROR train: "),
        ("  8%|###   | 19/240 [1:52:09<20:27:23,  3.33s/it]", ""),
        ("[default3]:  8%|# | 19/240 [01:52<20:27, 3.33s/it][rank3]: ", "[default3]:[rank3]: "),
        ("12:  8%|# | 19/240 [01:52<20:27, 3.33s/it]", "12: "),
        ("[rank3]:   + Exception Group ", "[rank3]:"),
        ("  + Exception Group ", ""),
        ("[rank3]: " + "x" * 300, "[rank3]: "),
    ],
)
def test_what_stands_before_a_traceback(before: str, prefix: str) -> None:
    assert head(before.encode() + TRACEBACK + b":") == prefix.encode()
    assert head(before.encode()) is None


def test_lines_of_a_traceback() -> None:
    assert body(b"  File x", b"") == b"  File x"
    assert body(b"[rank3]:   File x", b"[rank3]: ") == b"  File x"
    assert body(b"[rank3]:", b"[rank3]: ") == b""
    assert body(b"[rank4]:   File x", b"[rank3]: ") is None
    assert body(b"step 3", b"[rank3]: ") is None
    assert body(b"2026-11-20 03:14:06,001 ERROR x:   File", b"2026-11-20 03:14:05,999 ERROR x: ") == b"  File"
    # A logger's level stands in the first line alone, launchers repeat theirs.
    assert body(b"  File x", b"2026-11-20 03:14:05 ERROR train: ") == b"  File x"
    assert body(b"[rank3]:   File x", b"[rank3]: ERROR train: ") == b"  File x"
    assert body(b"  File x", b"[rank3]: ERROR train: ") is None


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_any_bytes_are_split(line: bytes, other: bytes) -> None:
    assert b"".join(split(line)) == line
    speaker(line)
    prefix = head(line + TRACEBACK + other)
    assert prefix is not None
    body(other, prefix)


@pytest.mark.parametrize("unit", [b"[", b" ", b"1", b"a-", b"1: ", b"[a]: ", b"[00:00<", b"it/s", b"(a pid="])
def test_a_megabyte_of_anything_is_split(unit: bytes) -> None:
    text = unit * ((1 << 20) // len(unit))
    assert b"".join(split(text)) == text
    assert len(split(text)[0]) < 4096
    assert text.endswith(message(text))
    assert head(text + TRACEBACK) is not None
    body(text, text[:200])
