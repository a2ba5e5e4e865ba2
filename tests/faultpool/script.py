"""The training script of a case: a plain one, with what is to go wrong put into one of its functions."""

from __future__ import annotations

import textwrap

from tests.faultpool.cases import Case

WAITS = {
    "all_reduce": "dist.all_reduce(gradients)",
    "handle": "work = dist.all_reduce(gradients, async_op=True)\nwork.wait()",
    "poll": (
        "work = dist.all_reduce(gradients, async_op=True)\n"
        "while not work.is_completed():\n    time.sleep(0.01)"
    ),
    "barrier": "dist.barrier()",
    "object": "dist.all_gather_object([None] * WORLD, step)",
    "gather": "dist.all_gather([torch.zeros(64) for _ in range(WORLD)], gradients)",
    "monitored": "dist.monitored_barrier(timeout=datetime.timedelta(hours=1))",
    "pair": "dist.all_reduce(gradients, group=PAIR)",
    "mesh": "dist.all_reduce(gradients, group=PAIR)\ndist.all_reduce(gradients, group=ACROSS)",
    "mesh_between": (
        "dist.all_reduce(gradients, group=PAIR)\nscale(step)\ndist.all_reduce(gradients, group=ACROSS)"
    ),
    "pipeline": (
        "if RANK:\n    dist.recv(gradients, src=RANK - 1)\n"
        "time.sleep(0.4)\n"
        "if RANK < WORLD - 1:\n    dist.send(gradients, dst=RANK + 1)\n"
        "if RANK < WORLD - 1:\n    dist.recv(gradients, src=RANK + 1)\n"
        "time.sleep(0.4)\n"
        "if RANK:\n    dist.send(gradients, dst=RANK - 1)"
    ),
}
"""How ranks with torch wait for each other in each step."""

IMPORTS = """
import asyncio
import atexit
import concurrent.futures
import ctypes
import datetime
import fcntl
import gc
import http.server
import logging
import multiprocessing
import os
import pdb
import queue
import random
import re
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import types
import urllib.request

import filelock

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
HERE = os.path.dirname(os.path.abspath(__file__))
sys.setrecursionlimit(2000)
"""

MARKS = """
def mark(name, text=""):
    with open(os.path.join(MARKS, "%s.%d" % (name, RANK)), "w") as file:
        file.write(str(text))
"""

TORCH = """
gc.disable()
import torch
import torch.distributed as dist
import torch.utils.data
import torch.utils.file_baton
gc.enable()
torch.set_num_threads(1)
"""

LEAN = """
# A third of what an import of torch takes is this, which only workers of loaders need here.
sys.modules["torch._meta_registrations"] = types.ModuleType("torch._meta_registrations")
"""

NO_DYNAMO = """
# What every optimizer imports, and nothing here needs, takes longer than all the rest.
sys.modules["torch._dynamo"] = torch._dynamo = types.ModuleType("torch._dynamo")
torch._dynamo.disable = lambda function, *_, **__: function
torch._dynamo.trace_rules = types.SimpleNamespace(clear_lru_cache=lambda: None)
torch._dynamo.graph_break = lambda *_, **__: None
"""

LOOP = """
def load_batch(step):
{data}
    return torch.randn(4, 64)

def forward(model, batch, step):
{forward}
    return model(batch).square().mean()

def backward(loss, step):
    def watch(grad):
{backward}
        return grad

    loss.register_hook(watch)
    loss.backward()

def scale(step):
{between}
    return None

def average(gradients, step):
{average}
{wait}

def save(step):
{save}
    return None

def log_metrics(step, loss):
    print("step %d loss %.4f" % (step, loss), flush=True)
{log}

def finish():
    dist.barrier(group=LAST)

def leave(step):
{end}
    return None

def warm_up(step):
{first}
    return None

MORE = []

def train():
    global LAST, PAIR, ACROSS
    step = 0
{start}
    dist.init_process_group("gloo")
    LAST = dist.new_group()
    MORE[:] = [dist.new_group(), dist.new_group()]
    PAIR = [dist.new_group([one, one + 1]) for one in range(0, WORLD, 2)][RANK // 2]
    ACROSS = [dist.new_group([one, one + 2]) for one in range(2)][RANK % 2]
{setup}
    model = torch.nn.Linear(64, 64)
{wrap}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    warm_up(0)
    for step in range(STEPS):
        mark("step", step)
        batch = load_batch(step)
        loss = forward(model, batch, step)
        backward(loss, step)
{averaged}
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(PAUSE)
        save(step)
        log_metrics(step, loss.item())
    finish()
    leave(0)
"""

AVERAGED = """
        average(torch.cat([each.grad.flatten() for each in model.parameters()])[:64].clone(), step)
"""

