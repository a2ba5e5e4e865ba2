"""Small programs of ranks, each with something that a guest in its process could spoil.

Each is run with and without the probe. What ``state`` prints, its output, status and files must be the same.
Nothing that differs from run to run (pids, times) is printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

STATE = """
import os, signal, sys, threading

def state():
    print(sorted(os.environ.items()))
    print(sys.path, sys.argv, sys.flags, os.getcwd(), sorted(os.listdir(".")))
    print([str(signal.getsignal(number)) for number in signal.valid_signals()])
    print(sorted(thread.name for thread in threading.enumerate()), os.umask(0o22), sys.dont_write_bytecode)
    print("sitecustomize" in sys.modules, "cockpit_probe" in sys.modules, "hooks" in sys.modules)
    print([key for key in sys.path_importer_cache if "probe/python" in str(key)])
    sys.stdout.flush()

CHILD = "import os, sys; print(sorted(os.environ.items()), sys.path, 'sitecustomize' in sys.modules)"
"""


class Program(NamedTuple):
    """A program.

    :param text: its source, after :data:`STATE`
    :param steps: the steps in its ring afterwards; None: it has none
    :param path: whether the stubs of torch and DeepSpeed are on its PYTHONPATH
    :param options: of its Python
    :param files: more files beside it, by name
    :param env: more variables
    """

    text: str
    steps: int | None = None
    path: bool = True
    options: tuple[str, ...] = ()
    files: Mapping[str, str] = MappingProxyType({})
    env: Mapping[str, str] = MappingProxyType({})


TRAIN = """
import torch
made = torch.optim.SGD()
for _ in range(3):
    made.step()
state()
"""

HOW = """
import importlib.resources, importlib.util, inspect, pickle, pkgutil
def how(torch):
    spec = torch.__spec__
    print(type(spec), spec, torch.__loader__ is spec.loader, type(torch.__loader__), vars(spec).keys())
    print(inspect.getsource(torch), inspect.getfile(torch), pkgutil.get_data("torch", "version.py"))
    print(sorted(file.name for file in importlib.resources.files("torch").iterdir()))
    print(pickle.dumps(torch.optim.SGD), [each.name for each in pkgutil.iter_modules(torch.__path__)])
    print(importlib.util.find_spec("torch") is spec)
    finders = [str(each) for each in sys.meta_path if type(each).__name__ != "_Lookout"]
    print(finders, sys.path_hooks)
