"""Profiles of a rank with the real torch: what is ordered is done, and the program is as without it.

See :mod:`tests.probe.test_real_torch`; here the programs write orders into their own rings.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from cockpit.base.profile import order
from cockpit.base.progress import ring
from cockpit.node.probe import hooks, profiling
from tests.needs import require_module
from tests.probe.chosen import chosen
from tests.probe.test_real_torch import END, TRAIN, outcome

ORDER = (
    TRAIN
    + """
import struct, time
from cockpit.base.profile import order
from cockpit.base.progress import ring
NAME = "%s" % "".join(c if c.isalnum() else "-" for c in os.path.basename(os.getcwd()).lower())[-60:]
probed = "PROBED" in os.environ
path = "../../rings/0.%d.ring" % os.getpid()
def write(data, at=0):
    if probed:
        with open(path, "r+b", buffering=0) as file:
            os.pwrite(file.fileno(), data, ring.ORDER + at)
def put(first, steps=3, options=order.SHAPES, seconds=600, number=1, name=NAME):
    made = order.Order(number, first, steps, options, time.monotonic_ns() + int(seconds * 1e9), name)
    write(order.packed(made), 8)
    write(struct.pack("=Q", number))
def cancel(number=1): write(struct.pack("=Q", number), 48)
def says():
    with open(path, "rb") as file:
        return order.answer(file.read()[ring.ORDER:])
def expect(*states):
    assert not probed or says().state in states, says()
def written():
    for thread in threading.enumerate():
        if thread.name == "cockpit-profile":
            thread.join()
def steps(many):
    for _ in range(many): step()
"""
)

FINISH = "written()\n" + END.lstrip()

WITHIN = "step(); put(4); steps(4); expect('profiling')\n"
"""Two of three steps are left."""

OWN = """
from torch.profiler import ProfilerActivity, profile, schedule
def own(**facts): return profile(activities=[ProfilerActivity.CPU], **facts)
os.environ["KINETO_LOG_LEVEL"] = "6"
def saved(one):
    one.export_chrome_trace("own.json")
    named = [each["name"] for each in json.load(open("own.json"))["traceEvents"]]
    print(len(named), "mine" in named, flush=True)
    os.unlink("own.json")
import json
"""

HELD = """
held, kept = threading.Event(), torch.profiler._KinetoProfile.export_chrome_trace
torch.profiler._KinetoProfile.export_chrome_trace = lambda self, path: (held.wait(), kept(self, path))
"""
"""Its trace is written only once that is set."""

LATE = """
class Late(Exception): pass
def late(*told): raise Late
signal.signal(signal.SIGUSR1, late)
def interrupted(what, number):
    kept = getattr(torch.profiler._KinetoProfile, what)
    def once(self):
        setattr(torch.profiler._KinetoProfile, what, kept)
        signal.raise_signal(number)
        kept(self)
    setattr(torch.profiler._KinetoProfile, what, once)
def caught(many):
    for _ in range(many):
        try: step()
        except (Late, KeyboardInterrupt): pass
