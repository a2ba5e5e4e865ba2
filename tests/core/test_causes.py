"""Ends of logs as real programs leave them, and the cause in each.

Sources of the formats: CPython (traceback.py, faulthandler.c), PyTorch (distributed/elastic/multiprocessing/
errors, c10/util/Exception.cpp, utils/data/_utils/worker.py, multiprocessing/spawn.py; issue 118369), rich
(traceback.py), slurm, bash, the Linux kernel (oom_kill.c); and what the examples of this project print.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.core.causes import FRAMES, Cause, find_cause

EXAMPLES = Path(__file__).parents[2] / "examples"

CRASH = """\
step 2/4 loss 1.0328 lr 7.75e-03 step_time 0.004
Traceback (most recent call last):
  File "/work/train.py", line 69, in <module>
    main()
  File "/work/train.py", line 54, in main
    loss = engine(x)
           ^^^^^^^^^
  File "/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1751, in _wrapped_call_impl
    return self._call_impl(*args, **kwargs)
  File "/work/model.py", line 12, in forward
    return self.net(x)
  File "/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", line 125, in forward
    return F.linear(input, self.weight, self.bias)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79.10 GiB
"""
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79.10 GiB"
OOM_FRAMES = ["train.py:69 <module>", "train.py:54 main", "model.py:12 forward"]

LAUNCHER = """\
Traceback (most recent call last):
  File "/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
  File "/venv/lib/python3.11/site-packages/torch/distributed/run.py", line 806, in main
    run(args)
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  exitcode  : 1 (pid: 907695)
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


def cause_of(text: str) -> Cause:
    found = find_cause(text.encode())
    assert found is not None
    return found


def told(text: str) -> str:
    return cause_of(text).summary.shown()


def frames(text: str) -> list[str]:
    return [frame.shown() for frame in cause_of(text).frames]


def raised(summary: str, line: int = 1, path: str = "/work/train.py") -> str:
    return f'Traceback (most recent call last):\n  File "{path}", line {line}, in f\n    f()\n{summary}\n'


def with_prefix(prefix: str, text: str = CRASH) -> str:
    return "".join(prefix + line for line in text.splitlines(keepends=True))


def test_the_first_bytes_may_be_cut_and_lines_ended_in_any_way() -> None:
    assert told(CRASH[30:]) == OOM
    assert told(CRASH.replace("\n", "\r\n")) == OOM
    assert told(CRASH.rstrip("\n")) == OOM
    assert told(f"\x1b[31m{CRASH}\x1b[0m".replace("torch.Out", "\x1b[1;35mtorch.Out")) == OOM


def test_without_a_chain_the_last_traceback_counts() -> None:
    assert told(raised("OSError: retried") + "step 2\n" + raised("ValueError: x")) == "ValueError: x"


@pytest.mark.parametrize("text", ["", "\n", "step 3/9 loss 0.1\n", "0 errors\n", "done\n" * 999])
def test_no_cause(text: str) -> None:
    assert find_cause(text.encode()) is None


PIECES = st.sampled_from(
    [
        *(line.encode() for line in (CRASH + LAUNCHER).splitlines(keepends=True)),
        *(b"Traceback (most recent call last):", b"[rank3]: ", b"12: ", b"\n", b"\r", b"\x1b[31m", b"    | "),
        *(b'  File "', b'", line 1, in f', b"what(): ", b"Fatal Python error: ", b"Current thread 0x1\n"),
        *(
            b"ValueError: \xff\xfe",
            b"\x00",
            b"Exception ignored in: ",
            "│ ".encode(),
            "❱ a.py:3 in f │".encode(),
        ),
        *(b"During handling of the above exception, another exception occurred:\n", b"ERROR", b"A: " * 50),
    ]
)


@given(st.lists(PIECES | st.binary(max_size=40), max_size=30))
def test_any_bytes_are_read(pieces: list[bytes]) -> None:
    tail = b"".join(pieces)
    found = find_cause(tail)
    if found is not None:
        assert 0 <= found.offset < len(tail)
        assert found.offset == 0 or tail[found.offset - 1 : found.offset] == b"\n"
        assert found.summary.raw
        assert b"\n" not in found.summary.raw
        assert len(found.frames) <= FRAMES
        assert all(b"\n" not in frame.raw for frame in found.frames)


@pytest.mark.parametrize("script", ["train_deepspeed.py", "train_torch.py", "train_plain.py"])
def test_the_crash_of_an_example(script: str) -> None:
    name = "deepspeed" if script == "train_deepspeed.py" else "torch"
    if script != "train_plain.py":
        pytest.importorskip(name)
    ranked = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    # Port 0 is a free one: a group of one rank needs nobody to know it.
    environ = {**os.environ, **ranked, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    ended = subprocess.run(
        [sys.executable, EXAMPLES / script, "--steps", "3", "--crash", "0@2"],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 1, ended.stdout
    found = find_cause(ended.stdout)
    assert found is not None
    assert found.summary.shown() == "RuntimeError: rank 0 crashes at step 2, as it was told to"
    shown = [frame.shown() for frame in found.frames]
    assert [shown[0].partition(":")[0], shown[-1].partition(":")[0]] == [script, "faults.py"]
    assert shown[-1].endswith(" step_begins")


@pytest.mark.parametrize("prefix", ["", "[rank3]: ", "[default3]:", "gpu-01: "])
def test_what_torch_puts_in_front_of_lines_goes(prefix: str) -> None:
    text = with_prefix(prefix)
    assert (told(text), frames(text)) == (OOM, OOM_FRAMES)


def test_what_a_launcher_passes_on_is_not_the_cause() -> None:
    assert told(CRASH + LAUNCHER) == OOM


@pytest.mark.parametrize(
    "between",
    [
        "\nDuring handling of the above exception, another exception occurred:\n\n",
        "\nThe above exception was the direct cause of the following exception:\n\n",
    ],
)
def test_of_a_chain_the_first_one_is_the_cause(between: str) -> None:
    assert told(CRASH + between + raised("ValueError: no")) == OOM


def test_a_crash_without_a_traceback() -> None:
    assert told("step 1\n  what():  [enforce fail at pair.cc] connection closed\n") == (
        "what():  [enforce fail at pair.cc] connection closed"
    )
