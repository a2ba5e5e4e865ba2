"""Programs of ranks behave with the probe as they do without it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cockpit.base import record
from cockpit.base.gate import read
from cockpit.base.progress import ring
from cockpit.node.run import become, wrapper
from tests.needs import lacking, require
from tests.probe.programs import PROGRAMS, STATE, Program
from tests.pythons import VERSIONS, python
from tests.waiting import PATIENCE_S

STUB = Path(__file__).parent / "stub"
PROBE = Path(wrapper.__file__).parents[1] / "probe"


class Outcome(NamedTuple):
    """All that can be seen of a program from outside."""

    code: int
    out: str
    err: str
    files: list[str]


class Place:
    """A run folder as far as the probe knows it, and the folder of its rings."""

    def __init__(self, folder: Path) -> None:
        self.run, self.rings = folder / "run", folder / "rings"
        (self.run / record.PROBE_PYTHON).mkdir(parents=True)
        self.rings.mkdir()
        for name in record.PROBE_SOURCES:
            shutil.copy(PROBE / name, self.run / record.PROBE_PYTHON / name)

    def environment(self, environ: dict[str, str]) -> dict[str, str]:
        """What the wrapper makes of an environment for rank 3."""
        ours = {
            record.ENV_DIR: str(self.run),
            record.ENV_PROBE: "auto",
            record.ENV_RINGS: str(self.rings),
        }
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "environ", {**environ, **ours})
            become._probe(3)
            return dict(os.environ)

    def told(self) -> list[dict[str, Any]]:
        """What probes say about themselves."""
        return [json.loads(path.read_text()) for path in (self.run / "probe").glob("*.json")]

    def read(self) -> list[ring.Ring]:
        """All rings."""
        return [ring.read(path.read_bytes()) for path in self.rings.iterdir()]


def outcome(program: Program, folder: Path, place: Place | None, executable: str = sys.executable) -> Outcome:
    """Run it, in the same folder with and without."""
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    for name, text in {"main.py": STATE + program.text, **program.files}.items():
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text(text)
    paths = {"PYTHONPATH": str(STUB)} if program.path else {}
    given = {name: value.format(stub=STUB) for name, value in program.env.items()}
    environ = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "COCKPIT_DIR": str(folder / "run")}
    environ |= {**paths, **given}
    words = [executable, *program.options, "main.py"]
    env = place.environment(environ) if place else environ
    done = subprocess.run(
        words, cwd=work, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    files = sorted(str(path.relative_to(work)) for path in work.rglob("*"))
    out, err = (re.sub(r"0x[0-9a-f]{6,}", "0x", text) for text in (done.stdout, done.stderr))
    return Outcome(done.returncode, out, err, files)


@pytest.mark.few(20)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_as_without_it(tmp_path: Path, name: str) -> None:
    program = PROGRAMS[name]
    place = Place(tmp_path)
    without = outcome(program, tmp_path, None)
    probed = outcome(program, tmp_path, place)
    if name == "a thread that writes to stderr":
        without, probed = (one._replace(err=one.err.strip("x")) for one in (without, probed))
    assert probed == without
    if program.steps is not None:
        (found,) = place.read()
        assert (found.rank, found.broken, len(found.steps)) == (3, "", program.steps)
        (told,) = place.told()
        assert told["steps"] == ""
        if name != "torch without distributed":
            assert (told["server"], told["handlers"]) == ("", ["fr_trace_json", "ping"])


@pytest.mark.parametrize("said", [None, "", "auto", "auto 3 0", "no such thing"])
def test_its_path_alone_changes_nothing(tmp_path: Path, said: str | None) -> None:
    """A rank passes PYTHONPATH on, to a run that it starts, or by ssh; two probes are there then."""
    inner, outer = Place(tmp_path / "inner"), Place(tmp_path / "outer")
    path = ":".join(str(place.run / record.PROBE_PYTHON) for place in (inner, outer))
    env = {} if said is None else {"COCKPIT_PROBE": said}
    without = outcome(PROGRAMS["no PYTHONPATH"], tmp_path, None)
    there = Program("state()", path=False, env={"PYTHONPATH": path, **env})
    assert outcome(there, tmp_path, None) == without


def no_rings(place: Place) -> None:
    """The memory of the rings is gone."""
    shutil.rmtree(place.rings)


def unreadable(place: Place) -> None:
    """What the probe wants to write is there already."""
    place.rings.rmdir()
    place.rings.touch()
    (place.run / "probe").chmod(0o500)


def no_hooks(place: Place) -> None:
    """Half of it is there."""
    (place.run / record.PROBE_PYTHON / "hooks.py").write_text("nonsense (")


@pytest.mark.parametrize("harm", [no_rings, unreadable, no_hooks])
def test_what_becomes_of_its_folders_is_nothing_to_the_program(
    tmp_path: Path, harm: Callable[[Place], None]
) -> None:
    place = Place(tmp_path)
    program = PROGRAMS["training"]
    without = outcome(program, tmp_path, None)
    environment = place.environment

    def harmed(environ: dict[str, str]) -> dict[str, str]:
        found = environment(environ)
        harm(place)
        return found

    place.environment = harmed  # type: ignore[method-assign]
    assert outcome(program, tmp_path, place) == without
    if harm is no_rings:
        (told,) = place.told()
        assert told["steps"].startswith("FileNotFoundError")
        assert told["server"] == ""
    if harm is no_hooks:
        (said,) = (read(ring.ProbeReport, each) for each in place.told())
        assert said.rank == 3
        assert said.steps == said.server
        assert said.steps.startswith("the probe failed: SyntaxError: ")


def test_a_server_that_cannot_begin_ends_no_rank(tmp_path: Path) -> None:
    place = Place(tmp_path)
    program = PROGRAMS["training"]._replace(env={"STUB_FULL": "1"})
    assert outcome(program, tmp_path, place) == outcome(program, tmp_path, None)
    (told,) = place.told()
    assert told["server"].startswith("RuntimeError: Error binding to /proc/self/fd/")


@pytest.mark.parametrize("broken", ["ctypes", "mmap"])
def test_a_python_that_lacks_what_the_hooks_need(tmp_path: Path, broken: str) -> None:
    """Its torch would fail, too: but at its own import, and with its own words."""
    text = f"sys.modules[{broken!r}] = None\nimport torch, csv\nprint('on')"
    program = Program(text)
    place = Place(tmp_path)
    assert outcome(program, tmp_path, place) == outcome(program, tmp_path, None)
    (told,) = place.told()
    assert told["steps"].startswith("the probe failed: ModuleNotFoundError: import of ")


LATE = """
class Late(Exception):
    pass
