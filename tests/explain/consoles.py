"""Consoles as launchers make them, from a seed: healthy steps of all ranks, a fault, what the others say of it.

Each launcher has its own forms: prefixes, its own lines at the start, and how it tells the ends. Times and the
order of lines of different ranks are mixed as in real consoles; the lines of one rank keep their order.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

LAUNCHERS = (
    *("torchrun", "torchrun-plain", "torchrun-tee", "deepspeed", "deepspeed-plain", "srun", "srun-plain"),
    *("mpirun", "mpirun-plain", "accelerate", "ray"),
)
WORLDS = (1, 64, 1024)


@dataclass(frozen=True)
class Console:
    """One console, and the truth about it.

    :param rank: who broke first; None: nothing in it tells
    :param cause: words that its cause must have; empty: it says nothing itself
    """

    launcher: str
    world: int
    fault: str
    text: bytes
    rank: int | None
    cause: str


@dataclass
class Fault:
    """What breaks, and how it is told.

    :param code: what its process ends with
    """

    name: str
    lines: Sequence[str]
    cause: str
    code: int = 1


def _traceback(*frames: str, error: str) -> list[str]:
    lines = ["Traceback (most recent call last):"]
    for at, frame in enumerate(frames):
        lines += [f'  File "/home/ada/{frame}.py", line {88 + 7 * at}, in {frame}', f"    {frame}(batch)"]
    return [*lines, *error.split("\n")]


FAULTS = (
    Fault(
        "value", _traceback("train", "step", error="ValueError: loss became NaN at step 4"), "loss became NaN"
    ),
    Fault(
        "oom",
        _traceback(
            "train",
            "forward",
            error="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity"
            " of 79.15 GiB of which 1.10 GiB is free.",
        ),
        "CUDA out of memory",
    ),
    Fault("key", _traceback("train", "data", error="KeyError: 'labels'"), "labels"),
    Fault(
        "chain",
        [
            *_traceback(
                "train", "load", error="FileNotFoundError: [Errno 2] No such file or directory: '/d/7.bin'"
            ),
            "",
            "The above exception was the direct cause of the following exception:",
            "",
            *_traceback("train", "data", error="RuntimeError: shard 7 cannot be read"),
        ],
        "",
    ),
    Fault("killed", (), "", -9),
    Fault(
        "segv",
        (
            "Fatal Python error: Segmentation fault",
            "",
            "Current thread 0x00007f1 (most recent call first):",
            '  File "/home/ada/kernels.py", line 31 in fused',
            '  File "/home/ada/train.py", line 88 in main',
        ),
        "Segmentation fault",
        -11,
    ),
    Fault("bus", (), "", -7),
    Fault("quiet", (), "", 3),
    Fault(
        "assert",
        (
            "../aten/src/ATen/native/cuda/Indexing.cu:1308: indexSelectLargeIndex: block: [7,0,0], thread: [3,0,0]"
            " Assertion `srcIndex < srcSelectDimSize` failed.",
            *_traceback("train", "embed", error="RuntimeError: CUDA error: device-side assert triggered"),
        ),
        "srcIndex < srcSelectDimSize",
    ),
)

VICTIMS = (
    _traceback(
        "train",
        "reduce",
        error="torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:2251, remote process exited"
        " or there was a network error, NCCL version 2.21.5\nncclRemoteError: A call failed possibly due to a network"
        " error or a remote process exiting prematurely.\nLast error:\nsocketProgress: Connection closed by remote peer"
        " gpu01<40112>",
    ),
    _traceback(
        "train",
        "reduce",
        error="RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer"
        " [10.0.0.5]:31177",
    ),
)


SURVIVED = [
    *_traceback("train", "log", error="ConnectionError: tracker.example.org: Name or service not known"),
    "WARNING: the tracker cannot be reached, continuing without it",
]


@dataclass
class _Made:
    """A console that is being made: lines with times; those of one writer keep their order."""

    random: random.Random
    events: list[tuple[float, int, str]] = field(default_factory=list)
    count: int = 0

    def say(self, at: float, *lines: str, spread: float = 1e-4) -> float:
        """Lines that are printed one after another, from a time on."""
        for line in lines:
            self.events.append((at, self.count, line))
            self.count += 1
            at += self.random.uniform(0.1, 1.0) * spread
        return at

    def text(self) -> bytes:
        """All of it."""
        heapq.heapify(self.events)
        lines: list[str] = []
        while self.events:
            lines.append(heapq.heappop(self.events)[2])
        return ("\n".join(lines) + "\n").encode()


Prefix = Callable[[int], str]

_RAY = "\x1b[36m{}\x1b[0m "
"""Who speaks, as Ray colours it."""


def console(launcher: str, world: int, seed: int, steps: int | None = None) -> Console:
    """One console.

    :param steps: of training before the fault
    """
    rng = random.Random(f"{launcher} {world} {seed}")
    fault = FAULTS[seed % len(FAULTS)]
    rank = rng.randrange(world)
    made = _Made(rng)
    local = 8 if world >= 8 and launcher != "deepspeed-plain" else world

    def host(number: int) -> str:
        return f"gpu{number // local + 1:02d}"

    prefix = _prefix(launcher, local, host)
    at = _begin(made, launcher, world, local, host)
    steps = (30 if world <= 64 else 4) if steps is None else steps
    for step in range(steps):
        for each in range(world):
            if each == 0 or world <= 64 or rng.random() < 0.5:
                loss = 3.0 - 0.01 * step
                line = f"[2026-11-20 03:{step // 60 % 60:02d}:{step % 60:02d}] step {step}/500 loss {loss:.3f} lr 1e-4"
                made.say(at + rng.random(), prefix(each) + line)
        if step == steps // 2 and seed % 3 == 0:
            # Survived: a lost connection to a tracker.
            whose = prefix(rng.randrange(world))
            made.say(at + 0.5, *(whose + line for line in SURVIVED))
        if seed % 4 == 1:
            made.say(
                at + 0.7,
                prefix(0) + f"WARNING: dataloader error rate {step / 1000:.4f}, retrying shard {step}",
            )
        at += 1.0
    _break(made, launcher, world, rank, fault, at, prefix, local, host)
    told = launcher != "deepspeed-plain" or world == 1
    return Console(launcher, world, fault.name, made.text(), rank if told else None, fault.cause)


def _prefix(launcher: str, local: int, host: Prefix) -> Prefix:
    return {
        "torchrun": lambda number: f"[rank{number}]: ",
        "torchrun-plain": lambda number: "",
        "torchrun-tee": lambda number: f"{host(number)}: [default{number % local}]:",
        "deepspeed-plain": lambda number: "",
        "mpirun-plain": lambda number: "",
        "accelerate": lambda number: f"[rank{number}]: ",
        "deepspeed": lambda number: f"{host(number)}: [rank{number}]: ",
        "srun": lambda number: f"{number:>4}: ",
        "srun-plain": lambda number: "",
        "mpirun": lambda number: f"[1,{number}]<stderr>:",
        "ray": lambda number: _RAY.format(
            f"(RayTrainWorker pid={4000 + number}, ip=10.0.{number // local}.2)"
        ),
    }[launcher]


def _begin(made: _Made, launcher: str, world: int, local: int, host: Prefix) -> float:
    nodes = range(0, world, local)
    if launcher.startswith("torchrun"):
        made.say(
            0.0,
            "W1120 03:00:00.101000 811 torch/distributed/run.py:793] *****************************************",
            "W1120 03:00:00.101000 811 torch/distributed/run.py:793] Setting OMP_NUM_THREADS environment variable for"
            " each process to be 1 in default, to avoid your system being overloaded, please further tune the variable"
            " for optimal performance in your application as needed.",
        )
    if launcher.startswith("deepspeed"):

        def tag(first: int) -> str:
            return f"{host(first)}: " if launcher == "deepspeed" else ""

        mapping = ", ".join(f"'{host(first)}': {list(range(first, first + local))}" for first in nodes)
        for first in nodes:
            made.say(
                0.0,
                f"{tag(first)}[2026-11-20 03:00:00,101] [INFO] [launch.py:146:main] WORLD INFO DICT: {{}}",
                f"{tag(first)}[2026-11-20 03:00:00,101] [INFO] [launch.py:152:main] nnodes={len(nodes)},"
                f" num_local_procs={local}, node_rank={first // local}",
                f"{tag(first)}[2026-11-20 03:00:00,101] [INFO] [launch.py:163:main]"
                f" global_rank_mapping=defaultdict(<class 'list'>, {{{mapping}}})",
                f"{tag(first)}[2026-11-20 03:00:00,101] [INFO] [launch.py:164:main] dist_world_size={world}",
            )
    if launcher == "ray":
        controller = _RAY.format("(TrainController pid=3999)")
        made.say(0.0, f"{controller}Started training worker group of size {world}: ")
        for number in range(world):
            made.say(
                0.1,
                f"{controller}- (ip=10.0.{number // local}.2, pid={4000 + number}) world_rank={number}, local_rank={number % local}, node_rank={number // local}",
            )
    return 1.0


def _break(
    made: _Made,
    launcher: str,
    world: int,
    rank: int,
    fault: Fault,
    at: float,
    prefix: Prefix,
    local: int,
    host: Prefix,
) -> None:
    rng = made.random
    if rng.random() < 0.5 and world > 1:
        # What the others print until they see it.
        for number in range(min(world, 64)):
            made.say(
                at + rng.random() * 1e-3,
                prefix(number) + f"gpu01:77:99 [{number % 8}] NCCL INFO comm 0x55 destroyed",
            )
    end = made.say(at, *(prefix(rank) + line for line in fault.lines))
    if rng.random() < 0.3:
        # Those that do not wait for it yet print a step more, or two.
        for number in rng.sample(range(world), min(world, 6)):
            if number != rank:
                made.say(end + 1e-3 * rng.random(), prefix(number) + "step 41/500 loss 2.590 lr 1e-4")
    last = end
    words = VICTIMS[rng.randrange(len(VICTIMS))]
    silent = rng.random() < 0.3
    victims = [number for number in range(world) if number != rank and not (silent and rng.random() < 0.5)]
    if launcher == "deepspeed":
        # Who says nothing there is known by what the others of its node say.
        beside = range(rank // local * local, min(world, rank // local * local + local))
        victims = sorted({*victims, *beside} - {rank})
    for number in victims:
        begin = end + rng.uniform(0.001, 0.2)
        last = max(last, made.say(begin, *(prefix(number) + line for line in words), spread=2e-3))
    for line in _ends(launcher, world, rank, fault, victims, local, host, rng):
        last = made.say(last + 0.01, line)


def _ends(
    launcher: str,
    world: int,
    rank: int,
    fault: Fault,
    victims: Sequence[int],
    local: int,
    host: Prefix,
    rng: random.Random,
) -> Iterator[str]:
    if launcher.startswith("torchrun") or launcher == "accelerate":
        yield from _torch(launcher, rank, fault, victims, local, host)
    elif launcher.startswith("deepspeed"):
        node = f"{host(rank)}: " if launcher == "deepspeed" else ""
        first = rank // local * local
        yield from (
            f"{node}[2026-11-20 03:14:05,700] [INFO] [launch.py:319:sigkill_handler] Killing subprocess {4000 + number}"
            for number in range(first, min(world, first + local))
        )
        yield (
            f"{node}[2026-11-20 03:14:05,900] [ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python', '-u',"
            # It is that of the last one that was started there, whichever one ended.
            f" 'train.py', '--local_rank={min(world, first + local) - first - 1}'] exits with return code = {fault.code}"
        )
        code = fault.code % 256
        if node:
            yield f"pdsh@login1: {node}ssh exited with exit code {code}"
    elif launcher in ("srun", "srun-plain"):
        yield from _slurm(rank, fault, victims, local, host)
    elif launcher.startswith("mpirun"):
        if fault.code < 0:
            name = {9: "Killed", 11: "Segmentation fault", 7: "Bus error"}[-fault.code]
            yield "-" * 74
            yield (
                f"mpirun noticed that process rank {rank} with PID {4000 + rank} on node {host(rank)} exited on signal"
                f" {-fault.code} ({name})."
            )
            yield "-" * 74
        else:
            yield "-" * 74
            yield "Primary job  terminated normally, but 1 process returned"
            yield "a non-zero exit code. Per user-direction, the job has been aborted."
            yield "-" * 74
            yield "-" * 74
            yield "mpirun detected that one or more processes exited with non-zero status, thus causing"
            yield "the job to be terminated. The first process to do so was:"
            yield ""
            yield f"  Process name: [[61546,1],{rank}]"
            yield f"  Exit code:    {fault.code}"
            yield "-" * 74
    elif launcher == "ray":
        yield from _ray(rank, fault, local)


def _torch(
    launcher: str, rank: int, fault: Fault, victims: Sequence[int], local: int, host: Prefix
) -> Iterator[str]:
    stamp = "E1120 03:14:06.101000 811 torch/distributed/elastic/multiprocessing/api.py:869]"
    node = host(rank)
    yield from (
        f"W1120 03:14:05.900000 811 torch/distributed/elastic/multiprocessing/api.py:897] Sending process {4000 + number}"
        " closing signal SIGTERM"
        for number in range(rank // local * local, rank // local * local + local)
        if number != rank
    )
    yield f"{stamp} failed (exitcode: {fault.code}) local_rank: {rank % local} (pid: {4000 + rank}) of binary: /usr/bin/python"
    yield "Traceback (most recent call last):"
    yield (
        '  File "/usr/local/bin/torchrun", line 8, in <module>'
        if launcher != "accelerate"
        else ('  File "/usr/local/bin/accelerate", line 8, in <module>')
    )
    yield "    sys.exit(main())"
    yield '  File "/usr/lib/python3/site-packages/torch/distributed/run.py", line 918, in main'
    yield "    run(args)"
    yield '  File "/usr/lib/python3/site-packages/torch/distributed/launcher/api.py", line 269, in launch_agent'
    yield "    raise ChildFailedError("
    yield "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "
    yield "=" * 60
    yield "train.py FAILED"
    yield "-" * 60
    yield "Failures:"
    others = [one for one in victims if one // local == rank // local][:2]
    for at, number in enumerate(others):
        yield from _failure(at + 1, number, 1, local, node)
    if not others:
        yield "  <NO_OTHER_FAILURES>"
    yield "-" * 60
    yield "Root Cause (first observed failure):"
    yield from _failure(0, rank, fault.code, local, node)
    yield "=" * 60


def _failure(at: int, rank: int, code: int, local: int, node: str) -> Iterator[str]:
    yield f"[{at}]:"
    yield "  time      : 2026-11-20_03:14:05"
    yield f"  host      : {node}"
    yield f"  rank      : {rank} (local_rank: {rank % local})"
    yield f"  exitcode  : {code} (pid: {4000 + rank})"
    yield "  error_file: <N/A>"
    if code < 0:
        name = {9: "SIGKILL", 11: "SIGSEGV", 7: "SIGBUS"}[-code]
        yield f"  traceback : Signal {-code} ({name}) received by PID {4000 + rank}"
    else:
        yield "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"


def _slurm(rank: int, fault: Fault, victims: Sequence[int], local: int, host: Prefix) -> Iterator[str]:
    node = host(rank)
    if fault.code == -9:
        yield "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks have been OOM Killed."
        yield f"srun: error: {node}: task {rank}: Out Of Memory"
    elif fault.code < 0:
        name = {11: "Segmentation fault (core dumped)", 7: "Bus error (core dumped)"}[-fault.code]
        yield f"srun: error: {node}: task {rank}: {name}"
    else:
        yield f"srun: error: {node}: task {rank}: Exited with exit code {fault.code}"
    yield "srun: Terminating StepId=4711.0"
    yield "srun: launch/slurm: _step_signal: Terminating StepId=4711.0"
    yield f"slurmstepd-{node}: error: *** STEP 4711.0 ON {node} CANCELLED AT 2026-11-20T03:14:06 ***"
    how = "Terminated" if rank % 2 else "Exited with exit code 1"
    by_node: dict[str, list[int]] = {}
    for number in victims:
        by_node.setdefault(host(number), []).append(number)
    for name, numbers in by_node.items():
        told = ",".join(map(str, numbers))
        yield f"srun: error: {name}: task{'s' * (len(numbers) > 1)} {told}: {how}"


def _ray(rank: int, fault: Fault, local: int) -> Iterator[str]:
    pid, address = 4000 + rank, f"10.0.{rank // local}.2"
    if not fault.lines or fault.code < 0:
        yield (
            f"(raylet, ip={address}) A worker died or was killed while executing a task by an unexpected system error."
            f" To troubleshoot the problem, check the logs for the dead worker. RayTask ID: ffff Worker ID: 28ab Node ID:"
            f" 5c Worker IP address: {address} Worker port: 10007 Worker PID: {pid} Worker exit type: SYSTEM_ERROR Worker"
            " exit detail: Worker unexpectedly exits with a connection error code 2. End of file. There are some"
            " potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage."
        )
        yield "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."
        return
    yield "Traceback (most recent call last):"
    yield '  File "/home/ada/launch.py", line 40, in <module>'
    yield "    trainer.fit()"
    error = fault.lines[-1]
    kind = error.partition(":")[0].rpartition(".")[2]
    yield f"ray.exceptions.RayTaskError({kind}): ray::_RayTrainWorker__execute.get_next() (pid={pid}, ip={address})"
    yield from fault.lines[1:]
