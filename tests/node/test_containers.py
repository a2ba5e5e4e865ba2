"""Ranks in containers of an ordinary user: other pid, mount and user namespaces, interpreters of any name."""

from __future__ import annotations

import base64
import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import cockpit
from cockpit.base import gate
from cockpit.base.answers import SeekAnswer
from cockpit.base.stacks.dump import Dump
from cockpit.base.stacks.unpacking import unpack
from cockpit.core.run.jobs import group
from tests.needs import lacking, require
from tests.node.spies import REAL
from tests.waiting import PATIENCE_S, until, until_removed

PYTHON = "/usr/bin/python3"
"""One that every user may run."""

TRAIN = """
import ctypes, time

def waits_for_data():
    time.sleep(1000)  # the line that is shown

open("/out/up", "w").close()
waits_for_data()
"""

LOOK = """
import base64, json, sys
sys.path.insert(0, sys.argv[1])
from cockpit.node.calls import Call
from cockpit.node.stacks import dump, find_ranks

ranks = find_ranks.seek(Call({"id": 1, "do": "seek"}, b"", None))["ranks"]
ranks = [one for one in ranks if one["job"]["addr"] == sys.argv[2]]
targets = [{name: one[name] for name in ("rank", "pid", "ticks")} for one in ranks]
parts = []
ask = {"id": 2, "do": "stacks", "targets": targets, "native": "native" in sys.argv}
dump.stacks(Call(ask, b"", lambda head, data: parts.append(base64.b64encode(data).decode())))
print(json.dumps({"ranks": ranks, "parts": parts}))
"""
"""What the agent does, as that user."""


class Place:
    """A folder that an ordinary user can read, and that user's programs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.addr = f"container-{uuid4().hex}"
        self._as_user: list[str] = []
        if os.geteuid() == 0:
            words = [require("setpriv"), "--reuid", "58131", "--regid", "58131", "--clear-groups"]
            self._as_user = [*words, "--inh-caps=-all"]
        for part in ("base", "node"):
            source = Path(cockpit.__file__).parent / part
            shutil.copytree(source, folder / "cockpit" / part, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "cockpit/__init__.py").touch()
        (folder / "bin").mkdir()
        shutil.copy(REAL, folder / "bin/py-spy")
        for name, text in (("train.py", TRAIN), ("look.py", LOOK)):
            (folder / name).write_text(text)
        (folder / "out").mkdir()
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755)
        (folder / "out").chmod(0o777)
        self.started: list[subprocess.Popen[bytes]] = []

    def may(self, *words: str) -> bool:
        """Whether the user may run this."""
        return subprocess.run([*self._as_user, *words], check=False, capture_output=True).returncode == 0

    def start(self, words: list[str], rank: int) -> None:
        """Start a rank; it is up when this returns."""
        up = self.folder / "out/up"
        up.unlink(missing_ok=True)
        told = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": self.addr, "MASTER_PORT": "1"}
        env = {"PATH": os.environ["PATH"], **told}
        process = subprocess.Popen([*self._as_user, *words], env=env, start_new_session=True)
        self.started.append(process)
        until(lambda: up.exists() or process.poll() is not None, "the rank runs")
        assert process.poll() is None, shlex.join(words)

    def look(self, *more: str) -> tuple[dict[str, Any], list[Dump]]:
        """What the agent of that user finds: an answer to seek, and the dumps."""
        words = [PYTHON, str(self.folder / "look.py"), str(self.folder), self.addr, *more]
        env = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}"}
        done = subprocess.run(
            [*self._as_user, *words], env=env, check=False, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        dumps = [dump for part in told["parts"] for dump in unpack(base64.b64decode(part), str)]
        return told, sorted(dumps, key=lambda one: one.rank)


@pytest.fixture
def place() -> Iterator[Place]:
    require(PYTHON)
    folder = Path(tempfile.mkdtemp(prefix="cockpit-container-"))
    place = Place(folder)
    if not place.may(require("unshare"), "-Urpm", "--fork", "--mount-proc", "true"):
        until_removed(folder)
        lacking("an ordinary user may not make namespaces")
    yield place
    for process in place.started:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    until_removed(folder)


def unshared(place: Place) -> list[str]:
    """In namespaces that see the same files, but for one folder."""
    (place.folder / "train.py").write_text(TRAIN.replace("/out/up", "/mnt/up"))
    text = f"mount --bind {place.folder}/out /mnt; exec {PYTHON} {place.folder}/train.py"
    return [require("unshare"), "-Urpm", "--fork", "--mount-proc", "--kill-child", "sh", "-c", text]


def bubblewrap(place: Place) -> list[str]:
    """In namespaces within another user namespace, with an interpreter and a program that only they see."""
    words = [require("bwrap"), "--die-with-parent", "--unshare-all", "--share-net", "--proc", "/proc"]
    words += ["--dev", "/dev", "--tmpfs", "/tmp", "--ro-bind", "/usr", "/usr"]
    for name in ("lib", "lib64", "bin"):
        words += ["--symlink", f"usr/{name}", f"/{name}"]
    words += ["--ro-bind", os.path.realpath(PYTHON), "/opt/trainer"]
    words += ["--ro-bind", str(place.folder / "train.py"), "/code/train.py"]
    return [*words, "--bind", str(place.folder / "out"), "/out", "/opt/trainer", "/code/train.py"]


def nested(place: Place) -> list[str]:
    """One in the other: each has users, processes and files of its own."""
    outer = [require("unshare"), "-Urpm", "--fork", "--mount-proc", "--kill-child"]
    return [*outer, "sh", "-c", f"exec {shlex.join(bubblewrap(place))}"]


def forked(place: Place) -> list[str]:
    """Below two shells and an interpreter whose name says nothing, as images have them."""
    text = place.folder / "bin/run-3"
    if not text.exists():
        text.symlink_to(os.path.realpath(PYTHON))
    inner = f"{text} {place.folder}/train.py; true"
    line = f"mount --bind {place.folder}/out /mnt; sh -c '{inner}'; true"
    (place.folder / "train.py").write_text(TRAIN.replace("/out/up", "/mnt/up"))
    return [*[require("unshare"), "-Urpm", "--fork", "--mount-proc", "--kill-child"], "sh", "-c", line]


@pytest.mark.few(2)
@pytest.mark.parametrize("container", [unshared, bubblewrap, nested, forked])
def test_ranks_in_containers_of_ones_own(place: Place, container: Any) -> None:
    words = container(place)
    for rank in (0, 1):
        place.start(words, rank)
    told, dumps = place.look()
    (job,) = group({"gpu01": gate.read(SeekAnswer, {"ranks": told["ranks"]})})
    assert job.problems == []
    assert sorted(job.ranks) == [0, 1]
    assert all(found.container and found.pid > found.ns_pid > 0 for found in job.ranks.values())
    if container in (bubblewrap, nested):
        assert {found.python for found in job.ranks.values()} == {"/opt/trainer"}
    for dump in dumps:
        assert (dump.error, dump.way) == ("", "plain"), dump.what
        assert dump.frames[-1].name == "waits_for_data"
        assert dump.source == "time.sleep(1000)  # the line that is shown"
    # From outside there are no native frames of them: py-spy goes inside for those.
    _, dumps = place.look("native")
    for dump in dumps:
        assert (dump.error, dump.way, dump.notes) == ("", "native", ()), dump.what
        assert any(frame.native for frame in dump.frames)
        assert "waits_for_data" in [frame.name for frame in dump.frames]
