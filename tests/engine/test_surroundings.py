"""What a login gives an agent, a umask, odd variables, few open files, breaks no run."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import stat
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import pytest

from cockpit.base import openfiles, record, verbs
from cockpit.engine.links.link import Link, RemoteError
from cockpit.transport.base import Pipe
from cockpit.transport.local import LocalTransport
from tests.needs import require
from tests.node import folders
from tests.node.runs import Run, command, program

T = TypeVar("T")


@pytest.fixture(autouse=True)
def untouched_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test before may have raised our limit of open files: a child would get the old one, at any moment."""
    monkeypatch.setattr(openfiles, "_before", None)


class After:
    """A transport to this machine whose shell runs some words first."""

    kind = "local"
    job = ""

    def __init__(self, words: str) -> None:
        self._words = words
        self._local = LocalTransport("here")
        self.progress = self._local.progress

    async def open(self, command: str) -> Pipe:
        return await self._local.open(f"{self._words}\n{command}")

    async def close(self) -> None:
        await self._local.close()


def with_link(words: str, use: Callable[[Link], Awaitable[T]]) -> T:
    """Open a link to an agent that was started after these words, use it, close it."""

    async def main() -> T:
        link = Link("here", After(words), [sys.executable])
        await link.open()
        try:
            return await use(link)
        finally:
            await link.close()

    return asyncio.run(main())


def launched(words: str, script: str, folder: Path) -> Run:
    """A run that such an agent starts, once it has ended."""
    run = f"test-{uuid4().hex}"
    spec = {
        **{"format": 1, "run": run, "node": "here", "index": 0, "dir": str(folder / "base" / run / "here")},
        **{"script": script, "files": {"hostfile": "x"}, "env": {}, "ranks": [0], "launcher": "command"},
        **{"profile": None, "grace_s": 30, "finalise_s": 60},
    }

    async def use(link: Link) -> None:
        await link.call(verbs.Launch(), json.dumps(spec).encode())

    with_link(words, use)
    started = Run.found(Path(str(spec["dir"])))
    started.ended()
    return started


def test_a_umask_that_takes_everything_away(tmp_path: Path) -> None:
    rank = program(tmp_path / "rank", "umask\n")
    run = launched("umask 0777", command(1, rank), tmp_path)
    assert run.event("rank_exited")["code"] == 0
    assert run.log(0) == "0777\n"
    for path in [*run.folder.parents[:2], run.folder, *run.folder.iterdir()]:
        wanted = 0o700 if path.is_dir() or path.name == record.RANKWRAP else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_the_setup_runs_with_the_persons_umask(tmp_path: Path) -> None:
    async def use(link: Link) -> None:
        setup = f"umask >{tmp_path / 'umask'}"
        await link.call(verbs.Facts(str(tmp_path), setup, sys.executable))

    with_link("umask 0027", use)
    assert (tmp_path / "umask").read_text() == "0027\n"


def test_a_node_names_the_cores_that_it_allows(tmp_path: Path) -> None:
    """Those of the login there, as a cpuset or a batch system narrows them, not those of this machine."""
    taskset = require("taskset")
    core = max(os.sched_getaffinity(0))

    async def use(link: Link) -> tuple[int, ...]:
        return (await link.call(verbs.Facts(str(tmp_path), python=sys.executable))).cores

    assert with_link(f"{taskset} -cp {core} $$ >/dev/null", use) == (core,)


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "cp037"])
def test_any_encoding_of_the_persons_python(tmp_path: Path, encoding: str) -> None:
    async def use(link: Link) -> str:
        return (await link.call(verbs.Facts(str(tmp_path), python=sys.executable))).python

    assert with_link(f"export PYTHONIOENCODING={encoding}", use) == sys.executable
    rank = program(tmp_path / "rank", f"exec {sys.executable} -c 'print(1)'\n")
    run = launched(f"export PYTHONIOENCODING={encoding}", command(1, rank), tmp_path)
    assert (run.folder / record.rank_log(0)).read_bytes().decode(encoding) == "1\n"


@pytest.mark.parametrize(
    ("words", "what", "hint"),
    [
        ("export PYTHONHOME=/no-such", "Fatal Python error: ", "its environment has PYTHONHOME=/no-such"),
        (
            "export PYTHONIOENCODING=no-such",
            "LookupError|unknown encoding|Fatal Python error",
            "try it by hand",
        ),
    ],
)
def test_a_python_that_cannot_start_says_why_in_one_line(
    tmp_path: Path, words: str, what: str, hint: str
) -> None:
    async def use(link: Link) -> None:
        await link.call(verbs.Facts(str(tmp_path), python=sys.executable))

    with pytest.raises(RemoteError) as caught:
        with_link(words, use)
    assert "\n" not in str(caught.value)
    assert "--setup or python fails: " in caught.value.what
    assert re.search(what, caught.value.what)
    assert hint in caught.value.hint


@pytest.mark.parametrize(("files", "ranks"), [(128, 150), (256, 2048)])
def test_more_logs_than_files_that_may_be_open(tmp_path: Path, files: int, ranks: int) -> None:
    folders.make(tmp_path, range(ranks))
    want = {}
    for rank in range(ranks):
        want[record.rank_log(rank)] = text = b"line of rank %d\n" % rank
        (tmp_path / record.rank_log(rank)).write_bytes(text)

    async def use(link: Link) -> dict[str, bytes]:
        got: dict[str, bytes] = {}
        stream = await link.stream(verbs.Follow(str(tmp_path), {}, 64 << 20))
        async for item, data in stream.parts():
            for part in item.parts:
                got[part.file], data = got.get(part.file, b"") + data[: part.length], data[part.length :]
            if len(got) == ranks:
                break
        await stream.close()
        assert not link.lost.done()
        return got

    assert with_link(f"ulimit -n {files}", use) == want


@pytest.mark.parametrize("through", ["soft", "both"])
def test_training_has_the_limit_that_its_person_has(tmp_path: Path, through: str) -> None:
    words = "ulimit -Sn 200" + ("; ulimit -Hn 300" if through == "both" else "")
    rank = program(tmp_path / "rank", "ulimit -Sn; ulimit -Hn\n")
    hard = 300 if through == "both" else _hard()
    run = launched(words, command(1, rank), tmp_path)
    assert run.log(0).split() == ["200", str(hard)]


def _hard() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def test_the_agent_itself_has_more() -> None:
    async def use(link: Link) -> str:
        return Path(f"/proc/{link.hello.pid}/limits").read_text()

    limits = with_link("ulimit -Sn 200; ulimit -Hn 300", use)
    assert re.search(r"Max open files +300 +300 ", limits)