def late(*_):
    raise Late
signal.signal(signal.SIGALRM, late)
for _ in range(2):
    try:
        import torch, csv
    except Late:
        print("late")
"""


def test_an_exception_of_the_program_while_the_hooks_arm_is_its_own(tmp_path: Path) -> None:
    place = Place(tmp_path)
    program = Program(LATE + PROGRAMS["training"].text, env={"STUB_SIGNAL": str(int(signal.SIGALRM))})
    ran = outcome(program, tmp_path, place)
    assert (ran.code, ran.err, ran.out.partition("\n")[0]) == (0, "", "late")
    (told,) = place.told()
    assert (told["steps"], told["server"], told["handlers"]) == ("", "", ["fr_trace_json", "ping"])
    (found,) = place.read()
    assert [step.step for step in found.steps] == [1, 2, 3]


def test_what_is_listed_of_imports_is_what_the_program_and_the_probe_import(tmp_path: Path) -> None:
    program = Program("import torch, csv", options=("-X", "importtime"))
    without, probed = (outcome(program, tmp_path, each) for each in (None, Place(tmp_path)))
    before, after = (
        {line.rpartition("|")[2].strip() for line in each.err.splitlines()} for each in (without, probed)
    )
    assert before <= after
    assert not {"hooks", "server", "room", "cockpit"} & after
    assert probed._replace(err="") == without._replace(err="")


def test_the_run_folder_is_deleted_while_a_rank_runs(tmp_path: Path) -> None:
    remove = "import shutil; shutil.rmtree(os.environ['COCKPIT_DIR'], ignore_errors=True)\n"
    train = PROGRAMS["training"].text
    for text in (remove + train, train + remove + "made.step()\nstate()"):
        program = Program(text)
        without = outcome(program, tmp_path, None)
        assert outcome(program, tmp_path, Place(tmp_path)) == without
        shutil.rmtree(tmp_path / "rings")


@pytest.mark.root
def test_a_full_disk(tmp_path: Path) -> None:
    """No page of the ring may be missing when a step is written: that would be SIGBUS."""
    mount = require("mount")
    place = Place(tmp_path)
    options = ["-t", "tmpfs", "-o", "size=64k", "none", str(place.rings)]
    if subprocess.run([mount, *options], capture_output=True, check=False).returncode:
        lacking("mounting a tmpfs is not permitted")
    try:
        (place.rings / "filler").write_bytes(bytes(52 << 10))
        assert outcome(PROGRAMS["training"], tmp_path, place) == outcome(PROGRAMS["training"], tmp_path, None)
        (told,) = place.told()
        assert told["steps"].startswith("OSError: [Errno 28]")
        assert os.listdir(place.rings) == ["filler"]
    finally:
        subprocess.run(["umount", "-l", str(place.rings)], capture_output=True, check=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_python(tmp_path: Path, version: str) -> None:
    place = Place(tmp_path)
    found = python(version)
    outcomes = [outcome(PROGRAMS["training"], tmp_path, each, found) for each in (None, place)]
    assert outcomes[0] == outcomes[1]
    (one,) = place.read()
    assert len(one.steps) == 3


@pytest.mark.parametrize(
    ("version", "given", "expected"),
    [
        ("2.6.0", {}, "TORCH_NCCL_TRACE_BUFFER_SIZE"),
        ("2.8.0+cu128", {}, "TORCH_FR_BUFFER_SIZE"),
        ("2.10.0", {}, "TORCH_FR_BUFFER_SIZE"),
        ("2.11.0", {}, ""),
        ("2.13.0", {"TORCH_FR_DUMP_TEMP_FILE": "/mine"}, ""),
        ("2.13.0", {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/mine"}, ""),
        ("nonsense", {}, ""),
        ("2.8.0", {"TORCH_NCCL_TRACE_BUFFER_SIZE": "0"}, ""),
        ("2.8.0", {"TORCH_FR_DUMP_TEMP_FILE": "/mine"}, "TORCH_FR_BUFFER_SIZE"),
    ],
)
def test_the_recorder_of_an_older_torch_is_switched_on_and_says_where_its_file_goes(
    tmp_path: Path, version: str, given: dict[str, str], expected: str
) -> None:
    place = Place(tmp_path)
    show = "import torch, json; print(json.dumps({k: v for k, v in os.environ.items() if 'TORCH' in k}))"
    files = {"torch/__init__.py": "", "torch/version.py": f"__version__ = '{version}'\n"}
    program = Program(show, files=files, env={"PYTHONPATH": ".", **given})
    set_here = json.loads(outcome(program, tmp_path, place).out)
    files_named = {"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"}
    wanted = {expected: "2000"} if expected else {}
    if expected and not files_named & given.keys():
        wanted |= dict.fromkeys(files_named, str(place.run / "probe/nccl_trace_rank_"))
    assert set_here == {**given, **wanted}
