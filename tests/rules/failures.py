"""Failures that are made to happen, each by a real program of two ranks, and the rule that knows it.

A program is the body of a script, run after :data:`PRELUDE`; rank 1 fails, unless it says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

PRELUDE = """
import os, signal, socket, subprocess, sys, time
RANK = int(os.environ.get("RANK", "0"))

def steps(count=3):
    for at in range(count):
        print(f"step {at + 1}/100 loss {1 / (at + 1):.3f}", flush=True)
        time.sleep(0.1)

def joined(port=None, **more):
    import torch, torch.distributed as dist
    if port is not None:
        os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", **more)
    return torch, dist

def others():
    if RANK != 1:
        time.sleep(0.5)
        os._exit(0)
"""


@dataclass(frozen=True)
class Failure:
    """One way to fail.

    :param rule: what explains it; empty: no rule knows it, and nothing may be said
    :param alone: the rule for a console, which does not have what is recorded; empty: the same
    """

    body: str
    rule: str = ""
    alone: str = ""

    @property
    def torch(self) -> bool:
        """Whether its program imports torch."""
        return "torch" in self.body or "joined(" in self.body


FAILURES = {
    "half a checkpoint": Failure(
        """
steps(); others()
import torch
torch.save({"weights": torch.zeros(1000)}, "rank1.pt")
with open("rank1.pt", "r+b") as file:
    file.truncate(1500)
torch.load("rank1.pt")
""",
        "checkpoint-damaged",
    ),
    "not a checkpoint": Failure(
        """
steps(); others()
import torch
with open("rank1.pt", "wb") as file:
    file.write(b"<html>404</html>")
torch.load("rank1.pt")
""",
        "checkpoint-damaged",
    ),
    "a loader's worker is killed": Failure(
        """
steps(); others()
import torch
class Data(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, at):
        os.kill(os.getpid(), signal.SIGKILL)
for x in torch.utils.data.DataLoader(Data(), num_workers=1):
    pass
""",
        "loader-killed",
    ),
    "the port is taken": Failure(
        """
taken = socket.create_server(("127.0.0.1", 0))
if RANK != 0:
    time.sleep(1); os._exit(0)
joined(taken.getsockname()[1])
""",
        "port-in-use",
    ),
    "nobody listens": Failure(
        """
others()
from datetime import timedelta
free = socket.create_server(("127.0.0.1", 0)); port = free.getsockname()[1]; free.close()
os.environ["MASTER_ADDR"] = "127.0.0.1"
joined(port, timeout=timedelta(seconds=2))
""",
        "master-loopback-address",
    ),
    "no such interface": Failure(
        """
os.environ["GLOO_SOCKET_IFNAME"] = "ib7"
others()
import torch.distributed as dist
store = dist.HashStore()
dist.init_process_group("gloo", store=store, rank=0, world_size=1)
""",
        "gloo-no-interface",
    ),
    "no room": Failure(
        """
steps(); others()
with open("/dev/full", "wb") as file:
    file.write(b"x" * 100_000)
""",
        "disk-full",
    ),
    "too many files": Failure(
        """
steps(); others()
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
some = [open("/dev/null") for _ in range(100)]
""",
        "open-files",
    ),
    "no memory": Failure(
        """
steps(); others()
import resource
import torch
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
x = [torch.zeros(1 << 30) for _ in range(8)]
""",
        "host-allocation-failed",
    ),
    "killed from outside": Failure(
        """
steps(); others()
os.kill(os.getpid(), signal.SIGKILL)
""",
        "sigkill-silent",
        alone="sigkill-unknown",
    ),
    "a crash in native code": Failure(
        """
steps(); others()
import ctypes, faulthandler
faulthandler.enable()
ctypes.string_at(0)
""",
        "segfault",
    ),
    "a bus error": Failure(
        """
steps(); others()
import mmap
with open("mapped", "w+b") as file:
    file.truncate(1 << 20)
    pages = mmap.mmap(file.fileno(), 1 << 20)
    file.truncate(0)
    pages[4096] = 1
""",
        "sigbus-silent",
    ),
    "no ninja": Failure(
        """
steps(); others()
os.environ["PATH"] = "/nowhere"
import torch.utils.cpp_extension as cpp
cpp.load_inline("nothing", "int f() { return 1; }", functions=["f"])
""",
        "ninja-missing",
    ),
    "no CUDA toolkit": Failure(
        """