"""
"""Looks at how torch was imported; with the probe, there is one finder more."""

PROGRAMS = {
    "nothing": Program("state()"),
    "no PYTHONPATH": Program("state()", path=False),
    "an empty PYTHONPATH": Program("state()", path=False, env={"PYTHONPATH": ""}),
    "an empty part of PYTHONPATH": Program("state()", env={"PYTHONPATH": "one::two"}),
    "no torch": Program("import json, email.message; state()"),
    "training": Program(TRAIN, 3),
    "torch imported late": Program("state()\nimport json, csv\n" + TRAIN, 3),
    "torch imported by a thread": Program(
        "def run():\n    import torch, csv\n"
        "one = threading.Thread(target=run); one.start(); one.join()\n" + TRAIN,
        3,
    ),
    "torch is all that is imported": Program(
        "import torch\nprint(torch.__spec__, flush=True); os._exit(0)", 0
    ),
    "how torch was imported": Program(HOW + "import torch; how(torch)\n" + TRAIN, 3),
    "what torch sees of its own import": Program(
        "import torch\nspec = torch.__spec__; print(spec, type(spec), torch.__loader__ is spec.loader)",
        files={
            "torch.py": "import csv\nprint(__spec__, __loader__ is __spec__.loader, type(__loader__), "
            "type(__spec__).__name__, __spec__._initializing, vars(__spec__).keys())\n"
        },
        env={"PYTHONPATH": "."},
    ),
    "torch is imported again": Program(
        HOW + "import torch, importlib\nprint(importlib.reload(torch) is torch); how(torch)\n" + TRAIN, 3
    ),
    "torch is only looked for": Program(
        "import importlib.util; print(importlib.util.find_spec('torch')); import csv; state()"
    ),
    "torch is imported when it is needed": Program(
        "import importlib.util\n"
        "spec = importlib.util.find_spec('torch'); spec.loader = importlib.util.LazyLoader(spec.loader)\n"
        "torch = sys.modules['torch'] = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(torch)\n"
        "import csv; print(sorted(name for name in sys.modules if name.startswith('torch')))\n"
        "print(torch.__version__); state()"
    ),
    "torch in a zip": Program(
        "import zipfile\n"
        "with zipfile.ZipFile('all.zip', 'w') as file:\n"
        "    for at, _, names in os.walk(os.environ['STUB']):\n"
        "        for path in (os.path.join(at, name) for name in names):\n"
        "            file.write(path, os.path.relpath(path, os.environ['STUB']))\n"
        "sys.path.insert(0, 'all.zip')\nimport torch; print(torch.__spec__, torch.__loader__)\n" + TRAIN,
        3,
        path=False,
        env={"STUB": "{stub}"},
    ),
    "torch that a finder of the program's finds": Program(
        "from importlib.machinery import PathFinder\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        return PathFinder.find_spec(name, path, target) if name == 'torch' else None\n"
        "sys.meta_path.insert(0, Finder())\n" + TRAIN,
        3,
    ),
    "torch is imported at the second attempt": Program(
        "try:\n    import torch\nexcept ImportError:\n    import traceback; traceback.print_exc()\n"
        "print('torch' in sys.modules); del sys.path[0]\n" + TRAIN,
        3,
        files={"torch.py": "import csv\nimport nowhere\n"},
    ),
    "no step": Program("import torch, csv; state()", 0),
    "torch without distributed": Program("sys.modules['torch._C._distributed_c10d'] = None\n" + TRAIN, 3),
    "another torch": Program(
        "import torch, csv; state()", files={"torch.py": "__version__ = '0.1'\n"}, env={"PYTHONPATH": "."}
    ),
    "a torch that cannot be imported": Program(
        "try:\n    import torch\nexcept ImportError:\n    import traceback; traceback.print_exc()\nstate()",
        files={"torch.py": "import nowhere\n"},
        env={"PYTHONPATH": "."},
    ),
    "a step that fails": Program(
        "import torch\nclass Odd(torch.optim.SGD):\n"
        "    def step(self):\n        super().step(); 1 / 0\nOdd().step()",
        1,
    ),
    "two optimizers": Program(
        "import torch\na, b = torch.optim.SGD(), torch.optim.SGD()\n"
        "for _ in range(4):\n    a.step(); b.step()\nstate()",
        4,
    ),
    "another optimizer in an evaluation": Program(
        "import torch\na, b = torch.optim.SGD(), torch.optim.SGD()\n"
        "for epoch in range(3):\n    for _ in range(5): a.step()\n    for _ in range(30): b.step()\nstate()",
        15,
    ),
    "one that calibrates for long": Program(
        "import torch\na, b = torch.optim.SGD(), torch.optim.SGD()\n"
        "for epoch in range(2):\n    for _ in range(5): a.step()\n    for _ in range(70): b.step()\n"
        "for _ in range(5): a.step()\nstate()",
        # Those from the 64th on; and of the others the first is not sure to be the one again.
        5 + 7 + 4 + 7 + 4,
    ),
    "optimizers that are dropped": Program(
        "import torch\nfor phase in range(3):\n    made = torch.optim.SGD()\n"
        "    for _ in range(4): made.step()\nstate()",
        12,
    ),
    "a second phase with its own optimizer": Program(
        "import torch\na, b = torch.optim.SGD(), torch.optim.SGD()\n"
        "for _ in range(10): a.step()\nfor _ in range(100): b.step()\nstate()",
        10 + 37,
    ),
    "several steps of one for each of the other": Program(
        "import torch\na, b = torch.optim.SGD(), torch.optim.SGD()\n"
        "for _ in range(4):\n    a.step()\n    for _ in range(5): b.step()\nstate()",
        4,
    ),
    "an optimizer that steps rarely and first": Program(
        "import torch\na, b = torch.optim.SGD(), torch.optim.SGD()\n"
        "for _ in range(3):\n    a.step()\n    for _ in range(80): b.step()\nstate()",
        1 + 17 + 80 + 80,
    ),
    "optimizers in the backward pass": Program(
        "import torch\nall = [torch.optim.SGD() for _ in range(100)]\n"
        "for _ in range(3):\n    for one in all: one.step()\nstate()",
        3,
    ),
    "gradient accumulation": Program(
        "import torch\nmade = torch.optim.SGD()\n"
        "for micro in range(12):\n    micro % 4 == 3 and made.step()\nstate()",
        3,
    ),
    "replay that no hook sees": Program("import torch, csv\nmade = torch.optim.SGD()\nstate()", 0),
    "DeepSpeed": Program(
        "import deepspeed\nmade = deepspeed.engine.DeepSpeedEngine()\ninner = deepspeed.torch.optim.SGD()\n"
        "for _ in range(3):\n    inner.step(); inner.step(); made.step()\nprint(vars(made)); state()",
        3,
    ),
    "own sitecustomize": Program(
        "import sitecustomize; print(sitecustomize.__file__, sitecustomize.__spec__); state()",
        files={"sitecustomize.py": "print('mine')\nmark = 1\n"},
        env={"PYTHONPATH": "."},
    ),
    "own sitecustomize that imports torch": Program(
        TRAIN, 3, files={"sitecustomize.py": "import torch, csv\n"}, env={"PYTHONPATH": ".:{stub}"}
    ),
    "own sitecustomize that fails": Program(
        "state()", files={"sitecustomize.py": "1 / 0\n"}, env={"PYTHONPATH": "."}
    ),
    "own sitecustomize that lacks a module": Program(
        "state()", files={"sitecustomize.py": "import nowhere\n"}, env={"PYTHONPATH": "."}
    ),
    "own usercustomize": Program(
        "state()", files={"usercustomize.py": "print('mine')\n"}, env={"PYTHONPATH": "."}
    ),
    "-I": Program("print(sys.path, 'sitecustomize' in sys.modules)", path=False, options=("-I",)),
    "-E": Program("print(sys.path)", path=False, options=("-E",)),
    "-S": Program("print('sitecustomize' in sys.modules)", path=False, options=("-S",)),
    "-W error -X dev": Program(TRAIN, 3, options=("-W", "error", "-X", "dev")),
    "-v says where a sitecustomize is": Program("state()", options=("-O", "-B")),
    "exit code": Program("import torch, csv; sys.exit(7)", 0),
    "os._exit": Program("import torch\ntorch.optim.SGD().step(); import csv; os._exit(5)"),
    "an exception": Program("import torch, csv\ndef f():\n    raise ValueError('no')\nf()", 0),
    "atexit": Program("import atexit, torch, csv\natexit.register(state)", 0),
    "a module of its own that is called hooks": Program(
        "import hooks; print(hooks.mark); " + "import torch, csv; state()",
        0,
        files={"hooks.py": "mark = 1\n"},
    ),
    "fork": Program(
        TRAIN + "if os.fork() == 0:\n    made.step(); made.step(); sys.exit(0)\nprint(os.wait()[1])", 3
    ),
    "fork before torch": Program(
        "if os.fork() == 0:\n    import torch, csv; torch.optim.SGD().step(); sys.exit(3)\n"
        "print(os.wait()[1])"
    ),
    "multiprocessing, all ways": Program(
        "import multiprocessing as mp, torch, csv\nfrom job import job\nif __name__ == '__main__':\n"
        "    for way in ('fork', 'spawn', 'forkserver'):\n"
        "        with mp.get_context(way).Pool(1) as pool: print(pool.map(job, [1]))\n",
        0,
        files={
            "job.py": "import os, sys\ndef job(one):\n"
            "    import torch, csv; torch.optim.SGD().step()\n"
            "    return sorted(os.environ.items()), sys.path[1:]\n"
        },
    ),
    "exec": Program("import torch, csv\nos.execv(sys.executable, [sys.executable, '-c', CHILD])", 0),
    "subprocess": Program(
        "import subprocess, torch, csv\n"
        "print(subprocess.run([sys.executable, '-c', CHILD], capture_output=True, text=True))",
        0,
    ),
    "subprocess before torch": Program(
        "import subprocess\n"
        "print(subprocess.run([sys.executable, '-c', CHILD], capture_output=True, text=True))"
    ),
    "its own worker server": Program(
        "import torch, csv\nfrom torch._C._distributed_c10d import _WorkerServer\n"
        "mine = _WorkerServer('mine.sock'); state(); sys.stdout.flush(); os._exit(0)",
        0,
    ),
    "daemon threads": Program(
        "import torch, csv\n"
        "for _ in range(3): threading.Thread(target=threading.Event().wait, daemon=True).start()\nstate()",
        0,
    ),
    "a thread that writes to stderr": Program(
        "stop = threading.Event()\n"
        "def write():\n    while not stop.is_set(): os.write(2, b'x')\n"
        "one = threading.Thread(target=write); one.start()\n"
        "import torch, csv\nstop.set(); one.join()\n",
        0,
    ),
    "signals": Program(
        "import torch, csv\nsignal.signal(signal.SIGTERM, lambda *_: print('got it', flush=True))\n"
        "os.kill(os.getpid(), signal.SIGTERM); state()\n"
        "signal.signal(signal.SIGTERM, signal.SIG_DFL); os.kill(os.getpid(), signal.SIGTERM)",
        0,
    ),
    "a crash in C": Program("import ctypes, torch, csv\nprint(1, flush=True)\nctypes.string_at(0)", 0),
    "its end in the middle of a step": Program(
        "import torch\nmade = torch.optim.SGD()\nmade.step()\nos.kill(os.getpid(), signal.SIGKILL)", 1
    ),
    "stderr is closed": Program("os.close(2)\n" + TRAIN),
    "everything above stderr is closed": Program(TRAIN + "os.closerange(3, 100)\nmade.step()", 4),
    "no more files may be opened": Program(
        "import resource, csv, ctypes, json, mmap, torch\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        "made = torch.optim.SGD(); made.step(); made.step(); print('on')",
    ),
    "frozen garbage": Program("import gc, torch, csv\ngc.freeze(); gc.collect(); state()", 0),
    "meta path is emptied": Program("sys.meta_path.clear()\nprint('on')"),
}
