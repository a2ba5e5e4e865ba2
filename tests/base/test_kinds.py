"""File names made alike over nodes, and what frames and stacks are busy with."""

from __future__ import annotations

import pytest

from cockpit.base.stacks.dump import Frame, Process
from cockpit.base.stacks.file_names import is_library, normalise
from cockpit.base.stacks.kinds import KINDS, doing, kind, source_frame

USER = Frame("step", "./train.py", 10)
C10D = "torch/distributed/distributed_c10d.py"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/opt/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", "torch/nn/modules/linear.py"),
        ("/home/ada/.local/lib/python3.10/site-packages/wandb/run.py", "wandb/run.py"),
        ("/usr/lib/python3/dist-packages/yaml/__init__.py", "yaml/__init__.py"),
        (
            "/home/ada/miniconda3/envs/x/lib/python3.11/site-packages/deepspeed/comm.py",
            "deepspeed/comm.py",
        ),
        ("/usr/lib/python3.11/threading.py", "python/threading.py"),
        (
            "/home/ada/.pyenv/versions/3.12.1/lib/python3.12/multiprocessing/queues.py",
            "python/multiprocessing/queues.py",
        ),
        ("/opt/DeepSpeed/deepspeed/runtime/engine.py", "deepspeed/runtime/engine.py"),
        ("/home/ada/fork/deepspeed/runtime/engine.py", "deepspeed/runtime/engine.py"),
        ("/opt/accelerate/src/accelerate/state.py", "accelerate/state.py"),
        ("/job/Megatron-LM/megatron/core/utils.py", "megatron/core/utils.py"),
        ("/data/torch/train.py", "/data/torch/train.py"),
        ("/data/lightning/project/train.py", "/data/lightning/project/train.py"),
        ("/job/transformers/models/mine.py", "./transformers/models/mine.py"),
        ("/job/lib/python3/mine.py", "./lib/python3/mine.py"),
        ("/job/scripts/..//train.py", "./train.py"),
        ("/job/train.py", "./train.py"),
        ("/job/model/attention.py", "./model/attention.py"),
        ("train.py", "./train.py"),
        ("/home/ada/lib/data.py", "~/lib/data.py"),
        ("/home/adam/data.py", "/home/adam/data.py"),
        ("/jobs/data.py", "/jobs/data.py"),
        ("<string>", "<string>"),
        ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>"),
        ("", ""),
    ],
)
def test_files_are_the_same_on_every_node(path: str, expected: str) -> None:
    assert normalise(path, "/job", "/home/ada") == expected


def test_what_is_the_users_own() -> None:
    mine = ["./train.py", "/data/x.py", "~/x.py", "<string>", "<stdin>"]
    theirs = ["torch/x.py", "python/threading.py", "<frozen importlib._bootstrap>"]
    assert [is_library(file) for file in mine + theirs] == [False] * 5 + [True] * 3


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (USER, "user"),
        (Frame("all_reduce", C10D, 3252), "collective"),
        (Frame("TorchBackend.all_reduce", "deepspeed/comm/torch.py", 290), "collective"),
        (Frame("monitored_barrier", C10D, 1), "collective"),
        (Frame("all_gather_single", C10D, 1), "collective"),
        (Frame("wait_tensor", "torch/distributed/_functional_collectives.py", 1), "collective"),
        (Frame("all_reduce", "./mine.py", 1), "user"),
        (Frame("all_reduce", "somebody/else.py", 1), "library"),
        (Frame("init_process_group", C10D, 1), "rendezvous"),
        (Frame("_engine_run_backward", "torch/autograd/graph.py", 1), "backward"),
        (Frame("synchronize", "torch/cuda/__init__.py", 1), "sync"),
        (Frame("_MultiProcessingDataLoaderIter._get_data", "torch/utils/data/dataloader.py", 1), "loader"),
        (Frame("_SingleProcessDataLoaderIter._next_data", "torch/utils/data/dataloader.py", 1), "library"),
        (Frame("Queue.get", "python/multiprocessing/queues.py", 1), "loader"),
        (Frame("BaseProcess.run", "python/multiprocessing/process.py", 1), "library"),
        (Frame("FileBaton.wait", "torch/utils/file_baton.py", 49), "build"),
        (Frame("Event.wait", "python/threading.py", 1), "lock"),
        (Frame("run", "python/threading.py", 1), "library"),
        (Frame("readinto", "python/socket.py", 1), "io"),
        (Frame("c10d::ProcessGroupGloo::AsyncWork::wait", "libtorch_cpu.so", 0, True), "collective"),
        (Frame("pthread_cond_wait", "libc.so.6", 0, True), "library"),
        (Frame("cudaStreamSynchronize", "libcudart.so.12", 0, True), "sync"),
    ],
)
def test_kinds_of_frames(frame: Frame, expected: str) -> None:
    assert kind(frame) == expected
    assert expected in KINDS


