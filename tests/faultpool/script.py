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

def warm_up(step):
{first}
    return None

MORE = []

def train():
    global LAST, PAIR
    step = 0
{start}
    dist.init_process_group("gloo")
    LAST = dist.new_group()
    MORE[:] = [dist.new_group(), dist.new_group()]
    PAIR = [dist.new_group([one, one + 1]) for one in range(0, WORLD, 2)][RANK // 2]
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
"""

AVERAGED = """
        average(torch.cat([each.grad.flatten() for each in model.parameters()])[:64].clone(), step)
"""

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
    **dict.fromkeys(("start", "first", "data", "forward", "average", "save", "log"), 4),
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
    step = case.step if site not in ("start", "first") else 0
    when = f"step {'>=' if kind.every else '=='} {step}"
    text = f'if {when} and RANK in CONCERNED:\n    mark("on", step)\n    {kind.called}\n'
    if kind.others:
        text += f"elif {when}:\n    {kind.others}\n"
    return _indented(text, _SITES[site])


def _indented(text: str, by: int) -> str:
    return textwrap.indent(text.strip("\n"), " " * by)