"""


class Program(NamedTuple):
    """A program.

    :param state: what it is answered in the end; empty: nothing
    :param why: how the reason begins
    :param steps: that are in its file; none: it has none
    :param status: its exit code, or minus the signal that ends it
    """

    text: str
    state: str
    why: str = ""
    steps: tuple[int, ...] = ()
    status: int = 0


PROGRAMS: Mapping[str, Program] = MappingProxyType(
    {
        "as ordered": Program(
            "step(); put(4); steps(9); written(); expect('written')\n"
            "print(sys.getprofile(), signal.pthread_sigmask(signal.SIG_BLOCK, ()), threading.enumerate())\n"
            "print([name for name in os.environ if 'KINETO' in name or 'CUPTI' in name])\n"
            "print('torch._inductor' in sys.modules)\n"
            "print(torch.autograd.profiler._prepare_profiler, torch.autograd.profiler._enable_profiler)\n"
            + FINISH,
            "written",
            steps=(4, 5, 6),
        ),
        "with stacks": Program("step(); put(3, 2, order.STACK)\nsteps(5)\n" + FINISH, "written", "", (3, 4)),
        "the very next step": Program("step(); put(3, 1); steps(5)\n" + FINISH, "written", "", (3,)),
        "one after the other": Program(
            "put(3, 1); steps(4); written(); expect('written')\n"
            "put(9, 2, number=2); steps(4); cancel(1); steps(5)\n" + FINISH,
            "written",
            "",
            (3, 9, 10),
        ),
        "it ends as the last step does": Program(
            "step(); put(3); steps(4)\nprint('through')", "written", "", (3, 4, 5)
        ),
        "it ends within": Program(WITHIN + "sys.exit(5)", "failed", "the program ended", status=5),
        "it ends within, with stacks": Program(
            "put(2, 3, order.STACK); steps(2); expect('profiling'); sys.exit(5)",
            "failed",
            "the program ended",
            status=5,
        ),
        "an exception within": Program(
            WITHIN + "raise ValueError('no')", "failed", "the program ended", status=1
        ),
        "a signal within": Program(
            WITHIN + "os.kill(os.getpid(), signal.SIGTERM)", "profiling", status=-signal.SIGTERM
        ),
        "os._exit within": Program(WITHIN + "os._exit(4)", "profiling", status=4),
        "a fork within": Program(
            WITHIN + "pid = os.fork()\nif pid == 0: step(); sys.exit(6)\n"
            "print(os.waitpid(pid, 0)[1]); steps(4)\n" + FINISH,
            "failed",
            "the program forked a process",
        ),
        "a fork within, with stacks": Program(
            "put(2, 3, order.STACK); steps(2); expect('profiling'); pid = os.fork()\n"
            "if pid == 0: sys.exit(6)\nprint(os.waitpid(pid, 0)[1]); steps(4)\n" + FINISH,
            "failed",
            "the program forked a process",
        ),
        "a fork afterwards": Program(
            "put(2, 2); steps(4); written(); pid = os.fork()\nif pid == 0: step(); sys.exit(6)\n"
            "print(os.waitpid(pid, 0)[1]); step()\n" + FINISH,
            "written",
            "",
            (2, 3),
        ),
        "workers of a loader, before it": Program(
            "from torch.utils.data import DataLoader\nput(4, 2); steps(2); expect('ready')\n"
            "for each in DataLoader(range(4), num_workers=2): print(each); step()\n" + FINISH,
            "written",
            "",
            (4, 5),
        ),
        "the first step has ended": Program("steps(3); put(3); steps(3)" + END, "missed", "step 4 had ended"),
        "the deadline passed before": Program(
            "put(100, seconds=60); step(); expect('ready'); write(struct.pack('=Q', 1), 32)\n"
            "put(100, seconds=-1, number=2); steps(2)" + END,
            "cancelled",
            "its deadline passed",
        ),
        "the deadline passes within": Program(
            "put(3, seconds=0.5); steps(3); expect('profiling', 'cancelled'); time.sleep(0.6)\nsteps(3)"
            + END,
            "cancelled",
            "its deadline passed",
        ),
        "cancelled before": Program(
            "put(9); steps(3); expect('ready'); cancel(); steps(9)" + END, "cancelled"
        ),
        "cancelled within": Program(WITHIN + "cancel(); steps(4)" + END, "cancelled"),
        "cancelled while it is written": Program(
            HELD + "put(2, 1); steps(3); expect('writing'); cancel(); step(); held.set()\n" + FINISH,
            "cancelled",
        ),
        "another order within": Program(
            WITHIN + "put(9, 1, number=2, name=NAME + '-2'); step(); expect('ready'); steps(5)\n" + FINISH,
            "written",
            "",
            (9,),
        ),
        "another order while it is written": Program(
            HELD + "put(2, 1); steps(3); expect('writing'); put(9, 1, number=2, name=NAME + '-2'); step()\n"
            "expect('refused'); held.set()\n" + FINISH,
            "refused",
            "the trace of its last profile is still being written",
        ),
        "its own profiler": Program(
            OWN + "put(3, 1)\nwith own() as one:\n    steps(4)\n"
            "    with torch.profiler.record_function('mine'): step()\nsaved(one)\n" + FINISH,
            "refused",
            "its program runs torch's profiler",
        ),
        "its own profiler from the first step on": Program(
            OWN + "put(4, 1); steps(2); expect('ready')\nwith own() as one:\n    steps(4)\n"
            "    with torch.profiler.record_function('mine'): step()\nsaved(one)\n" + FINISH,
            "refused",
            "its program runs torch's profiler",
        ),
        "its own profiler is about to": Program(
            OWN
            + "put(2, 1)\none = own(schedule=schedule(wait=0, warmup=4, active=1), on_trace_ready=saved)\n"
            "one.start()\nfor at in range(5):\n    with torch.profiler.record_function('mine'): step()\n"
            "    one.step()\none.stop()\n" + FINISH,
            "refused",
            "its program is about to run torch's profiler",
        ),
        "its own profiler within": Program(
            OWN + WITHIN + "with own() as one:\n"
            "    with torch.profiler.record_function('mine'): steps(4)\nsaved(one)\nsteps(2)\n" + FINISH,
            "failed",
            "its program began to run torch's profiler",
        ),
        "its own profiler, by a schedule, within": Program(
            OWN + "put(5, 4)\none = own(schedule=schedule(wait=6, warmup=1, active=2, repeat=1), "
            "on_trace_ready=saved)\none.start()\nfor at in range(12):\n"
            "    with torch.profiler.record_function('mine'): step()\n    one.step()\none.stop()\n" + FINISH,
            "failed",
            "its program began to run torch's profiler",
        ),
        "its own profiler afterwards": Program(
            OWN + "put(2, 1); steps(3); written()\nwith own() as one:\n"
            "    with torch.profiler.record_function('mine'): steps(2)\nsaved(one)\n" + FINISH,
            "written",
            "",
            (2,),
        ),
        "a Python profiler": Program(
            "import cProfile\none = cProfile.Profile(); one.enable()\nput(2); steps(2); one.disable()\n"
            "codes = {getattr(each.code, 'co_name', ''): each.callcount for each in one.getstats()}\n"
            "print('linear' in str(codes), codes['backward'])" + END,
            "refused",
            "a Python profiler runs in it",
        ),
        "a debugger": Program(
            "sys.settrace(lambda *told: None)\nput(2); steps(2)\nprint(sys.gettrace() is None)" + END,
            "refused",
            "a debugger or tracer runs in it",
        ),
        "a debugger as it is to begin": Program(
            "put(3); step(); expect('ready'); sys.settrace(lambda *told: None); steps(3)" + END,
            "refused",
            "a debugger or tracer runs in it",
        ),
        "coverage": Program(
            "if hasattr(sys, 'monitoring'):\n    sys.monitoring.use_tool_id(1, 'coverage')\nelse:\n"
            "    import types\n"
            "    sys.monitoring = types.SimpleNamespace(get_tool={1: 'coverage', 3: 'cockpit'}.get)\n"
            "put(2); steps(2)" + END,
            "refused",
            "coverage runs in it (sys.monitoring)",
        ),
        "calls that we note ourselves": Program(
            "if hasattr(sys, 'monitoring'):\n    sys.monitoring.use_tool_id(3, 'cockpit')\nelse:\n"
            "    import types\n    sys.monitoring = types.SimpleNamespace(get_tool={3: 'cockpit'}.get)\n"
            "put(2, 1); steps(3)\n" + FINISH,
            "written",
            "",
            (2,),
        ),
        "nsys": Program(
            "os.environ['NSYS_PROFILING_SESSION_ID'] = '1'\nput(2); steps(2)" + END,
            "refused",
            "nsys profiles it",
        ),
        "it trains in a thread": Program(
            "put(2)\none = threading.Thread(target=steps, args=(3,)); one.start(); one.join()" + END,
            "refused",
            "its steps end in a thread that is not the main one",
        ),
        "optimizer in backward": Program(
            "each = {one: torch.optim.SGD([one]) for one in model.parameters()}\n"
            "for one in each:\n"
            "    one.register_post_accumulate_grad_hook(\n"
            "        lambda one: (each[one].step(), each[one].zero_grad()) and None)\n"
            "put(2)\nfor _ in range(4): model(torch.ones(2, 4)).sum().backward()" + END,
            "refused",
            "its optimizer steps in the middle of the backward pass",
        ),
        "gradient accumulation": Program(
            "put(3, 2)\nfor micro in range(24):\n    model(torch.ones(2, 4)).sum().backward()\n"
            "    if micro % 4 == 3: made.step(); made.zero_grad()\n" + FINISH,
            "written",
            "",
            (3, 4),
        ),
        "compiled": Program(
            "model = torch.compile(model, backend='eager', fullgraph=True)\nput(3, 2); steps(6)\n" + FINISH,
            "written",
            "",
            (3, 4),
        ),
        "compiled with its step": Program(
            "import torch._dynamo\n"
            "def plain(): torch._dynamo.graph_break(); made.step()\n"
            "@torch.compile(backend='eager')\ndef all():\n"
            "    loss = model(torch.ones(2, 4)).sum()\n    plain()\n    return loss\n"
            "steps(2); put(4, 2); step()\nfor _ in range(3): all(); step()\nsteps(3)\n" + FINISH,
            "written",
            "",
            (4, 5),
        ),
        "engines that load an older checkpoint": Program(
            "import gc\nones = [each for each in gc.get_objects() if type(each).__name__ == 'Steps']\n"
            "engine = object()\ndef reached(*numbers):\n"
            "    for one in ones:\n        for number in numbers: one.engine(engine, number)\n"
            "put(6); reached(2, 3, 1, 2, 3, 4); expect('ready'); reached(5, 6, 2)" + END,
            "failed",
            "step 2 came after step 6",
        ),
        "engines that are ahead": Program(
            "import gc\nones = [each for each in gc.get_objects() if type(each).__name__ == 'Steps']\n"
            "engine = object()\ndef reached(*numbers):\n"
            "    for number in numbers:\n        model(torch.ones(2, 4))\n"
            "        for one in ones: one.engine(engine, number)\n"
            "put(6, 2); reached(2, 3); expect('ready'); reached(5, 6, 7)\n" + FINISH,
            "written",
            "",
            (6, 7),
        ),
        "its handler raises as the profiler begins": Program(
            LATE + "interrupted('start', signal.SIGUSR1)\nput(4); caught(3)\n"
            "expect('failed'); put(6, 1, number=2); steps(5)\n" + FINISH,
            "written",
            "",
            (6,),
        ),
        "its handler raises as the profiler stops": Program(
            LATE + "put(3, 1); step(); interrupted('stop', signal.SIGUSR1); caught(4)\n" + FINISH,
            "failed",
            "an exception of the program cut it short",
        ),
        "Ctrl-C as the profiler begins": Program(
            LATE + "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "put(3, 1); step(); interrupted('start', signal.SIGINT); caught(4)\n" + FINISH,
            "failed",
            "an exception of the program cut it short",
        ),
        "an error of torch's": Program(
            "def fails(self): raise RuntimeError('out of order')\n"
            "torch.profiler._KinetoProfile.start = fails\nput(3); steps(5)" + END,
            "failed",
            "RuntimeError: out of order",
        ),
        "no room for the file": Program(
            "put(2, 2); step(); import resource; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000)); steps(3)\n" + FINISH,
            "failed",
            "the trace could not be written: ",
        ),
        "little room for the file": Program(
            "import types\nos.statvfs = lambda path: types.SimpleNamespace(f_bavail=1000, f_frsize=4096)\n"
            "put(2, 1); steps(3)\n" + FINISH,
            "failed",
            "the trace could not be written: only 4 MB free on its disk",
        ),
        "whatever is on the page": Program(
            "import random\nrandom.seed(3)\n"
            "for _ in range(60):\n    write(random.randbytes(order.SIZE)); step()\n"
            "write(bytes(order.SIZE)); steps(20)\n" + FINISH,
            "",
        ),
        "orders that make no sense": Program(
            "odd = [(9, 0, 1, 'id'), (9, 101, 1, 'id'), (9, 1 << 63, 1, 'id'), (9, 2, 8, 'id'),\n"
            "    (9, 2, 1 << 40, 'id'), (9, 2, 1, 'UP'), (9, 2, 1, ''), (1 << 50, 2, 1, 'id')]\n"
            "for number, (first, count, options, name) in enumerate(odd, 1):\n"
            "    put(first, count, options, 600, number, name); steps(2)\n" + FINISH,
            "",
        ),
        "an order that comes in parts": Program(
            "write(struct.pack('=Q', 1)); steps(2); put(6, 1); steps(6)\n" + FINISH, "written", "", (6,)
        ),
    }
)
"""Programs, and what becomes of the profiles that they order of themselves."""


WORDS = ["MAGIC", "SHAPES", "STACK", "MEMORY"]
PLACES = ["ready", "profiling", "stopping", "writing", "written", "missed", "refused", "failed", "cancelled"]


def test_both_sides_know_one_page() -> None:
    assert [getattr(order, name) for name in WORDS] == [getattr(profiling, name) for name in WORDS]
    assert [order.STATES[getattr(profiling, name.upper())] for name in PLACES] == PLACES
    assert order.STATES[hooks.FAILED] == "failed"
    words = bytearray(order.SIZE)
    for place in range(order.WORDS):
        struct.pack_into("=Q", words, 8 * place, place if place not in (hooks.ANSWER, 17) else 0)
    answer = order.answer(bytes(words))
    read = [
        answer.began_wall_ns,
        answer.ended_wall_ns,
        answer.stop_ns,
        answer.warm_ns,
        answer.size,
        answer.last,
    ]
    names = ["BEGAN", "ENDED", "STOP_NS", "WARM_NS", "BYTES", "LAST"]
    assert read == [getattr(profiling, name) for name in names]
    assert (hooks.ORDER, hooks.SIZE) == (ring.ORDER // 8, ring.ORDER + order.SIZE)


def made(path: Path, profiles: Any) -> hooks.Ring:
    return hooks.Ring(str(path), 0, 1, lambda made: profiles)


def test_an_order_costs_a_step_nothing_else(tmp_path: Path) -> None:
    """Until there is one, and once it is over."""
    stepped: list[int] = []

    class Profiles:
        def stepped(self, step: int) -> int:
            stepped.append(step)
            return -1 if step < 4 else int(one.words[hooks.ORDER])

    one = made(tmp_path / "r", Profiles())
    one.add(1)
    one.words[hooks.ORDER] = 77
    for step in range(2, 7):
        one.add(step)
    assert stepped == [2, 3, 4]


def test_what_cannot_be_loaded_is_answered(tmp_path: Path) -> None:
    def fails(made: hooks.Ring) -> Any:
        raise FileNotFoundError("probe/python/profiling.py is gone")

    one = hooks.Ring(str(tmp_path / "r"), 0, 1, fails)
    one.words[hooks.ORDER] = 77
    one.add(1)
    one.add(2)
    data = (tmp_path / "r").read_bytes()
    answer = order.answer(data[ring.ORDER :])
    assert (answer.number, answer.state) == (77, "failed")
    assert answer.why == "FileNotFoundError: probe/python/profiling.py is gone"
    assert [step.step for step in ring.read(data).steps] == [1, 2]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Those that are looked at, in one folder."""
    executable = os.environ.get("COCKPIT_TORCH", sys.executable)
    if executable == sys.executable:
        require_module("torch")
    folder = tmp_path_factory.mktemp("profiled")
    for name in ("probe", "rings", "reports"):
        (folder / name).mkdir(mode=0o700)
    programs = {name: ("", ORDER + each.text) for name, each in chosen(PROGRAMS, request).items()}
    (folder / "programs.json").write_text(json.dumps(programs))
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run(
        [executable, "-m", "tests.probe.real", str(folder)],
        cwd=Path(__file__).parents[2],
        env=env,
        check=True,
        timeout=400,
    )
    return folder