PIPELINE = """
STAGES, MICRO, SKIPPED = {stages}, 4, set()
REPLICAS = WORLD // STAGES
STAGE = RANK // REPLICAS
BEFORE, AFTER = RANK - REPLICAS, RANK + REPLICAS
FIRST_STAGE, LAST_STAGE = STAGE == 0, STAGE == STAGES - 1

def load_batch(step):
{data}
    return torch.randn(64)

def forward(batch, step, micro):
{forward}
    time.sleep(0.02)
    return torch.tanh(batch)

def backward(grad, step, micro):
{backward}
    time.sleep(0.02)
    return grad * 0.5

def log_metrics(step, loss):
    print("step %d loss %.4f" % (step, loss), flush=True)
{log}
{schedule}
def finish():
    dist.barrier()

def train():
    dist.init_process_group("gloo")
    groups = [dist.new_group([stage * REPLICAS + one for one in range(REPLICAS)]) for stage in range(STAGES)]
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        mark("step", step)
        run_schedule(step)
        if REPLICAS > 1:
            dist.all_reduce(torch.ones(64), group=groups[STAGE])
        {norm}
        model(torch.ones(64)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(PAUSE)
        log_metrics(step, 1 / (step + 1))
    finish()
"""

SCHEDULES = {
    "gpipe": """
def receive_forward(step):
    if FIRST_STAGE:
        return load_batch(step)
    batch = torch.zeros(64)
    dist.recv(batch, src=BEFORE)
    return batch

def send_forward(batch, micro):
    if not LAST_STAGE and micro not in SKIPPED:
        dist.send(batch, dst=AFTER)

def receive_backward():
    grad = torch.zeros(64)
    if not LAST_STAGE:
        dist.recv(grad, src=AFTER)
    return grad

def send_backward(grad):
    if not FIRST_STAGE:
        dist.send(grad, dst=BEFORE)

def run_schedule(step):
    for micro in range(MICRO):
        batch = receive_forward(step)
        send_forward(forward(batch, step, micro), micro)
    for micro in range(MICRO):
        grad = receive_backward()
        send_backward(backward(grad, step, micro))
""",
    "alternating": """
def communicate(to=None, source=None, tensor=None):
    calls, got = [], torch.zeros(64)
    if to is not None:
        calls.append(dist.P2POp(dist.isend, tensor, to))
    if source is not None:
        calls.append(dist.P2POp(dist.irecv, got, source))
    if calls:
        for request in dist.batch_isend_irecv(calls):
            request.wait()
    return got

def receive_forward(step):
    return load_batch(step) if FIRST_STAGE else communicate(source=BEFORE)

def send_forward(batch, micro):
    if not LAST_STAGE and micro not in SKIPPED:
        communicate(to=AFTER, tensor=batch)

def receive_backward():
    return torch.zeros(64) if LAST_STAGE else communicate(source=AFTER)

def send_backward(grad):
    if not FIRST_STAGE:
        communicate(to=BEFORE, tensor=grad)

def send_forward_receive_backward(batch, micro):
    if LAST_STAGE:
        return torch.zeros(64)
    if micro in SKIPPED:
        return receive_backward()
    return communicate(to=AFTER, source=AFTER, tensor=batch)

def send_backward_receive_forward(grad, step):
    if FIRST_STAGE:
        return load_batch(step)
    return communicate(to=BEFORE, source=BEFORE, tensor=grad)

def run_schedule(step):
    first = min(STAGES - STAGE - 1, MICRO)
    for micro in range(first):
        batch = receive_forward(step)
        send_forward(forward(batch, step, micro), micro)
    batch = receive_forward(step)
    for micro in range(first, MICRO):
        grad = send_forward_receive_backward(forward(batch, step, micro), micro)
        grad = backward(grad, step, micro - first)
        if micro == MICRO - 1:
            send_backward(grad)
        else:
            batch = send_backward_receive_forward(grad, step)
    for micro in range(first):
        grad = receive_backward()
        send_backward(backward(grad, step, MICRO - first + micro))
""",
}
"""Pipelines: all microbatches forward, then all backward, each with a call of its own; or in turn (1F1B)."""

ZERO3 = """
def load_batch(step):
{data}
    return torch.randn(4, 64)

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)

    def forward(self, batch):
        step = NOW[0]
{layer}
        return torch.tanh(self.linear(batch))

NOW = [0]

def log_metrics(step, loss):
    print("step %d loss %.4f" % (step, loss), flush=True)
{log}

def train():
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo")
    config = {{
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {{"stage": 3, "stage3_param_persistence_threshold": 0}},
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 1000000,
    }}
    model = torch.nn.Sequential(Layer(), Layer())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    for step in range(STEPS):
        mark("step", step)
        NOW[0] = step
        loss = engine(load_batch(step)).square().mean()
        engine.backward(loss)
        engine.step()
        time.sleep(PAUSE)
        log_metrics(step, loss.item())
"""

BARE = """
def load_batch(step):
{data}
    return [random.random() for _ in range(64)]

def forward(batch, step):
{forward}
    return sum(batch)

def save(step):
{save}
    return None

def log_metrics(step, loss):
    print("step %d loss %.4f" % (step, loss), flush=True)
{log}

def warm_up(step):
{first}
    return None

def train():
    step = 0
{start}
{setup}
    meeting = Meeting()
    meeting.join(-1)
    warm_up(0)
    for step in range(STEPS):
        mark("step", step)
        batch = load_batch(step)
        loss = forward(batch, step)
        meeting.join(step)
        time.sleep(PAUSE)
        save(step)
        log_metrics(step, loss)
"""

