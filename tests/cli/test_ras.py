"""A job that others started: what a stand-in for NCCL's RAS says is in its verdict."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.verbs import Verbs
from tests.ports import free_port

FACT = "NCCL RAS: rank 1 does not answer"


@pytest.fixture
def job() -> Iterator[str]:
    """Two ranks, of which the first listens and does not hear of the other one; how their job is called."""
    port, meet = free_port(), str(free_port())
    with ExitStack() as ranks:

        def rank(number: int, *words: str) -> subprocess.Popen[bytes]:
            variables = {
                "RANK": str(number),
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": meet,
                "NCCL_RAS_ADDR": f"localhost:{port}",
            }
            made = subprocess.Popen(
                [sys.executable, *words],
                env={**os.environ, **variables},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            ranks.callback(made.communicate, b"", 60)
            assert made.stdout is not None
            assert made.stdout.readline() == b"listens\n"
            return made

        other = rank(1, "-c", "import sys; print('listens', flush=True); sys.stdin.read()")
        rank(0, "-m", "tests.recorder.ras", str(port), str(other.pid))
        yield f"127.0.0.1:{meet}"


@pytest.mark.slow
@pytest.mark.launch
def test_what_ras_says_is_shown_and_kept(job: str, tmp_path: Path, quick_cockpit: tuple[str, ...]) -> None:
    verbs = Verbs(tmp_path / "state", tmp_path, quick_cockpit)
    (tmp_path / "hosts").write_text("localhost slots=2\n")
    where = [str(tmp_path / "hosts"), "--transport", "local", "--job", job]
    done = verbs.call("stacks", *where, "--samples", "2", "--interval", "0.2", "--json")
    told = json.loads(done.out)
    assert FACT in told["verdict"]["evidence"], done.both
    assert (told["ras"]["version"], told["ras"]["node"], told["ras"]["silent"]) == ("2.28.9", "localhost", {})
    assert [one["rank"] for one in told["ras"]["ranks"]] == [1]
    again = verbs.call("stacks", told["snapshot"])
    assert f"- {FACT}" in again.out
