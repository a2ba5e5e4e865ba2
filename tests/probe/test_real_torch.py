"""The probe in a real torch: its server, its steps, and what it must not change.

``COCKPIT_TORCH`` is a Python that has another torch than this one, for trials by hand.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from cockpit.base.progress import ring
from tests.needs import require_module

pytestmark = pytest.mark.slow

TRAIN = """
import os, signal, sys, threading, torch
model = torch.nn.Linear(4, 4)
made = torch.optim.AdamW(model.parameters())
def step(of=None):
    model(torch.ones(2, 4)).sum().backward()
    (of or made).step()
    made.zero_grad()
"""

ASK = """
import glob, socket
def ask(what, path=None):
    if path is None:
        if "PROBED" not in os.environ:
            return None
        (path,) = glob.glob("../../probe/0.%d.sock" % os.getpid())
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(30)
        asking.connect(path)
        head = b"POST /handler/%s HTTP/1.0\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n"
        asking.sendall(head % what)
        said = b""
        while more := asking.recv(1 << 16):
            said += more
    return said.partition(b"\\r\\n\\r\\n")[2]
"""

# Freeing what torch has made takes a copy of a process half a second: only some end that way.
END = "\nsys.stdout.flush()\nos._exit(0)\n"

PROGRAMS = {
    "training": (TRAIN + "for _ in range(3): step()\nprint(made.state_dict()['state'][0]['step'])", 3),
    "two optimizers": (
        TRAIN + "other = torch.optim.SGD(model.parameters())\nfor _ in range(3): step(); step(other)" + END,
        3,
    ),
    "optimizer in backward": (
        TRAIN + "each = {one: torch.optim.SGD([one]) for one in model.parameters()}\n"
        "for one in each:\n"
        "    one.register_post_accumulate_grad_hook(\n"
        "        lambda one: (each[one].step(), each[one].zero_grad()) and None)\n"
        "for _ in range(3): model(torch.ones(2, 4)).sum().backward()" + END,
        3,
    ),
    "compiled": (
        TRAIN
        + "model = torch.compile(model, backend='eager', fullgraph=True)\nfor _ in range(3): step()"
        + END,
        3,
    ),
    "fork while the server runs": (
        TRAIN + ASK + "step()\n"
        "if os.fork() == 0:\n    step(); sys.exit(0)\n"
        "print(os.wait()[1])\n"
        "assert ask(b'ping') in (None, b'pong'), ask(b'ping')\nstep()",
        2,
    ),
    "workers of a loader": (
        TRAIN + "from torch.utils.data import DataLoader\n"
        "print(list(DataLoader(range(4), num_workers=2)))\nstep()" + END,
        1,
    ),
    "its own server": (
        TRAIN + ASK + "from torch._C._distributed_c10d import _WorkerServer\n"
        "mine = _WorkerServer('mine.sock')\nstep()\n"
        # Only one that serves can be shut down: before, torch 2.13 joins its thread for ever.
        "assert ask(b'ping', 'mine.sock') == b'pong'\nmine.shutdown()" + END,
        1,
    ),
    "collectives": (
        TRAIN + ASK + "import json, torch.distributed as dist\n"
        "store = 'file://' + os.getcwd() + '/store'\n"
        "dist.init_process_group('gloo', init_method=store, rank=0, world_size=1)\n"
        "for _ in range(2): dist.all_reduce(torch.ones(3)); step()\n"
        "said = ask(b'fr_trace_json')\n"
        "older = said and said.startswith(b'Handler fr_trace_json not found')\n"
        "assert older or said is None or len(json.loads(said)['entries']) == 2, said\n"
        "dist.destroy_process_group()" + END,
        2,
    ),
    "an exception": (TRAIN + "step(); raise ValueError('no')", 1),
    "SIGTERM": (TRAIN + "step(); os.kill(os.getpid(), signal.SIGTERM)", 1),
    "a crash in C": (TRAIN + "step(); import ctypes; ctypes.string_at(0)", 1),
    "os._exit": (TRAIN + "step(); os._exit(3)", 1),
    "waits for a signal that it blocks": (
        TRAIN + ASK + "ask(b'ping')  # all its threads are there then\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\n"
        "print(signal.sigtimedwait({signal.SIGUSR1}, 60).si_signo)\n"
        "print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))\n"
        "step()" + END,
        1,
    ),
    "everything above stderr is closed": (
        TRAIN + "from cockpit.node.recorder.server import ServerError, Sockets, check_owner, handlers\n"
        "def asked():\n"
        "    servers = Sockets('../../probe').by_rank()[0] if 'PROBED' in os.environ else ()\n"
        "    for mine in servers:\n"
        "        if mine.pid == os.getpid():\n"
        "            check_owner(mine)\n"
        "            assert 'ping' in handlers(mine.path, 30)\n"
        # A server that is not yet back at accept ends the process then: docs/probe.md.
        "def rests(task):\n"
        "    with open('/proc/self/task/%s/stat' % task) as file:\n"
        "        return file.read().rpartition(')')[2].split()[0] == 'S'\n"
        "step(); asked()\n"
        "while not all(rests(task) for task in os.listdir('/proc/self/task') if int(task) != os.getpid()):\n"
        "    pass\n"
        "os.closerange(3, 256)\n"
        "try:\n    asked()\n"
        "except ServerError as error:\n"
        "    assert str(error) == 'the program closed the socket of its probe', error\n"
        "else:\n    assert 'PROBED' not in os.environ\n"
        "step()" + END,
        2,
    ),
    "no room for threads": (TRAIN + "step()" + END, 1),
    "daemon threads": (
        TRAIN + "threading.Thread(target=threading.Event().wait, daemon=True).start(); step(); sys.exit(4)",
        1,
    ),
}
"""Programs, and the steps that each makes."""

BEFORE = {
    "no room for threads": "import resource\n"
    "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
    "resource.setrlimit(resource.RLIMIT_AS, (used + (40 << 20),) * 2)"
}
"""What some do before the hooks arm."""


class Ran(NamedTuple):
    """How a program went."""

    status: int
    out: str
    err: str
    files: list[str]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of them, in one folder."""
    executable = os.environ.get("COCKPIT_TORCH", sys.executable)
    if executable == sys.executable:
        require_module("torch")
    folder = tmp_path_factory.mktemp("real")
    for name in ("probe", "rings"):
        (folder / name).mkdir(mode=0o700)
    programs = {name: (BEFORE.get(name, ""), text) for name, (text, _) in PROGRAMS.items()}
    (folder / "programs.json").write_text(json.dumps(programs))
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run(
        [executable, "-m", "tests.probe.real", str(folder)],
        cwd=Path(__file__).parents[2],
        env=env,
        check=True,
        timeout=250,
    )
    return folder