def files(ran: Path, name: str) -> list[Path]:
    """What a program left in the folder of reports."""
    mark = "".join(each if each.isalnum() else "-" for each in name.lower())[-60:]
    return [path for path in (ran / "reports").iterdir() if path.name.split(".")[-4] in (mark, mark + "-2")]


@pytest.mark.few(17, "campaign")
@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_as_without_it(ran: Path, name: str) -> None:
    expected = PROGRAMS[name]
    found = outcome(ran, "with", name)
    assert found == outcome(ran, "without", name)
    ended = -os.WTERMSIG(found.status) or os.WEXITSTATUS(found.status)
    assert ended == expected.status, found.err
    data = (ran / "with" / name / "ring").read_bytes()
    assert ring.read(data).broken == ""
    if expected.state:
        answer = order.answer(data[ring.ORDER :])
        assert (answer.state, answer.why[: len(expected.why)]) == (expected.state, expected.why)
    elif "whatever" not in name:
        assert order.answer(data[ring.ORDER :]).number == 0
    left = files(ran, name)
    assert all(path.name.endswith(".trace.json.gz") for path in left)
    steps: set[int] = set()
    for path in left:
        assert path.stat().st_mode & 0o777 == 0o600
        trace: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
        names = {each["name"] for each in trace["traceEvents"]}
        steps |= {int(each.partition("#")[2]) for each in names if each.startswith("ProfilerStep#")}
        assert "aten::addmm" in names
    assert sorted(steps) == list(expected.steps)
