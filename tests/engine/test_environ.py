"""Of a real run on this machine whose ranks ended at once it can be asked what they were started with."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from uuid import uuid4

import pytest

from cockpit.base import record
from cockpit.base.answers import EnvironAnswer
from cockpit.base.verbs import Environ
from cockpit.engine.links.pool import LinkPool
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.join import adopt
from cockpit.engine.run.session import Session
from cockpit.transport.base import Reach
from tests.engine.test_session import Heard
from tests.node.runs import program
from tests.waiting import PATIENCE_S


@pytest.fixture
def crashed(tmp_path: Path, quick_cockpit: tuple[str, ...]) -> str:
    """The name of a run that is over: rank 1 failed, and its node has a secret."""
    name = f"crashed-{uuid4().hex}"
    train = program(tmp_path / "train", "exit 3\n")
    (tmp_path / "hostfile").write_text("localhost slots=2\n")
    words = ["run", "hostfile", "--name", name, "--transport", "local", "--launcher", "command"]
    words += ["--headless", "--node-dir", str(tmp_path / "nodes"), "--", str(train)]
    secret = {"GIVEN": "yes", "HF_TOKEN": "5ecret"}
    done = subprocess.run(
        [*quick_cockpit, *words],
        cwd=tmp_path,
        env={**os.environ, **secret},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 1, done.stderr
    return name


async def asked(session: Session) -> EnvironAnswer:
    """What the node says of rank 1 when all that it has of the run is here."""
    session.watch(policy=False)
    while not session.model.done:
        await session.wait(1)
    return await session.ask("localhost", Environ(session.dir("localhost"), 1))


@pytest.mark.slow
def test_of_a_rank_that_ended_long_before_anybody_looked(
    crashed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another machine of the same person: there the run is known to its nodes only.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))

    async def main() -> EnvironAnswer:
        async with LinkPool(["python3"], Reach("local")) as pool:
            assert not await adopt(pool, ["localhost"], str(tmp_path / "nodes"))
        folder = RunFolder.find(crashed)
        session = Session(folder, Heard(), writer=folder.lock())
        try:
            await session.rejoin()
            return await asked(session)
        finally:
            await session.close()

    got = asyncio.run(main()).environ
    assert (got["RANK"], got["GIVEN"], got[record.ENV_RUN]) == ("1", "yes", crashed)
    assert got["HF_TOKEN"] == "(secret, 6 characters)"
    files = [path for path in (tmp_path / "nodes").rglob("*") if path.is_file()]
    assert len([path for path in files if path.name.endswith(".environ.json")]) == 2
    assert not [path for path in files if b"5ecret" in path.read_bytes()]
