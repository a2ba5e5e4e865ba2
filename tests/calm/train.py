"""Training that is slow in an honest way: real torch over gloo, four ranks, steps of about half a second.

``train.py KIND``: every half minute or so it does what its kind says, for longer than the watch waits. It
never ends by itself.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

KIND = sys.argv[1]
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
HERE = os.path.dirname(os.path.abspath(__file__))
LONG_S, EVERY = 55.0, 40
"""How long it makes no step, and after how many steps that happens again."""
REST_S, ANSWER_S = 40.0, 12.5
"""The same of kinds that have their own time."""


def burn(seconds: float) -> None:
    until, found = time.monotonic() + seconds, 1
    while time.monotonic() < until:
        found = sum(n * n for n in range(found % 50 + 300))
        time.sleep(0.002)


def lower_graph() -> None:
    """A compiler in a child process, as inductor has it: it keeps a core busy most of the time."""
    code = """
import time
end = time.time() + %g
while time.time() < end:
    sum(n * n for n in range(20000))
    time.sleep(0.002)
"""
    subprocess.run([sys.executable, "-c", code % LONG_S], check=True)


def write_checkpoint() -> None:
    until = time.monotonic() + LONG_S
    with open(os.path.join(HERE, f"{KIND}.{RANK}.pt"), "wb") as file:
        while time.monotonic() < until:
            file.seek(0)
            file.write(bytes(1 << 16))
            file.flush()
            os.fsync(file.fileno())
            time.sleep(0.02)


def evaluate() -> None:
    model, until = torch.nn.Linear(64, 64), time.monotonic() + LONG_S
    with torch.no_grad():
        while time.monotonic() < until:
            for _ in range(20):
                model(torch.randn(32, 64))
            time.sleep(0.005)


def evaluate_gently() -> None:
    """With a short sleep after each batch, as it shares its CPU: looks like polling."""
    model, until = torch.nn.Linear(64, 64), time.monotonic() + LONG_S
    with torch.no_grad():
        while time.monotonic() < until:
            model(torch.randn(8, 64)).sum().item()
            time.sleep(0.02)


def ask(seconds: float) -> None:
    """One blocking call that waits for the answer of a server: an upload, a hub."""
    mine, theirs = socket.socketpair()
    threading.Timer(seconds, theirs.send, (b"done",)).start()
    mine.recv(4)


def rest() -> None:
    time.sleep(REST_S)


def await_file() -> None:
    """It polls for what another program writes."""
    path = os.path.join(HERE, f"{KIND}.{RANK}.ready")
    threading.Timer(LONG_S, lambda: open(path, "w").close()).start()
    while not os.path.exists(path):
        time.sleep(0.1)
    os.unlink(path)


def lower_beside() -> None:
    """A compiler in a child process, for which a thread waits, and the main one for that."""
    beside = threading.Thread(target=lower_graph)
    beside.start()
    beside.join()


def throttle() -> None:
    """Something outside stops this rank again and again, as a limit of power or of a container does."""
    rank = os.getpid()
    if os.fork() == 0:
        while os.getppid() == rank:
            os.kill(rank, signal.SIGSTOP)
            time.sleep(4)
            os.kill(rank, signal.SIGCONT)
            time.sleep(0.3)
        os._exit(0)


def serve_rounds() -> None:
    """No training: all ranks pass a token round, some twenty times a second, and nobody counts steps."""
    token = torch.zeros(1)
    while True:
        dist.all_reduce(token)
        time.sleep(0.05)


def load(step: int) -> torch.Tensor:
    if KIND == "uneven":
        # Mostly quick; now and then a batch from a cold store.
        time.sleep(random.choice([0.1, 0.3, 0.5, 1.0, 6.0 if step % 10 == 0 else 0.2]))
    return torch.randn(4, 64)


def pass_on(gradients: torch.Tensor) -> None:
    """A pipeline with a bubble: each stage waits for the one before it, and back."""
    if RANK:
        dist.recv(gradients, src=RANK - 1)
    burn(2)
    if RANK < WORLD - 1:
        dist.send(gradients, dst=RANK + 1)
        dist.recv(gradients, src=RANK + 1)
    burn(2)
    if RANK:
        dist.send(gradients, dst=RANK - 1)


def pause(step: int) -> None:
    """What this kind is about."""
    first, due = step == 0, step > 0 and step % EVERY == 0
    if KIND == "first_step" and first:
        burn(LONG_S)
    elif KIND == "compile" and (first or step == EVERY):
        lower_graph()
    elif (KIND == "checkpoint" and due and RANK == 0) or (KIND == "checkpoint_all" and due):
        write_checkpoint()
    elif (KIND == "evaluate" and due) or (KIND == "evaluate_one" and due and RANK == 0):
        evaluate()
    elif KIND in ONE and RANK == 0:
        every, wait = ONE[KIND]
        if first if not every else step > 0 and step % every == 0:
            wait()


ONE: dict[str, tuple[int, Callable[[], None]]] = {
    "first_wait": (0, lambda: ask(LONG_S)),
    "evaluate_gently": (EVERY, evaluate_gently),
    "upload": (EVERY, lambda: ask(LONG_S)),
    "rest": (EVERY, rest),
    "answer": (EVERY, lambda: ask(ANSWER_S)),
    "await_file": (EVERY, await_file),
    "compile_beside": (EVERY, lower_beside),
    "throttled": (0, throttle),
}
"""Kinds in which only rank 0 does something, and the others wait: each so many steps, 0: before the first."""


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(RANK)
    dist.init_process_group("gloo")
    model = torch.nn.Linear(64, 8)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    micro = 24 if KIND == "accumulate" else 1
    step = 0
    if KIND == "rounds":
        serve_rounds()
    while True:
        pause(step)
        for _ in range(micro):
            loss = model(load(step)).square().mean()
            loss.backward()
            time.sleep(2.0 if KIND == "accumulate" else 0.4)
        gradients = torch.cat([each.grad.flatten() for each in model.parameters()])
        if KIND == "pipeline":
            pass_on(gradients)
        dist.all_reduce(gradients)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if RANK == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
