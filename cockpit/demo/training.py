"""What a demo trains with: the best example that some Python here has the modules for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import cockpit
from cockpit.errors import CockpitError

FAULT_STEP = 20
"""The step at which a fault comes, once it is known how long one takes; half of them if that is sooner."""

FAULTS = ("none", "hang", "crash", "slow")

_SCRIPTS = {"deepspeed": "train_deepspeed.py", "torchrun": "train_torch.py", "command": "train_plain.py"}
"""Example by launcher, the best first."""

LAUNCHERS = tuple(_SCRIPTS)
"""The launchers that there is an example for."""

_NEEDS = {"deepspeed": ("deepspeed", "torch"), "torchrun": ("torch",), "command": ()}

_PROBE = (
    "import importlib.util, json; "
    "print(json.dumps([n for n in ('deepspeed', 'torch') if importlib.util.find_spec(n)]))"
)


@dataclass(frozen=True)
class Training:
    """An example and how to start it.

    :param python: path of the ranks' Python
    :param why: one sentence that says what it is, and why it is not a better one
    """

    launcher: str
    python: str
    why: str

    @property
    def script(self) -> str:
        """File name of the example."""
        return _SCRIPTS[self.launcher]


def examples() -> Path:
    """The folder of the example scripts: in an installed cockpit, or in a checkout."""
    package = Path(cockpit.__file__).parent
    installed = package / "examples"
    return installed if installed.is_dir() else package.parent / "examples"


def copy_examples(folder: Path) -> None:
    """Copy the scripts into a new folder: what Python leaves beside them is to go too."""
    folder.mkdir(0o700)
    for source in examples().glob("*.py"):
        shutil.copyfile(source, folder / source.name)


def pythons(environ: Mapping[str, str]) -> list[str]:
    """Pythons that a person may have prepared for training, cockpit's own first."""
    active = [environ[name] + "/bin/python" for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environ.get(name)]
    found = [sys.executable, *active, shutil.which("python3", path=environ.get("PATH")) or ""]
    return [path for path in dict.fromkeys(found) if os.access(path, os.X_OK)]


def choose(launcher: str, candidates: Iterable[str]) -> Training:
    """The best example that one of the Pythons can run.

    :param launcher: ``auto``, or the launcher to take
    :raises CockpitError: no Python has what that launcher needs
    """
    have = {python: _modules(python) for python in candidates}
    for name in _SCRIPTS if launcher == "auto" else (launcher,):
        for python, modules in have.items():
            if modules.issuperset(_NEEDS[name]):
                return Training(name, python, _why(name, launcher, python, have))
    raise CockpitError(
        f"none of these has {' and '.join(_NEEDS[launcher])}: {', '.join(have)}",
        where=f"--launcher {launcher}",
        hint="activate an environment that has it, or leave --launcher out",
    )


def flags(chosen: Training, fault: str, steps: int, step_time: float, world: int) -> list[str]:
    """Arguments of the example: steps, seconds that one takes, a fault on the last of ``world`` ranks."""
    words = ["--steps", str(steps), "--step-time", f"{step_time:g}"]
    if chosen.launcher == "command":
        words.append("--together")  # as ranks that train do
    if fault != "none":
        words += [f"--{fault}", f"{world - 1}@{min(FAULT_STEP, max(1, steps // 2))}"]
    return words


def _modules(python: str) -> set[str]:
    """Which of the modules that matter a Python has, without importing them."""
    done = subprocess.run(
        [python, "-c", _PROBE], cwd="/", stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    try:
        return set(json.loads(done.stdout))
    except ValueError:
        return set()  # a Python that does not even start has nothing


def _why(name: str, wanted: str, python: str, have: Mapping[str, set[str]]) -> str:
    what = {
        "deepspeed": f"DeepSpeed of {python}",
        "torchrun": f"plain torch of {python} under torchrun",
        "command": f"no real training: {_SCRIPTS['command']} simulates it",
    }[name]
    if wanted != "auto" or name == "deepspeed":
        return what
    lacking = "deepspeed" if name == "torchrun" else "torch"
    return f"{what}, because {' and '.join(have)} {'has' if len(have) == 1 else 'have'} no {lacking}"
