"""A node with another Python than ours: a whole run, with that Python in every process on the node."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit import paths
from cockpit.base import record, verbs
from cockpit.base.events import RankStarted
from cockpit.engine.links.link import Link
from cockpit.engine.records.folder import RunFolder
from cockpit.transport.local import LocalTransport
from tests.engine.watched import Watched
from tests.pythons import VERSIONS, python
from tests.waiting import PATIENCE_S

# Python 2 and 3 alike: it is not our code.
TRAIN = """
import os, sys, time
rank = int(os.environ["RANK"])
print("rank %d of python %d.%d" % ((rank,) + sys.version_info[:2]))
sys.stdout.flush()
while rank == 0 or not os.path.exists("go"):
    time.sleep(0.05)
sys.exit(3)
"""


ENDS = ("3.8", "3.13")
"""The oldest, and the newest that most machines have; whether every module loads is tried with each."""


@pytest.fixture
def stopped(tmp_path: Path, quick_cockpit: tuple[str, ...]) -> Iterator[None]:
    """Whatever became of the test, its run is stopped after it."""
    yield
    subprocess.run([*quick_cockpit, "stop", "last", "--now"], cwd=tmp_path, capture_output=True, check=False)


@pytest.mark.slow
@pytest.mark.usefixtures("stopped")
@pytest.mark.parametrize(
    "version", [pytest.param(one, marks=[] if one in ENDS else pytest.mark.campaign) for one in VERSIONS]
)
def test_a_whole_run(tmp_path: Path, quick_cockpit: tuple[str, ...], version: str) -> None:
    interpreter = python(version)
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "hostfile").write_text("localhost slots=2\n")
    words = ["run", "hostfile", "--transport", "local", "--launcher", "command", "--headless", "--json"]
    words += ["--python", interpreter, "--on-failure", "wait", "--node-dir", str(tmp_path / "nodes")]
    run = Watched([*words, "--", interpreter, "train.py"], tmp_path)
    for rank in (0, 1):
        run.event("log", rank=rank, text=f"rank {rank} of python {version}")
    (tmp_path / "go").touch()
    assert run.event("rank_exited", rank=1)["code"] == 3

    [folder] = [RunFolder(path) for path in paths.runs().iterdir()]
    [node] = folder.manifest.nodes
    _has_only_its_own_byte_code(Path(node.dir) / record.NODE_PYZ, interpreter)
    assert json.loads((Path(node.dir) / record.RECORD).read_text())["python"] == interpreter
    asyncio.run(_ask_everything(interpreter, version, folder.name, node.dir))

    subprocess.run([*quick_cockpit, "stop", "last"], cwd=tmp_path, capture_output=True, check=True)
    assert run.event("rank_exited", rank=0)["signal"] == 15
    run.event("ended")
    assert run.process.wait(PATIENCE_S) == 1
    assert (Path(node.dir) / record.SUPERVISOR_LOG).read_text() == ""
    spool = folder.spool_dir(node)
    for name in ("rank-0.log", "rank-1.log", record.EVENTS):
        assert (spool / name).read_bytes() == (Path(node.dir) / name).read_bytes()


def _has_only_its_own_byte_code(pyz: Path, interpreter: str) -> None:
    ask = "import importlib.util as u; print(u.MAGIC_NUMBER.hex())"
    magic = subprocess.run([interpreter, "-c", ask], capture_output=True, text=True, check=True).stdout
    with zipfile.ZipFile(pyz) as archive:
        names = archive.namelist()
        assert len(names) == len(set(names))
        compiled = [name for name in names if name.endswith(".pyc")]
        assert {archive.read(name)[:4].hex() for name in compiled} == {magic.strip()}
    assert "cockpit/node/run/wrapper.pyc" in names


async def _ask_everything(interpreter: str, version: str, run: str, folder: str) -> None:
    """What an agent of that Python says of the run while rank 0 still trains."""
    link = Link("localhost", LocalTransport("localhost"), [interpreter])
    await link.open()
    try:
        assert link.hello.python.startswith(version + ".")
        status = await link.call(verbs.Status(folder))
        assert status.alive is True
        started = [line for line in status.events.lines if isinstance(line.fact, RankStarted)]
        assert len(started) == 2
        found = (await link.call(verbs.Seek(run, "localhost"))).ranks
        assert [one.rank for one in found] == [0]
        follow = await link.stream(verbs.Follow(folder, {}, 1 << 20))
        got: dict[str, bytes] = {}
        async for item, data in follow.parts():
            for part in item.parts:
                got[part.file], data = got.get(part.file, b"") + data[: part.length], data[part.length :]
            if {"rank-0.log", "rank-1.log", record.EVENTS} <= set(got):
                break
        await follow.close()
        assert got["rank-0.log"] == f"rank 0 of python {version}\n".encode()
        measured = await link.stream(verbs.Samples(folder))
        async for sample, _ in measured.parts():
            assert (sample.ranks[0].rss_bytes or 0) > 0
            break
        await measured.close()
    finally:
        await link.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_every_module_of_the_node_loads(version: str, tmp_path: Path) -> None:
    """All of them, not only those that a run needs: each verb loads its own."""
    from cockpit.engine.links import payload

    interpreter = python(version)
    archive = tmp_path / "node.zip"
    archive.write_bytes(payload.archive())
    with zipfile.ZipFile(archive) as sent:
        files = [name for name in sent.namelist() if name.endswith(".py") and "__main__" not in name]
    modules = ",".join(name[: -len(".py")].replace("/__init__", "").replace("/", ".") for name in files)
    code = f"import sys; sys.path.insert(0, {str(archive)!r}); import {modules}"
    command = [interpreter, "-I", "-S", "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert (done.returncode, done.stderr) == (0, "")