steps(); others()
import torch.utils.cpp_extension as cpp
cpp.CUDAExtension("op", ["op.cu"])
""",
        "cuda-home-missing",
    ),
    "an extension of another torch": Failure(
        """
steps(); others()
with open("ext.c", "w") as file:
    file.write("void _ZN3c1019no_such_thing_in_itEv(void);")
    file.write("void *PyInit_ext(void) { _ZN3c1019no_such_thing_in_itEv(); return 0; }")
subprocess.run(["gcc", "-shared", "-fPIC", "-o", "ext.so", "ext.c"], check=True)
sys.path.insert(0, ".")
import ext
""",
        "other-torch",
    ),
    "an option that it does not know": Failure(
        """
steps(); others()
import argparse
argparse.ArgumentParser().parse_args(["--local_rank=1"])
""",
        "local-rank-argument",
    ),
    "torch without CUDA": Failure(
        """
steps(); others()
import torch
torch.zeros(1).cuda()
""",
        "torch-without-cuda",
    ),
    "collectives that differ": Failure(
        """
import torch.distributed as dist
dist.set_debug_level(dist.DebugLevel.DETAIL)  # as TORCH_DISTRIBUTED_DEBUG=DETAIL
torch, dist = joined()
x = torch.zeros(3 + RANK)
dist.all_reduce(x)
""",
        "collective-mismatch",
    ),
    "the other rank is gone": Failure(
        """
torch, dist = joined()
if RANK == 1:
    os._exit(3)
dist.all_reduce(torch.zeros(3))
""",
    ),
    "no internet": Failure(
        """
steps(); others()
os.environ["HF_HUB_OFFLINE"] = "1"
from huggingface_hub import snapshot_download
snapshot_download("somebody/a-model", cache_dir="cache")
""",
        "no-internet",
    ),
    "a module that is not there": Failure(
        """
steps(); others()
import no_such_module_here
""",
    ),
    "no permission": Failure(
        """
steps(); others()
os.mkdir("kept", 0o500)
if os.geteuid() == 0:
    raise PermissionError(13, "Permission denied", "kept/rank1.pt")
open("kept/rank1.pt", "wb")
""",
    ),
    "a bug of its own": Failure(
        """
steps(); others()
{}["a key"]
""",
    ),
}

KILLED_FOR_MEMORY = {
    "more memory than its cgroup has": Failure(
        """
steps(); others()
held = []
while True:
    held.append(bytearray(b"x") * (4 << 20))
""",
        "sigkill-oom",
    ),
    "a loader's worker takes more memory than its cgroup has": Failure(
        """
steps(); others()
import torch
class Data(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, at):
        held = []
        while True:
            held.append(bytearray(b"x") * (4 << 20))
for x in torch.utils.data.DataLoader(Data(), num_workers=1):
    pass
""",
        "loader-killed",
    ),
}
"""In a cgroup of little memory the kernel's OOM killer ends these."""

WITHOUT_SHARED_MEMORY = {
    "a batch does not fit into /dev/shm": Failure(
        """
steps(); others()
import torch
class Data(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, at): return torch.zeros(4 << 20)
for x in torch.utils.data.DataLoader(Data(), num_workers=1):
    pass
""",
        "shm-full",
    ),
    "a loader's worker writes more than /dev/shm has": Failure(
        """
steps(); others()
import torch
from multiprocessing import shared_memory
class Data(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, at):
        shared = shared_memory.SharedMemory(create=True, size=16 << 20)
        shared.buf[:] = bytes(16 << 20)
for x in torch.utils.data.DataLoader(Data(), num_workers=1):
    pass
""",
        "loader-shm-full",
    ),
    "a rank writes more than /dev/shm has": Failure(
        """
steps(); others()
from multiprocessing import shared_memory
shared = shared_memory.SharedMemory(create=True, size=16 << 20)
shared.buf[:] = bytes(16 << 20)
""",
        "sigbus-silent",
    ),
}
"""With a /dev/shm of 4 MiB."""

BUILDS = """
import threading
steps()
os.environ["TORCH_EXTENSIONS_DIR"] = os.path.abspath("extensions")
import torch.utils.cpp_extension as cpp
def interrupt():
    main = threading.main_thread().ident
    while not sys._current_frames()[main].f_code.co_filename.endswith("file_baton.py"):
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGINT)
if "INTERRUPTED" in os.environ:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may have it ignored
    threading.Thread(target=interrupt).start()
cpp.load_inline("op", "int f() { return 1; }", functions=["f"])
"""
"""Where a build of it was killed, both ranks wait for its lock for ever, or until they are interrupted."""