ENGINE = Frame("_engine_run_backward", "torch/autograd/graph.py", 1)
LOGGER = Frame("wrapper", "torch/distributed/c10d_logger.py", 1)
DEEPSPEED = Frame("all_reduce", "deepspeed/comm/comm.py", 1)
DDP = Frame("_pre_forward", "torch/nn/parallel/distributed.py", 1)
REDUCE = Frame("all_reduce", C10D, 1)
WORK = Frame("c10d::Work::wait", "libtorch_cpu.so", 0, True)
GLOO = Frame("c10d::ProcessGroupGloo::allreduce", "libtorch_cpu.so", 0, True)
SLEEPS = Frame("pthread_cond_wait", "libc.so.6", 0, True)


@pytest.mark.parametrize(
    ("frames", "process", "expected"),
    [
        ((DEEPSPEED, Frame("all_reduce", C10D, 1)), None, ("collective", "all_reduce")),
        ((LOGGER, Frame("barrier", C10D, 1)), None, ("collective", "barrier")),
        ((Frame("backward", "torch/_tensor.py", 1), ENGINE), None, ("backward", "")),
        ((), Process(1, 1, "S", call="clock_nanosleep"), ("sleep", "")),
        ((), Process(1, 1, "S", call="futex"), ("lock", "")),
        ((), Process(1, 1, "S", call="read", target="/data/x.bin"), ("io", "/data/x.bin")),
        ((), Process(1, 1, "R"), ("runs", "")),
        ((), None, ("user", "")),
        ((DDP,), Process(1, 1, "S", call="futex"), ("collective", "_pre_forward")),
        # The same words with native frames as without them.
        ((REDUCE, WORK, SLEEPS), None, ("collective", "all_reduce")),
        ((GLOO, SLEEPS), None, ("collective", "all_reduce")),
        ((WORK, SLEEPS), None, ("collective", "Work.wait")),
        ((SLEEPS,), Process(1, 1, "S", call="futex"), ("lock", "")),
    ],
)
def test_what_a_stack_does(
    frames: tuple[Frame, ...], process: Process | None, expected: tuple[str, str]
) -> None:
    found = doing((USER, *frames), process)
    assert (found.kind, found.what) == expected
    assert found.frame == USER
    assert found.text


@pytest.mark.parametrize(
    ("inner", "source", "expected"),
    [
        ((), "work.wait()", "collective"),
        ((), "with lock:", "lock"),
        ((Frame("wait", "python/threading.py", 1),), "event.wait()", "lock"),
    ],
)
def test_the_handle_of_a_collective_is_told_by_the_line(
    inner: tuple[Frame, ...], source: str, expected: str
) -> None:
    assert doing((USER, *inner), Process(1, 1, "S", call="futex"), source).kind == expected


WAIT = Frame("Condition.wait", "python/threading.py", 1)
LOADER = Frame("_try_get_data", "torch/utils/data/dataloader.py", 1)
QUEUE = Frame("Queue.get", "python/multiprocessing/queues.py", 1)
POLL = Frame("_ConnectionBase.poll", "python/multiprocessing/connection.py", 1)
SELECT = Frame("select", "python/selectors.py", 1)
PDB = Frame("Pdb.interaction", "python/pdb.py", 1)
SHUTDOWN = Frame("_shutdown", "python/threading.py", 1590)
STORE = Frame("barrier", "torch/distributed/elastic/utils/store.py", 1)