def outcome(folder: Path, probed: str, name: str) -> Ran:
    """What can be seen of a program from outside, without its pid, times and the name of this folder."""
    work = folder / probed / name
    statuses = json.loads((folder / "statuses.json").read_text())
    files = sorted(path.name for path in work.iterdir() if path.name not in ("told", "ring"))
    out, err = ((work / each).read_text() for each in ("out", "err"))
    # torch and warnings begin a line with time, pid and place.
    err = re.sub(r"(?m)^\[?[WEI]\d{4} [\d:.]+ (?:\d+ )?", "", err)
    err = re.sub(r"\(pid=\d+\)", "", err)  # in a warning of Python 3.12
    return Ran(statuses[f"{probed} {name}"], out, err, files)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_as_without_it(ran: Path, name: str) -> None:
    assert outcome(ran, "with", name) == outcome(ran, "without", name)
    told = json.loads((ran / "with" / name / "told").read_text())
    assert told["steps"] == ""
    lacks = "no room for its threads: the process may map" if name in BEFORE else ""
    assert told["server"][: len(lacks) or None] == lacks
    version = tuple(int(part) for part in told["torch"].split(".")[:2])
    assert ("fr_trace_json" in told["handlers"]) == (version >= (2, 10))
    found = ring.read((ran / "with" / name / "ring").read_bytes())
    assert found.broken == ""
    assert told["rendezvous"] == ""
    assert (0 < found.rendezvous_ns <= found.group_ns) == (name == "collectives")
    assert (found.rendezvous_ns, found.group_ns) == (0, 0) or name == "collectives"
    assert [step.step for step in found.steps] == list(range(1, PROGRAMS[name][1] + 1))


def test_they_ended_as_they_were_meant_to(ran: Path) -> None:
    ends = {name: outcome(ran, "with", name).status for name in PROGRAMS}
    odd = {name: os.WTERMSIG(end) or os.WEXITSTATUS(end) for name, end in ends.items() if end}
    assert odd == {
        "an exception": 1,
        "SIGTERM": signal.SIGTERM,
        "a crash in C": signal.SIGSEGV,
        "os._exit": 3,
        "daemon threads": 4,
    }
