"""A run folder on a node that becomes read-only: who watches sees true ends, and a stop is carried out."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.node import procfs
from cockpit.node.run import leftovers
from tests.cli.verbs import Verbs
from tests.needs import lacking, require
from tests.waiting import until

RANK = """
import os, sys, time
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.05)
os._exit(7 * int(os.environ["RANK"]))
"""


class Sick:
    """A file system of its own, which an error makes read-only, as a bad disk does."""

    def __init__(self, place: Path, device: str) -> None:
        self.place = place
        self.runs: list[Path] = []
        self._device = device

    def fail(self) -> None:
        """From now on nothing can be written, not even to files that are open, nor everything read."""
        self.runs = list(self.place.glob("cockpit-*/*/*"))
        Path(f"/sys/fs/ext4/{self._device}/trigger_fs_error").write_text("1")


pytestmark = pytest.mark.root


@pytest.fixture
def sick(tmp_path: Path) -> Iterator[Sick]:
    image, place = tmp_path / "image", tmp_path / "work" / "nodes"
    place.mkdir(parents=True)
    require("mkfs.ext4")
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    made = subprocess.run(["mount", "-o", "loop,errors=remount-ro", image, place], capture_output=True)
    if made.returncode:
        lacking(f"an image cannot be mounted: {made.stderr.decode()}")
    found = subprocess.run(["findmnt", "-no", "SOURCE", place], capture_output=True, text=True, check=True)
    sick = Sick(place, Path(found.stdout.strip()).name)
    yield sick
    # Supervisors wait for room.
    for folder in sick.runs:
        supervisor = leftovers.find(str(folder), folder.parent.name, folder.name).supervisor
        if supervisor is not None:
            procfs.send(*supervisor, 15)
            until(lambda one=supervisor: not procfs.alive(*one), "the end of a supervisor")  # type: ignore[misc]
    subprocess.run(["umount", "-l", place], check=True)


@pytest.fixture
def verbs(tmp_path: Path, quick_cockpit: tuple[str, ...]) -> Verbs:
    return Verbs(tmp_path / "state", tmp_path / "work", quick_cockpit)


def words(verbs: Verbs, launcher: str) -> list[str]:
    (verbs.work / "rank.py").write_text(RANK)
    found = verbs.words("r", "", slots=2)
    found[found.index("--launcher") + 1] = launcher
    return [*found[: found.index("--")], "--on-failure", "wait", "--", str(verbs.work / "rank.py")]


def ready(verbs: Verbs) -> None:
    files = [verbs.spooled("r", rank) for rank in (0, 1)]
    until(lambda: all(one.exists() and one.stat().st_size for one in files), "output")


@pytest.mark.few(2, "campaign")
@pytest.mark.parametrize("launcher", ["command", "deepspeed", "torchrun"])
def test_ends_are_true(sick: Sick, verbs: Verbs, launcher: str) -> None:
    if launcher != "command":
        pytest.importorskip("torch" if launcher == "torchrun" else "deepspeed")
    run = verbs.begin(*words(verbs, launcher))
    ready(verbs)
    sick.fail()
    (verbs.work / "go").touch()
    done = verbs.end(run)
    assert done.code == 1, done.err
    assert "rank 1 on localhost exited 7" in done.err
    assert "Read-only file system; until it can be written again, what ranks print may be lost" in done.err
    for word in ("supervisor was killed", "nobody saw", "neither its wrapper"):
        assert word not in done.err
    for connect in ((), ("--no-connect",)):
        shown = json.loads(verbs.call("ps", "--json", *connect, "r").out)
        ends = {one["rank"]: (one["state"], one["code"], one["signal"]) for one in shown["ranks"]}
        assert ends[1] == ("exited", 7, None)
        # A launcher may have ended the other one.
        assert ends[0] == ("exited", 0, None) or (launcher != "command" and ends[0][0] == "killed")


@pytest.mark.parametrize("now", [False, True])
def test_it_is_stopped(sick: Sick, verbs: Verbs, now: bool) -> None:
    run = verbs.begin(*words(verbs, "command"))
    ready(verbs)
    sick.fail()
    stopped = verbs.call("stop", "r", *(["--now"] if now else []))
    assert stopped.code == 0, stopped.err
    assert ("SIGKILL" if now else "sent SIGTERM") in stopped.err
    done = verbs.end(run)
    assert f"ranks 0-1 killed by {'SIGKILL' if now else 'SIGTERM'}" in done.err
    assert "supervisor was killed" not in done.err
    assert verbs.call("stop", "r").code == 0
