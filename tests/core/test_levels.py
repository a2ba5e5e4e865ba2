"""Lines as real programs print them, and the level each should have.

Sources: DeepSpeed (utils/logging.py; issues 4153, 6737), PyTorch (ProcessGroupNCCL.cpp,
elastic/multiprocessing; issue 118369), NCCL (debug.cc), CPython (faulthandler, warnings, argparse), the Linux
kernel (oom_kill.c), bash.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.core.logs.excerpt import TEXT_MAX, clip
from cockpit.core.logs.levels import Level, level_of, may_be
from cockpit.core.logs.lines import last_state
from tests.logs.corpus import samples
from tests.logs.judged import levels, quiet_lines

ERRORS = """\
Traceback (most recent call last):
[rank3]: Traceback (most recent call last):
  0%|          | 0/100 [00:00<?, ?it/s]Traceback (most recent call last):
RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB
torch.OutOfMemoryError: CUDA out of memory.
[rank3]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/NCCLUtils.hpp:275
AssertionError
KeyError: 'lm_head.weight'
ValueError: 3 is not a valid rank
worker-5: [rank22]: RuntimeError: rank 22 crashes
Exception in thread Thread-3 (_loop):
Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.
[2024-03-01 10:00:00,123] [ERROR] [launch.py:325:sigkill_handler] ['python'] exits with return code = 1
2024-03-01 10:00:00 | ERROR | trainer:fit:31 - the loss is not finite
ERROR:root:cannot read shard 12
CRITICAL: no space left
FATAL: the server is starting up
fatal: not a git repository
train.py: error: unrecognized arguments: --zerro
fatal error: cuda_runtime.h: No such file or directory
Fatal Python error: Segmentation fault
Segmentation fault (core dumped)
run.sh: line 3:  4711 Aborted                 (core dumped) python train.py
run.sh: line 3:  4711 Killed
Out of memory: Killed process 4711 (python) total-vm:10kB
Killed
Bus error
terminate called after throwing an instance of 'c10::DistBackendError'
[E ProcessGroupNCCL.cpp:458] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=96120)
[rank1]:[E1112 03:04:05.123456789 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught a timeout
E0819 10:11:12.123000 140 site-packages/torch/distributed/elastic/multiprocessing/api.py:826] failed
traitor: Signal 9 (SIGKILL) received by PID 4711
gpu02:4711:4790 [5] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer
gpu02:4711:4790 [5] NCCL WARN Cuda failure 'out of memory'
Indexing.cu:1290: indexSelect: block: [0,0,0], thread: [1,0,0] Assertion `srcIndex < srcSelectDimSize` failed.
python: malloc.c:2617: sysmalloc: Assertion `(old_top == initial_top (av))' failed.
{"level": "error", "msg": "lost the store"}
time=10:00 level=error msg="lost the store"
[2024-03-01 10:00:00.000] [error] lost the store
\x1b[31mERROR\x1b[0m something broke
\x1b[1;31mRuntimeError\x1b[0m: \x1b[35mbroke\x1b[0m
""".splitlines()

WARNINGS = """\
[2022-10-24 02:26:57,607] [WARNING] [runner.py:178:fetch_hostfile] Unable to find hostfile
WARNING:root:the cache is cold
[WARN] falling back to gloo
UserWarning: The given NumPy array is not writable
/x/torch/nn/init.py:12: FutureWarning: `torch.cuda.amp.autocast(args...)` is deprecated.
`torch_dtype` is deprecated! Use `dtype` instead!
cc1plus: warning: command-line option is valid for C
[W socket.cpp:601] [c10d] The client socket cannot be initialized to connect to [gpu01]:29500
[rank0]:[W1112 03:04:05.123456789 ProcessGroupNCCL.cpp:1250] process group has NOT been destroyed
W0819 10:11:12.123000 140 site-packages/torch/distributed/run.py:793] OMP_NUM_THREADS
WARNING: retrying after ConnectionError: reset by peer
{"level": "warning", "msg": "slow disk"}
\x1b[33mWARNING\x1b[0m slow disk
""".splitlines()

PLAIN = """\

step 5/20 loss 0.1234 lr 1.00e-03 step_time 0.118
rank 0 of 4 is ready
0 errors, 0 warnings
finished with no errors
no error
0 ERROR, 0 WARNING
error=0.01
error: 0.01
test error: 3.1%, best
last error: None
error_rate: 0.2 errors: 3
mean squared error
    warnings.warn(
    raise RuntimeError("broken")
except Exception: pass
log_level=ERROR
set the log level to WARNING
NCCL_ASYNC_ERROR_HANDLING=1 TORCH_SHOW_CPP_STACKTRACES=ERROR_ONLY
PYTHONWARNINGS=ignore WARN=0
set it to avoid out of memory
[2024-03-01 10:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=40, skipped=2, lr=[5e-05]
NCCL INFO Channel 00/02 : 0 1 2 3
[EOS] token is 2
E2E latency 12 ms
a non-fatal: condition
Sending process 4711 closing signal SIGTERM
Aborted transactions are retried, Killed jobs too
""".splitlines()


@pytest.mark.parametrize(
    ("line", "level"),
    [(line, Level.ERROR) for line in ERRORS]
    + [(line, Level.WARNING) for line in WARNINGS]
    + [(line, Level.PLAIN) for line in PLAIN],
)
def test_level_of_a_line(line: str, level: Level) -> None:
    assert level_of(line.encode()) is level
    assert level_of(line.encode() + b"\r") is level


def test_candidates_are_found_in_many_lines() -> None:
    for level, lines in ((Level.ERROR, ERRORS), (Level.WARNING, WARNINGS)):
        for line in lines:
            if "\x1b" not in line:
                assert may_be(level, f"step 1\n{line}\nstep 2\n".encode()), line
    for _, told, level, _ in levels():
        if level and b"\x1b" not in told:
            assert may_be(level, b"step 1\n%s\nstep 2\n" % told), told
    calm = b"step 1 loss 2.3 lr 3.0e-04\n" * 9
    assert not may_be(Level.ERROR, calm)
    assert not may_be(Level.WARNING, calm)


states = st.sampled_from([*ERRORS, *WARNINGS, *PLAIN, "x" * (TEXT_MAX - 5) + " Killed " + "y" * 9, ""])


@given(st.lists(st.tuples(states, st.sampled_from(["\n", "\r", "\r\n"])), max_size=9))
def test_what_may_not_be_in_many_lines_is_in_none(block: list[tuple[str, str]]) -> None:
    told = "".join(text + end for text, end in block).encode()
    shown = [clip(last_state(line)) for line in told.split(b"\n")]
    for level in (Level.ERROR, Level.WARNING):
        if not may_be(level, told):
            assert level not in map(level_of, shown)
        elif not any(len(text) > TEXT_MAX for text, _ in block):
            assert level in [level_of(state) for line in told.split(b"\n") for state in line.split(b"\r")]


def test_levels_of_lines_of_many_projects() -> None:
    """At least nine of ten are right, and at most one plain line of a hundred is raised."""
    told = list(levels())
    assert sum(len(sample.text.splitlines()) for sample in samples("levels")) == len(told) >= 80
    wrong = [(name, line, level.name) for name, line, expected, level in told if level is not expected]
    assert len(wrong) <= len(told) / 10, wrong
    plain = [(line, level) for _, line, expected, level in told if expected is Level.PLAIN]
    plain += [(line, level_of(line)) for _, line in quiet_lines()]
    raised = [line for line, level in plain if level is not Level.PLAIN]
    assert len(raised) <= len(plain) / 100, raised


@pytest.mark.parametrize(
    "line",
    [
        b"A" * 8192,
        b"rror " * 1600,
        b"[E" * 4096,
        b"Assertion " * 800,
        b"\x1b[" * 4096,
        b"[E0101 10:.cpp:" * 600,
    ],
)
def test_a_long_line_of_anything_is_judged(line: bytes) -> None:
    assert level_of(line) is Level.PLAIN