@pytest.mark.parametrize(
    ("frames", "call", "target", "text"),
    [
        ((), "recvfrom", "socket", "receives from a socket"),
        ((), "read", "pipe", "reads a pipe"),
        ((), "write", "pipe", "writes to a pipe"),
        ((), "read", "/dev/pts/3", "reads /dev/pts/3"),
        ((), "recvfrom", "", "waits in recvfrom"),
        ((), "wait4", "", "waits for a child"),
        ((LOADER, QUEUE, POLL, SELECT), "poll", "pipe", "waits for its data loader"),
        ((QUEUE, POLL), "read", "pipe", "waits for another process"),
        ((Frame("Queue.get", "python/queue.py", 1), WAIT), "futex", "", "waits for another thread"),
        ((Frame("Thread.join", "python/threading.py", 1),), "futex", "", "waits for another thread"),
        ((Frame("FileLock.acquire", "filelock/_api.py", 1),), "clock_nanosleep", "", "waits for a lock"),
        ((Frame("run", "python/asyncio/runners.py", 1), SELECT), "epoll_wait", "", "waits in its event loop"),
        ((PDB,), "read", "pipe", "waits in a debugger for somebody to type"),
        # It may be one for other ranks.
        ((Frame("synchronize", "horovod/torch/mpi_ops.py", 1),), "futex", "", "waits in horovod"),
        ((SHUTDOWN,), "futex", "", "is at its end, and waits for another thread"),
        # What the others put into the store of torch is waited for in C.
        ((STORE,), "recvfrom", "socket", "waits in barrier"),
    ],
)  # fmt: skip
def test_waits_are_told_in_words(frames: tuple[Frame, ...], call: str, target: str, text: str) -> None:
    assert doing((USER, *frames), Process(1, 1, "S", call=call, target=target)).text == text


def test_a_line_that_sleeps_receives_nothing_whatever_the_kernel_saw_just_then() -> None:
    process = Process(1, 1, "S", call="recvfrom", target="socket")
    frames = (Frame("forward", "./faults.py", 101),)
    assert doing(frames, process, "time.sleep(0.5)").text == "sleeps"
    assert doing(frames, process, "sock.recv(1)").text == "receives from a socket"


def test_what_called_the_users_own_code_is_not_what_it_does() -> None:
    read = Process(1, 1, "S", call="read", target="/data/7.bin")
    for outside in (
        QUEUE,
        LOADER,
        PDB,
        Frame("run", "python/asyncio/runners.py", 1),
    ):
        assert doing((outside, USER), read).text == "reads /data/7.bin"


def test_a_collective_further_out_is_not_what_is_done_now() -> None:
    # A hook of the user's, called from within: what counts is his own code.
    inner = Frame("hook", "./train.py", 20)
    found = doing((USER, Frame("all_reduce", C10D, 1), inner), Process(1, 1, "R"))
    assert (found.kind, found.frame) == ("runs", inner)


@pytest.mark.parametrize(
    "begins",
    [
        (Frame("_run_module_as_main", "<frozen runpy>", 198), Frame("<module>", "axolotl/cli/train.py", 9)),
        (Frame("<module>", "/opt/venv/bin/axolotl", 8), Frame("main", "axolotl/cli/main.py", 20)),
        (Frame("_run_code", "python/runpy.py", 86), Frame("<module>", "axolotl/train.py", 20)),
    ],
    ids=["module", "script", "python 3.8"],
)
def test_a_program_that_is_installed_is_the_users_own(begins: tuple[Frame, ...]) -> None:
    theirs = Frame("load", "datasets/load.py", 7)
    inside = Frame("prepare", "axolotl/data.py", 77)
    assert doing((*begins, theirs, inside, theirs), Process(1, 1, "R")).frame == inside
    assert doing((*begins, inside, REDUCE)).kind == "collective"
    assert doing((*begins, theirs, USER, inside)).frame == USER


def test_compiled_code_is_not_the_users_own_and_says_what_it_waits_in() -> None:
    frames = (
        USER,
        Frame("CompiledFxGraph.__call__", "torch/_inductor/output_code.py", 763),
        Frame("Runner.call", "/tmp/torchinductor_ada/xx/cxxvaqv.py", 112),
        Frame("OpOverload.__call__", "torch/_ops.py", 875),
    )
    line = "torch.ops._c10d_functional.wait_tensor.default(buf0)"
    found = doing(frames, Process(1, 1, "S", call="futex"), line)
    assert (found.kind, found.what, found.frame) == ("collective", "wait_tensor", USER)
    assert doing(frames[:-1], Process(1, 1, "S", call="futex")).text == "waits in compiled code"


def test_the_line_of_code_that_tells_most() -> None:
    script = Frame("<module>", "/venv/bin/tool", 8)
    inside = Frame("train", "tool/train.py", 70)
    compiled = Frame("call", "/tmp/torchinductor_ada/ab/cab.py", 5)
    library = Frame("all_reduce", C10D, 2)
    assert source_frame((USER, library)) == USER
    assert source_frame((script, inside, library)) == inside
    assert source_frame((USER, compiled, library)) == compiled
    assert source_frame(()) is None
