"""``all_reduce_perf`` under cockpit from end to end, with a program that prints what the real one does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cockpit import paths
from cockpit.core.nccl_tests.findings import Result
from cockpit.engine import collect
from cockpit.engine.nccl_results import KEPT, measured
from tests.cli.schemas import fits
from tests.engine.watched import COCKPIT
from tests.nccl_tests import standin
from tests.nccl_tests.standin import printed
from tests.node.runs import program
from tests.waiting import PATIENCE_S

ROOT = Path(standin.__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, quick_cockpit: tuple[str, ...]) -> None:
    """Each verb runs to its end."""
    monkeypatch.setattr(sys.modules[__name__], "COCKPIT", [*quick_cockpit])


def cockpit(folder: Path, *words: str, code: int = 0, **environment: str) -> tuple[str, str]:
    done = subprocess.run(
        [*COCKPIT, *words],
        cwd=folder,
        env={**os.environ, "XDG_STATE_HOME": str(folder / "state"), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout, done.stderr


def run(folder: Path, *words: str, code: int = 0, **environment: str) -> tuple[str, str]:
    """A run of one rank that starts the program as ``mpirun`` would, and what it said at its end."""
    name = f"tests-{uuid4().hex}"
    test = folder / "all_reduce_perf"
    program(test, f'exec {sys.executable} -m tests.nccl_tests.standin {test} "$@"')
    program(folder / "mpirun", 'exec "$@"')
    (folder / "hostfile").write_text("localhost slots=1\n")
    line = ["run", "hostfile", "--name", name, "--transport", "local", "--launcher", "command", "--headless"]
    line += ["--no-preflight", "--failure-wait", "0.1", "--node-dir", str(folder / "nodes"), "--"]
    said = cockpit(
        folder,
        *line,
        str(folder / "mpirun"),
        str(test),
        "-b",
        "8",
        "-e",
        "256M",
        "-f",
        "32",
        *words,
        code=code,
        PYTHONPATH=str(ROOT),
        STANDIN_HOSTS="gpu01 gpu02",
        **environment,
    )[1]
    return name, said


def told(folder: Path, name: str) -> Any:
    shown = json.loads(cockpit(folder, "ps", name, "--json")[0])
    fits("ps-run", shown)
    return shown


def test_it_is_recognised_and_shown_and_environments_in_its_own_file_are_not_kept(tmp_path: Path) -> None:
    name, said = run(tmp_path, "-J", str(tmp_path / "out.json"), WANDB_API_KEY="hunter2-secret")
    assert "all_reduce_perf on gpu[01-02], 2 ranks: busbw " in said
    assert " 235.5 GB/s at 256 MiB" in said
    (found,) = told(tmp_path, name)["nccl_tests"]
    assert (found["test"], found["hosts"], found["wrong"]) == ("all_reduce_perf", ["gpu01", "gpu02"], 0)
    assert [row["size"] for row in found["rows"]] == [8 << 5 * n for n in range(6)]
    assert Path(found["file"]).read_text().split("\n")[found["line"] - 1].split()[:2] == ["#", "size"]
    text = cockpit(tmp_path, "ps", name)[0]
    assert "    256 MiB    235.50  ████" in text
    assert "all_reduce_perf on gpu[01-02], 2 ranks: busbw " in text

    assert "hunter2-secret" in (tmp_path / "out.json").read_text()
    cockpit(tmp_path, "collect", name, str(tmp_path / "out.json"))
    (copy,) = (tmp_path / "state").rglob("*out.json")
    kept = json.loads(copy.read_text())
    assert (kept["version"], kept["nccl_version"]) == (3, 22809)
    assert kept["env"] == []
    everything = b"".join(path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file())
    assert b"hunter2-secret" not in everything
    cockpit(tmp_path, "collect", name, str(tmp_path / "out.json"))


@pytest.mark.slow
def test_it_is_compared_with_the_last_run_of_the_same_nodes_and_wrong_values_are_errors(
    tmp_path: Path,
) -> None:
    first, said = run(tmp_path)
    assert "below" not in said
    assert "wrong" not in said
    second, said = run(tmp_path, STANDIN_SCALE="0.88", STANDIN_WRONG="5")
    assert "warning: all_reduce_perf on gpu[01-02]: busbw at 256 MiB 12 % below " in said
    assert "error: all_reduce_perf got 5 wrong values on gpu[01-02]" in said
    shown = told(tmp_path, second)
    found = {one["id"]: (one["severity"], one["ranks"]) for one in shown["findings"]}
    assert found.keys() == {"nccl_tests_slower", "nccl_tests_wrong"}
    assert found["nccl_tests_slower"][0] == "warning"
    assert found["nccl_tests_wrong"] == ("error", "0")
    before = shown["nccl_tests"][0]["before"]
    assert (before["run"], round(before["change"], 2)) == (first, -0.12)
    assert "12 % below " in cockpit(tmp_path, "ps", second)[0]
    # What the first one is compared with does not change afterwards.
    assert told(tmp_path, first)["nccl_tests"][0]["before"] is None


def test_what_is_kept_is_bounded_and_may_be_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cockpit.core.nccl_tests.comparing import Past
    from cockpit.core.nccl_tests.reading import Reader
    from cockpit.engine import nccl_results

    monkeypatch.setattr(paths, "measured", lambda: tmp_path / "measured")
    reader = Reader()
    reader.take(printed().text.encode())
    (table,) = reader.tables(over=True)
    for at in range(KEPT + 5):
        past = Past.of(table, f"run-{at}", 1e9 + at, table.hosts)
        for _ in range(2):
            nccl_results._keep([Result(table, "gpu01", 0, "", past)])
    kept = measured(table.hosts)
    assert [one.run for one in kept] == [f"run-{at}" for at in range(5, KEPT + 5)]
    assert kept[0].busbw[table.rows[2].what] == table.rows[2].busbw
    assert measured(("gpu01",)) == []
    (file,) = (tmp_path / "measured").iterdir()
    for data in (b"", b"[", b"{}", b'{"measured": [{"run": 1}]}', b"[" * 100_000):
        file.write_bytes(data)
        assert measured(table.hosts) == []


def test_of_a_file_that_is_not_whole_nothing_is_kept(tmp_path: Path) -> None:
    part = tmp_path / "out.json.part"
    for data, left in (
        (b'{"version":3,"start_time":"now","args":["x"],"env":["WANDB_API_KEY=hun', False),
        (b'{"version":3,"start_time":"now","ar', True),
        (b'{"step": 1}\n', True),
    ):
        part.write_bytes(data)
        assert collect._drop_env(part, whole=False) is not left
        assert part.exists() is left
