"""A program whose ranks wait for each other in each step, without torch, and stop as a test wants.

Its ranks meet in ``all_reduce`` of a module that lies where torch's does, so that their stacks look like
those of real training. In its folder: ``spin`` keeps the last rank busy, ``hang`` makes it read from the fifo
``shard``, and ``end`` ends all.
"""

from __future__ import annotations

import os
from pathlib import Path

RANKS = 4

_C10D = """
def all_reduce(connection):
    connection.sendall(b"x")
    return connection.recv(1)
"""

_TRAIN = """
import os, socket, sys, threading, time

sys.path.insert(0, "site-packages")
from torch.distributed.distributed_c10d import all_reduce

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

def serve(server):
    ranks = [server.accept()[0] for _ in range(world)]
    while all(one.recv(1) for one in ranks):
        word = b"e" if os.path.exists("end") else b"g"
        for one in ranks:
            one.sendall(word)

def evaluate():
    total = 0
    while os.path.exists("spin"):
        for number in range(10000):
            total += number * number

def read_shard():
    with open("shard") as file:
        file.read()

if rank == 0:
    server = socket.socket(socket.AF_UNIX)
    server.bind("meet.new")
    server.listen(world)
    os.rename("meet.new", "meet")
    threading.Thread(target=serve, args=(server,), daemon=True).start()
while not os.path.exists("meet"):
    time.sleep(0.02)
connection = socket.socket(socket.AF_UNIX)
connection.connect("meet")
step = 0
while True:
    time.sleep(0.05)
    if rank == world - 1 and os.path.exists("spin"):
        evaluate()
    if rank == world - 1 and os.path.exists("hang"):
        read_shard()
    if all_reduce(connection) != b"g":
        break
    step += 1
    if rank == 0:
        print(f"step {step}/100000 loss {9 / step:.4f}", flush=True)
"""


def written(folder: Path) -> Path:
    """Write the program and what it imports into an empty folder; its path."""
    package = folder / "site-packages/torch/distributed"
    package.mkdir(parents=True)
    for init in (package.parent, package):
        (init / "__init__.py").touch()
    (package / "distributed_c10d.py").write_text(_C10D)
    (folder / "train.py").write_text(_TRAIN)
    os.mkfifo(folder / "shard")
    return folder / "train.py"


def let_go(folder: Path) -> None:
    """Give the rank that hangs what it reads."""
    (folder / "hang").unlink()
    (folder / "shard").write_text("data")
