"""A run of one rank on this machine, and what the parts look at in it; no sshd, no root."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from cockpit.base.answers import RecorderItem
from cockpit.base.gate import read
from cockpit.base.recorder.trace import Trace
from cockpit.base.recorder.unpacking import unpack
from cockpit.core.stacks.snapshot import Snapshot
from cockpit.engine.links import payload
from cockpit.engine.profile.store import Store
from cockpit.engine.stacks import saved
from cockpit.node.calls import Call
from cockpit.node.measure.gpu import Gpus
from cockpit.node.recorder.recorder import recorder
from tests.cli.verbs import HERE, Verbs
from tests.gpu import parts
from tests.gpu.parts import Lacking
from tests.waiting import PATIENCE_S, until

TRAIN = Path(__file__).with_name("train.py")
STEPS = 5
"""Of a profile."""

_ASK = (
    "import torch; print(torch.__version__, torch.cuda.is_available(), torch.distributed.is_nccl_available())"
)


class Look(NamedTuple):
    """The stacks of a rank that waits, without and with native frames, and what its recorder says then."""

    snapshot: Snapshot
    native: Snapshot
    item: RecorderItem
    traces: list[Trace]


class Job:
    """A run that trains."""

    def __init__(self, folder: Path, verbs: Verbs) -> None:
        self.folder, self.verbs = folder, verbs
        self._looks: dict[str, Look] = {}

    @property
    def _start(self) -> Path:
        """What its wrapper says of the rank, in the run folder on the node."""
        (file,) = self.folder.glob("nodes/cockpit-*/gpu/*/rank-0.start.json")
        return file

    @property
    def pid(self) -> int:
        """Of the rank."""
        return int(json.loads(self._start.read_text())["pid"])

    @property
    def own(self) -> list[float]:
        """How long steps took by the program's own clock; the first ones are not like the others."""
        lines = (self.folder / "own").read_text().split("\n")[:-1] if (self.folder / "own").exists() else []
        return [float(line) for line in lines[5:]]

    def told(self, *words: str) -> dict[str, Any]:
        """The JSON object that a verb prints."""
        done = self.verbs.call(*words, "--json")
        assert done.out, done.both
        found: dict[str, Any] = json.loads(done.out)
        return found

    def waiting(self, how: str) -> Look:
        """Make it wait for its device, and look at it then; once."""
        if how not in self._looks:
            (self.folder / how).touch()
            until(lambda: f"waits: {how}" in self.verbs.on_node("gpu", 0).read_text(), how)
            told = [self.told("stacks", "gpu", *more) for more in ((), ("--native",))]
            plain, native = (saved.load(Path(one["snapshot"])) for one in told)
            self._looks[how] = Look(plain, native, *self._recorder())
        return self._looks[how]

    def _recorder(self) -> tuple[RecorderItem, list[Trace]]:
        found: list[tuple[RecorderItem, list[Trace]]] = []

        def take(told: dict[str, Any], data: bytes) -> None:
            item, at, traces = read(RecorderItem, told["item"]), 0, list[Trace]()
            for length in item.lengths:
                traces.append(unpack(data[at : at + length], str))
                at += length
            found.append((item, traces))

        header = {"id": 1, "do": "recorder", "dir": str(self._start.parent), "ranks": [0]}
        recorder(Call(header, b"", take))
        return found[0]


def torch_of(python: str) -> str:
    """The version of torch of this Python, which finds a GPU.

    :raises Lacking: it does not, and why
    """
    done = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Lacking(f"{python} has no torch: {(done.stderr.strip() or 'it cannot be started')[-100:]}")
    version, gpu, nccl = done.stdout.split()[-3:]
    if gpu != "True":
        raise Lacking(f"torch {version} of {python} finds no GPU")
    if nccl != "True":
        raise Lacking(f"torch {version} of {python} has no NCCL")
    return version