MEETINGS = {
    "files": """
class Meeting:
    def join(self, step):
        names = [os.path.join(HERE, "at-%d" % rank) for rank in range(WORLD)]
        with open(names[RANK] + ".new", "w") as file:
            file.write(str(step))
        os.rename(names[RANK] + ".new", names[RANK])
        while not all(self.reached(name, step) for name in names):
            time.sleep(0.02)

    def reached(self, name, step):
        try:
            return int(open(name).read()) >= step
        except FileNotFoundError:
            return False
""",
    "socket": """
class Meeting:
    def __init__(self):
        where = ("127.0.0.1", int(os.environ["MASTER_PORT"]))
        if RANK == 0:
            threading.Thread(target=self.count, args=(socket.create_server(where),), daemon=True).start()
        while True:
            try:
                self.line = socket.create_connection(where)
                return
            except ConnectionRefusedError:
                time.sleep(0.05)

    def count(self, server):
        lines = [server.accept()[0] for _ in range(WORLD)]
        while True:
            for line in lines:
                line.recv(1)
            for line in lines:
                line.send(b"x")

    def join(self, step):
        self.line.send(b"x")
        self.line.recv(1)
""",
}
"""How ranks without torch wait for each other."""

ENDS = {
    "loop": "train()",
    "thread": "trainer = threading.Thread(target=train)\ntrainer.start()\ntrainer.join()",
    "thread_loop": (
        "async def serve(trainer):\n"
        "    while trainer.is_alive():\n        await asyncio.sleep(0.5)\n\n"
        'trainer = threading.Thread(target=train, name="TrainingThread(train)")\ntrainer.start()\n'
        "asyncio.run(serve(trainer))"
    ),
    "thread_poll": (
        "results = queue.Queue()\n"
        'trainer = threading.Thread(target=train, name="TrainingThread(train)")\ntrainer.start()\n'
        "while trainer.is_alive():\n"
        "    try:\n        results.get(timeout=1)\n    except queue.Empty:\n        pass"
    ),
    "child": (
        'if "--child" in sys.argv:\n    train()\n'
        'else:\n    sys.exit(subprocess.call([sys.executable, __file__, "--child"]))'
    ),
}


def script(case: Case, marks: str) -> str:
    """The text of a script.

    :param marks: a folder of ours, in which ranks tell how far they are; cockpit does not know it
    """
    kind = case.kind
    filled = {site: _at(case, site) for site in _SITES}
    torch = "" if case.bare else TORCH
    if case.bare:
        body = MEETINGS[case.waits] + BARE.format(**filled, setup=_indented(kind.setup, 4))
    elif kind.body == "zero3":
        body = ZERO3.format(**filled)
    elif kind.body in SCHEDULES:
        torch = LEAN + torch + NO_DYNAMO
        # The one with calls of its own ends a step with the norm of all gradients, the other one without.
        norm = "dist.all_reduce(torch.ones(1))" if kind.body == "gpipe" else ""
        body = PIPELINE.format(**filled, stages=kind.stages, schedule=SCHEDULES[kind.body], norm=norm)
    else:
        ddp = kind.body == "ddp"
        lean = "" if ddp or "DataLoader" in kind.code else LEAN
        torch = lean + torch + ("" if ddp else NO_DYNAMO)
        body = LOOP.format(
            **filled,
            wait=_indented(WAITS[case.waits], 4),
            setup=_indented(kind.setup, 4),
            wrap="    model = torch.nn.parallel.DistributedDataParallel(model)" if ddp else "",
            averaged="" if ddp else AVERAGED.strip("\n"),
        )
    parts = [
        IMPORTS,
        torch,
        _constants(case, marks),
        MARKS,
        kind.code,
        body,
        ENDS.get(kind.body, ENDS["loop"]),
    ]
    return '"""Train a small model."""\n' + "\n".join(parts) + "\n"


_SITES = {
    **dict.fromkeys(("start", "first", "data", "forward", "average", "save", "log", "between", "end"), 4),
    **dict.fromkeys(("backward", "layer"), 8),
}
"""Where something may be put in, and how far it is indented."""


def _constants(case: Case, marks: str) -> str:
    steps = case.step + case.kind.rest if case.kind.rest else 10000
    return (
        f"CONCERNED = {case.ranks!r}\nFIRST = CONCERNED[0]\nSTEPS = {steps}\nPAUSE = {case.kind.pause_s}\n"
        f"MARKS = {marks!r}\n"
    )


def _at(case: Case, site: str) -> str:
    kind = case.kind
    if site != case.site:
        return ""
    step = case.step if site not in ("start", "first", "end") else 0
    when = f"step {'>=' if kind.every else '=='} {step}"
    text = f'if {when} and RANK in CONCERNED:\n    mark("on", step)\n    {kind.called}\n'
    if kind.others:
        text += f"elif {when}:\n    {kind.others}\n"
    indent = 4 if case.kind.body in SCHEDULES else _SITES[site]
    return _indented(text, indent)


def _indented(text: str, by: int) -> str:
    return textwrap.indent(text.strip("\n"), " " * by)
