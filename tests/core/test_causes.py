"""Ends of logs as real programs leave them, and the cause in each.

Sources of the formats: CPython (traceback.py, faulthandler.c), PyTorch (distributed/elastic/multiprocessing/
errors, c10/util/Exception.cpp, utils/data/_utils/worker.py, multiprocessing/spawn.py; issue 118369), rich
(traceback.py), slurm, bash, the Linux kernel (oom_kill.c); and what the examples of this project print.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.core.finding import Finding
from cockpit.core.logs.tracebacks import FRAMES
from cockpit.core.text import sanitise
from tests.logs.judged import find_cause

CRASHES = Path(__file__).parent / "crashes"

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


def cause_of(text: str) -> Finding:
    found = find_cause(text.encode())
    assert found is not None
    return found


def told(text: str) -> str:
    return cause_of(text).what


def frames(text: str) -> list[str]:
    return list(cause_of(text).evidence)


def raised(summary: str, line: int = 1, path: str = "/work/train.py") -> str:
    return f'Traceback (most recent call last):\n  File "{path}", line {line}, in f\n    f()\n{summary}\n'


def with_prefix(prefix: str, text: str = CRASH) -> str:
    return "".join(prefix + line for line in text.splitlines(keepends=True))


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[rank3]: ",
        "[rank3]:",
        "[default3]:",
        "12: ",
        "gpu-01: ",
        "worker-5: [rank22]: ",
        "[1,3]<stderr>: ",
        "2024-11-20 14:37:16 [rank3]: ",
        "2024-11-20T14:37:16.123Z ",
    ],
)
def test_a_traceback_with_what_launchers_put_in_front_of_lines(prefix: str) -> None:
    assert told(with_prefix(prefix)) == OOM
    assert frames(with_prefix(prefix)) == OOM_FRAMES


def test_times_in_front_of_lines_go_on() -> None:
    lines = CRASH.splitlines()
    assert told("\n".join(f"2024-11-20 14:37:{at:02} {line}" for at, line in enumerate(lines))) == OOM


def test_the_first_bytes_may_be_cut_and_lines_ended_in_any_way() -> None:
    assert told(CRASH[30:]) == OOM
    assert told(CRASH.replace("\n", "\r\n")) == OOM
    assert told(CRASH.rstrip("\n")) == OOM
    assert told(f"\x1b[31m{CRASH}\x1b[0m".replace("torch.Out", "\x1b[1;35mtorch.Out")) == OOM


def test_a_bar_may_be_in_front_of_a_traceback() -> None:
    bar = "  8%|███▎      | 1999/24128 [1:52:09<20:27:23,  3.33s/it]"
    for text in (f"{bar}{CRASH[CRASH.index('Trace') :]}", f"{bar}\r{CRASH[CRASH.index('Trace') :]}"):
        assert told(text) == OOM


def test_lines_of_others_may_be_amid_a_traceback() -> None:
    other = (
        "step 7/9 loss 0.1\ngpu02:4711:4790 [5] NCCL INFO Channel 00/02 : 0 1\nwandb: Run history:\n"
        "INFO: one\nINFO:root:two\n[rank1]:[W1112 03:04:05.1 ProcessGroupNCCL.cpp:1250] process group\n\n"
    )
    assert told(CRASH.replace("torch.Out", f"{other}torch.Out")) == OOM
    assert find_cause(raised("x\n" * 30).encode()) is None


def test_frames_of_libraries_are_dropped_unless_there_are_no_others() -> None:
    deep = raised("ValueError: x").replace(
        "ValueError", '  File "/src/DeepSpeed/deepspeed/runtime/engine.py", line 5, in step\nValueError'
    )
    assert frames(deep) == ["train.py:1 f"]
    assert frames(raised("ValueError: x", path="/v/lib/python3.10/runpy.py")) == ["runpy.py:1 f"]
    assert frames(raised("ValueError: x", path="/home/me/torch/train.py")) == ["train.py:1 f"]
    many = "".join(f'  File "/work/a.py", line {at}, in f{at}\n' for at in range(9))
    assert frames(f"Traceback (most recent call last):\n{many}ValueError\n") == [
        f"a.py:{at} f{at}" for at in range(9 - FRAMES, 9)
    ]


@pytest.mark.parametrize(
    "words",
    [
        "\nDuring handling of the above exception, another exception occurred:\n\n",
        "\nThe above exception was the direct cause of the following exception:\n\n",
    ],
)
@pytest.mark.parametrize("prefix", ["", "[rank3]: "])
def test_of_a_chain_the_first_exception_counts(words: str, prefix: str) -> None:
    text = raised("OSError: disk is full", 1) + words + raised("ValueError: no checkpoint", 2)
    text += words + raised("RuntimeError: gave up", 3)
    assert told(with_prefix(prefix, text)) == "OSError: disk is full"
    assert frames(with_prefix(prefix, text)) == ["train.py:1 f"]
    # What says nothing is passed over.
    text = raised("_queue.Empty") + words + raised("RuntimeError: DataLoader worker (pid 5) exited")
    assert told(with_prefix(prefix, text)) == "RuntimeError: DataLoader worker (pid 5) exited"
    assert told(raised("_queue.Empty") + words + raised("KeyboardInterrupt")) == "_queue.Empty"


def test_without_a_chain_the_last_traceback_counts() -> None:
    assert told(raised("OSError: retried") + "step 2\n" + raised("ValueError: x")) == "ValueError: x"


def test_launchers_only_pass_on() -> None:
    assert told(CRASH + LAUNCHER) == OOM
    assert told(LAUNCHER + CRASH) == OOM
    assert told("Segmentation fault (core dumped)\n" + LAUNCHER) == "Segmentation fault (core dumped)"
    assert told(LAUNCHER).startswith("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:")
    passed = raised("subprocess.CalledProcessError: Command '['python']' returned non-zero exit status 1.")
    assert told(CRASH + passed) == OOM
    deepspeed = (
        "[2024-03-01 10:00:00,123] [INFO] [launch.py:316:sigkill_handler] Killing subprocess 4711\n"
        "[2024-03-01 10:00:00,456] [ERROR] [launch.py:322:sigkill_handler] ['python', 'train.py'] exits with"
        " return code = 1\n"
    )
    assert told(CRASH + deepspeed) == OOM
    # What its own message says does not make an exception one of a launcher.
    assert told(CRASH + raised("ValueError: no ChildFailedError")) == "ValueError: no ChildFailedError"


def test_tracebacks_of_processes_and_workers() -> None:
    spawned = (
        "Traceback (most recent call last):\n"
        '  File "/work/train.py", line 9, in <module>\n'
        "torch.multiprocessing.spawn.ProcessRaisedException: \n\n"
        "-- Process 0 terminated with the following error:\n" + raised("ValueError: x", 3)
    )
    assert told(spawned) == "ValueError: x"
    assert frames(spawned) == ["train.py:3 f"]
    loaded = raised("ValueError: Caught ValueError in DataLoader worker process 0.") + "Original "
    assert told(loaded + raised("ValueError: bad shard", 7)) == "ValueError: bad shard"


def test_what_a_destructor_raises_is_no_cause() -> None:
    ignored = "Exception ignored in: <function Pool.__del__ at 0x7f>\n" + raised("ImportError: shutting down")
    assert told(CRASH + ignored) == OOM
    assert find_cause(ignored.replace("ImportError: shutting down", "x").encode()) is None


def test_exceptions_with_odd_names_and_messages() -> None:
    for summary in ("KeyboardInterrupt", "zlib.error: -3", "socket.timeout: timed out", "SystemExit: 3"):
        assert told(raised(summary)) == summary
    for summary in ("__main__.main.<locals>.Stop: enough", "ray.exceptions.RayTaskError(ValueError): x"):
        assert told(raised(summary)) == summary
    loaded = "RuntimeError: Error(s) in loading state_dict for Net:"
    assert told(raised(f"{loaded}\n\tsize mismatch for a.weight")) == f"{loaded} size mismatch for a.weight"


def test_groups_and_boxes() -> None:
    group = (
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "/work/train.py", line 8, in <module>\n'
        "  | ExceptionGroup: two (1 sub-exception)\n"
        "  +-+---------------- 1 ----------------\n"
        "    | Traceback (most recent call last):\n"
        '    |   File "/work/train.py", line 3, in one\n'
        "    |     raise ValueError('x')\n"
        "    | ValueError: x\n"
        "    +------------------------------------\n"
    )
    assert told(group) == "ValueError: x"
    assert frames(group) == ["train.py:3 one"]
    box = (
        "╭───────────────── Traceback (most recent call last) ─────────────────╮\n"
        "│ /work/train.py:12 in main                                           │\n"
        "│                                                                     │\n"
        "│ ❱ 12 │   fit()                                                      │\n"
        "╰─────────────────────────────────────────────────────────────────────╯\n"
        "ZeroDivisionError: division by zero\n"
    )
    assert told(box) == "ZeroDivisionError: division by zero"
    assert frames(box) == ["train.py:12 main"]


def test_what_the_interpreter_and_libraries_say_when_they_crash() -> None:
    fault = (
        "Fatal Python error: Segmentation fault\n\n"
        'Thread 0x00007f01 (most recent call first):\n  File "/work/other.py", line 1 in wait\n\n'
        "Current thread 0x00007f02 (most recent call first):\n"
        '  File "/work/model.py", line 3 in forward\n  File "/work/train.py", line 5 in <module>\n\n'
        "Extension modules: numpy._core, torch._C (total: 20)\n"
        "Segmentation fault (core dumped)\n"
    )
    assert told(fault) == "Fatal Python error: Segmentation fault"
    assert frames(fault) == ["train.py:5 <module>", "model.py:3 forward"]
    thrown = (
        "step 3\n"
        "terminate called after throwing an instance of 'c10::DistBackendError'\n"
        "  what():  [PG 0 Rank 1] Process group watchdog thread terminated with exception: CUDA error\n"
        "Exception raised from ncclCommWatchdog at ProcessGroupNCCL.cpp:1895 (most recent call first):\n"
        "frame #0: c10::Error::Error(c10::SourceLocation) + 0x96 (0x7f in libc10.so)\n"
    )
    assert told(thrown).startswith("c10::DistBackendError: [PG 0 Rank 1] Process group watchdog thread")
    assert told("[rank1]:   what():  no GPU\n") == "no GPU"


@pytest.mark.parametrize(
    "line",
    [
        "Segmentation fault",
        "run.sh: line 3:  4711 Segmentation fault      (core dumped) python train.py",
        "Bus error (core dumped)",
        "Memory cgroup out of memory: Killed process 4711 (python) total-vm:10kB",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some tasks have been OOM Killed.",
        "run.sh: line 3:  4711 Killed                  python train.py",
        "train.py: error: unrecognized arguments: --zerro",
        "[ERROR] [engine.py:1:check] the batch is too large",
        "python: can't open file '/work/trian.py': [Errno 2] No such file or directory",
        "/usr/bin/python3: No module named deepsped",
        "bash: line 1: pyhton: command not found",
    ],
)
def test_without_a_traceback_the_last_words_count(line: str) -> None:
    text = f"ERROR: an older one\nstep 3\n{line}\nstep 4, 0 errors\n"
    assert told(text) == line
    assert (frames(text), cause_of(text).where) == ([], "")


@pytest.mark.parametrize("text", ["", "\n", "step 3/9 loss 0.1\n", "0 errors\n", "done\n" * 999])
def test_no_cause(text: str) -> None:
    assert find_cause(text.encode()) is None


def test_a_traceback_that_is_not_whole_yet_is_no_cause() -> None:
    assert find_cause(CRASH[: CRASH.index("torch.Out")].encode()) is None


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
        assert found.what
        assert len(found.evidence) <= FRAMES
        assert found.where == "".join(found.evidence[-1:])
        for text in (found.what, found.where, *found.evidence):
            assert sanitise(text.encode(), colour=False) == text


@pytest.mark.parametrize(
    "unit",
    [
        b"Traceback (most recent call last):\n",
        b"Traceback (most recent call last)",
        b"a: ",
        b"[",
        b"a.",
        b"\n",
        b'  File "a", line 1\n',
        b"what(): ",
        b"what(): \n",
        b"E0101 00:",
        b"ERROR",
        b"\r",
        b"\x1b[",
        b"A(a",
        "│ ".encode(),
        b"2024-01-01 00:00:00 ",
        b"Exception ignored in\nTraceback (most recent call last)\n",
        b"Fatal Python error: Current thread \n",
    ],
)
def test_no_bytes_take_long(unit: bytes) -> None:
    head = b"Traceback (most recent call last):\n"
    find_cause(unit * (65536 // len(unit)))
    find_cause(head + unit * (65536 // len(unit)))


@pytest.mark.parametrize("script", ["train_deepspeed.py", "train_torch.py", "train_plain.py"])
def test_the_crash_of_an_example(script: str) -> None:
    """What each printed with ``--steps 3 --crash 0@2``; only its folders were renamed."""
    found = find_cause((CRASHES / script).with_suffix(".log").read_bytes())
    assert found is not None
    assert found.what == "RuntimeError: rank 0 crashes at step 2, as it was told to"
    shown = found.evidence
    assert [shown[0].partition(":")[0], shown[-1].partition(":")[0]] == [script, "faults.py"]
    assert shown[-1].endswith(" step_begins")


STEPS = "".join(f"step {at}/90 loss 2.{at:02} lr 3.0e-04\n" for at in range(1, 30))


@pytest.mark.parametrize(
    "fatal",
    [
        "run.sh: line 3:  4711 Segmentation fault      (core dumped) python train.py",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some tasks were OOM Killed.",
        "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-11-20T03:14:05 DUE TO TIME LIMIT ***",
        "[rank3]:[E626 09:12:44.3 ProcessGroupNCCL.cpp:683] Watchdog caught collective operation timeout",
        "Killed",
    ],
)
@pytest.mark.parametrize("prefix", ["", "[1,3]<stderr>:", "i-0.trainer/0 [default3]:"])
def test_a_later_fatal_line_outranks_a_handled_traceback(fatal: str, prefix: str) -> None:
    text = STEPS + raised("OSError: the cache is stale") + STEPS + f"{fatal}\n"
    assert fatal.endswith(told(with_prefix(prefix, text)))
    # Without output of a training between them the traceback is what ended it.
    assert told(STEPS + raised("OSError: x") + "Aborted (core dumped)\n") == "OSError: x"


def test_what_a_training_went_on_after_is_no_cause() -> None:
    assert find_cause((raised("OSError: the cache is stale") + STEPS).encode()) is None
    odd = "".join(f"~ {at} ~ 0.{at} ~\n" for at in range(40, 60))
    assert find_cause((odd + "ERROR: no route to the tracker\n" + odd).encode()) is None


@pytest.mark.parametrize(
    "noise",
    [
        "Exception in thread Thread-4 (_pin_memory_loop):\n"
        + raised("ConnectionResetError: [Errno 104] reset"),
        "Error in atexit._run_exitfuncs:\n" + raised("RuntimeError: cannot schedule new futures"),
        raised("BrokenPipeError: [Errno 32] Broken pipe", path="/usr/lib/multiprocessing/queues.py").replace(
            "in f", "in _feed"
        ),
        "Exception ignored in: <function Net.__del__ at 0x7f>\n" + raised("TypeError: 'NoneType'"),
        "--- Logging error ---\n" + raised("ValueError: I/O operation on closed file."),
    ],
)
def test_noise_of_an_end_is_a_cause_only_where_nothing_else_is(noise: str) -> None:
    assert told(STEPS + CRASH + noise) == OOM
    assert told(STEPS + noise) in noise


def test_the_reason_of_nccl_is_taken_from_its_next_line() -> None:
    words = "NCCL error in: /pytorch/NCCLUtils.hpp:275, unhandled system error, NCCL version 2.27.3"
    rest = "ncclSystemError: System call (e.g. malloc) failed.\nLast error:\nNo space left on device (28)"
    expected = f"DistBackendError: {words} Last error: No space left on device (28)"
    assert told(raised(f"DistBackendError: {words}\n{rest}")) == expected
    thrown = (
        f"terminate called after throwing an instance of 'DistBackendError'\n  what():  {words}\n{rest}\n"
    )
    assert told(thrown) == expected


@pytest.mark.parametrize(
    ("root", "summary"),
    [
        (
            "nvcc fatal   : Unsupported gpu architecture 'compute_120'",
            "ninja: build stopped: subcommand failed.",
        ),
        (
            "a.cpp:3:10: fatal error: cuda_fp16.h: No such file or directory",
            raised("RuntimeError: Error building x"),
        ),
        (
            "Indexing.cu:9: f: block: [0,0,0], thread: [1,0,0] Assertion `i < n` failed.",
            raised("RuntimeError: CUDA error: device-side assert triggered"),
        ),
        ("python: a.cc:3: int f(): Assertion `n > 0' failed.", "Aborted (core dumped)\n"),
        ("traceback : Signal 9 (SIGKILL) received by PID 4711", LAUNCHER),
    ],
)
def test_a_root_outranks_its_summary(root: str, summary: str) -> None:
    assert told(f"{STEPS}{root}\n{summary}") == root


def test_frames_of_an_exception_in_cpp_are_no_cause() -> None:
    text = (
        "[rank3]:[E626 09:12:44.3 ProcessGroupNCCL.cpp:1895] terminated: CUDA error: illegal address\n"
        "Exception raised from c10_cuda_check at CUDAException.cpp:43 (most recent call first):\n"
        "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7f in libc10.so)\n"
    )
    assert told(STEPS + text).endswith("CUDA error: illegal address")


def test_exceptions_of_a_group_behind_a_launchers_prefix() -> None:
    group = (
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "/work/train.py", line 8, in <module>\n'
        "  | ExceptionGroup: two (2 sub-exceptions)\n"
        "  +-+---------------- 1 ----------------\n"
        "    | Traceback (most recent call last):\n"
        '    |   File "/work/train.py", line 3, in one\n'
        "    | ValueError: x\n"
        "    +---------------- 2 ----------------\n"
        "    | Traceback (most recent call last):\n"
        '    |   File "/work/train.py", line 4, in two\n'
        "    | KeyError: y\n"
        "    +------------------------------------\n"
    )
    for prefix in (
        "",
        "[1,3]<stderr>:",
        "i-0.trainer/0 [default2]:[rank2]: ",
        "Fri Nov 20 03:14:05 2026[1,3]<stderr>:",
    ):
        assert told(with_prefix(prefix, group)) == "ValueError: x"


def test_a_loggers_head_stands_before_the_first_line_alone() -> None:
    assert told("2026-11-20 03:14:05,882 ERROR trainer: " + CRASH[CRASH.index("Trace") :]) == OOM


def test_a_traceback_in_a_json_string() -> None:
    line = r'{"level":"ERROR","exc":"Traceback (most recent call last):\n  File \"/work/a.py\", line 3, in f'
    assert told(line + r'\n    f()\nValueError: bad \"x\" here"}' + "\n") == 'ValueError: bad "x" here'


def test_a_bar_before_a_fatal_line_is_left_out() -> None:
    assert told(
        " 22%|##  | 11/50 [1:55:26<6:49:05, 629.37s/it]Segmentation fault (core dumped)\n"
    ).startswith("Segm")


def test_a_consequence_goes_with_what_was_before_it() -> None:
    goodbye = "".join(f"flushing the tracker, part {letter}\n" for letter in "abcdefg")
    victim = raised("BrokenPipeError: [Errno 32] Broken pipe")
    assert told(STEPS + CRASH + goodbye + victim) == OOM
    assert told(STEPS + CRASH + STEPS + victim).startswith("BrokenPipeError")
    assert told(STEPS + CRASH + goodbye + "Bus error (core dumped)\n") == "Bus error (core dumped)"


def test_what_says_that_a_traceback_is_handled() -> None:
    error = "ERROR: the launcher gave up\n"
    for words in ("falling back to the slow kernel\n", "Retrying in 4s ...\n"):
        assert told(raised("ImportError: fused") + words + error) == error.strip()
        assert told(words + raised("ImportError: fused") + error) == "ImportError: fused"
    assert told("WARNING: push failed, will retry\n" + raised("OSError: x") + error) == error.strip()


def test_the_message_of_an_exception_in_cpp_may_begin_on_the_next_line() -> None:
    text = "terminate called after throwing an instance of 'A::B'\nwhat():\nno such action\n"
    assert told(text) == "A::B: no such action"