@contextmanager
def training(folder: Path, python: str, device: str, *options: str) -> Iterator[Job]:
    """A run until the end of the block; it is known to step by then.

    :param device: ``gpu`` or ``cpu``
    :param options: more of ``cockpit run``
    """
    verbs = Verbs(folder / "state", folder)
    (folder / "hosts").write_text("localhost slots=1\n")
    where = ["--name", "gpu", "--cwd", str(folder), "--node-dir", str(folder / "nodes"), "--python", python]
    words = ["run", "--headless", *HERE, *where, "--master-addr", "127.0.0.1", *options]
    watching = verbs.start(*words, str(folder / "hosts"), "--", python, str(TRAIN), device)
    job = Job(folder, verbs)
    try:
        until(lambda: len(job.own) > 20 or watching.poll() is not None, "it steps", timeout=300)
        assert watching.poll() is None, "".join(watching.communicate())[-2000:]
        yield job
        (folder / "end").touch()
        done = verbs.end(watching, timeout=PATIENCE_S)
        assert done.code == 0, f"the run ends well: {done.both[-2000:]}"
    finally:
        with suppress(AssertionError):
            verbs.call("stop", "gpu", "--now")
        watching.kill()
        watching.communicate()


# What each part looks at


def measured(job: Job) -> str:
    """NVML, while it trains."""
    gpus = Gpus(payload.pynvml())
    samples: list[list[dict[str, Any]]] = []

    def busy() -> bool:
        samples.append(gpus.sample(health=True))
        return any(gpu["utilisation_percent"] for gpu in samples[-1])

    if not gpus.sample():
        raise Lacking("NVML finds no GPU")
    until(busy, "a GPU is busy")
    return parts.measured(samples, job.pid)


def phases(job: Job, within: float = 0.1) -> str:
    """What its steps are made of; see :func:`tests.gpu.parts.phases`."""

    def rows() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = job.told("metrics", "gpu")["steps"][5:]
        return found if len(found) > 20 and found[-10]["forward_s"] is not None else []

    found = until(rows, "phases of steps")
    return parts.phases(found, job.own[: len(found)], within)


def profiled(job: Job) -> str:
    """A profile of a few steps."""
    told = job.told("profile", "gpu", "--kind", "torch", "--steps", str(STEPS))
    assert told.get("missing") == {}, told
    summary = Store(job.verbs.runs / "gpu" / "profiles").load(told["profile"]).results[0].summary
    assert summary is not None
    return parts.profiled(summary, STEPS)


def synchronizes(job: Job) -> str:
    """``torch.cuda.synchronize()``."""
    look = job.waiting("synchronize")
    return parts.waits(look.snapshot, look.native)


def recorded(job: Job) -> str:
    """The flight recorder, while a collective waits for the device."""
    look = job.waiting("synchronize")
    return parts.recorded(look.item, look.traces)


def heard(job: Job) -> str:
    """NCCL's RAS."""
    return parts.heard(job.waiting("synchronize").snapshot.ras)


def item(job: Job) -> str:
    """``.item()``."""
    look = job.waiting("item")
    return parts.waits(look.snapshot, look.native)


PARTS = {
    "nvml": measured,
    "phases": phases,
    "profile": profiled,
    "synchronize": synchronizes,
    "recorder": recorded,
    "ras": heard,
    "item": item,
}
"""Each in the same run, in this order: the rank waits in the last ones."""


def nsys(python: str) -> str:
    """A run under nsys, with kernels in its report.

    :raises Lacking: there is no nsys
    """
    found = shutil.which("nsys")
    if found is None:
        raise Lacking("nsys is not on PATH")
    with tempfile.TemporaryDirectory(prefix="gpu-") as name:
        folder = Path(name)
        with training(folder, python, "gpu", "--profile", "nsys", "--nsys", found) as job:
            pass
        assert job.verbs.call("collect", "gpu").code == 0
        (report,) = job.verbs.runs.glob("gpu/reports/*/*.nsys-rep")
        (folder / "stats").mkdir()  # nsys runs reports that it finds where it is started
        for table in ("cuda_gpu_kern_sum", "gpukernsum"):
            words = [found, "stats", "--report", table, "--format", "csv", str(report)]
            done = subprocess.run(words, cwd=folder / "stats", capture_output=True, text=True, check=False)
            if "Instances" in done.stdout:
                break
        return parts.traced(done.stdout or done.stderr)
