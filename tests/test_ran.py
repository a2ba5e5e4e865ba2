"""What ran in none of several runs of the tests is found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[1]
TESTS = """
import os, pytest
from tests.needs import beyond
ROOT = bool(os.environ.get("ROOT"))
@pytest.mark.parametrize("word", ["plain", "with\\ttab and é"])
def test_both(word): assert not ROOT
@pytest.mark.skipif(not ROOT, reason="not root")
def test_root(): pass
@pytest.mark.skipif(ROOT, reason="root")
def test_user(): assert not ROOT
def test_never(): pytest.skip("nobody has it")
def test_beyond(): beyond("too old")
@pytest.mark.xfail(reason="known")
def test_known(): assert ROOT
@pytest.fixture
def lacking(): pytest.skip("no such thing")
def test_lacking(lacking): pass
def test_left_out(): pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "test_it.py").write_text(TESTS, encoding="utf-8")
    return tmp_path


def call(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a module of Python there."""
    environ = {**os.environ, "PYTHONPATH": str(REPO), **more}
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_what_ran_nowhere_is_named(folder: Path) -> None:
    words = ["pytest", "-p", "tests.ran", "-p", "no:cacheprovider", "-k", "not left_out"]
    first = call(folder, *words, "--ran", "user")
    assert first.returncode == 0, first.stdout
    # With a worker, which leaves out what ran and reports to who started it.
    second = call(folder, *words, "-n", "1", "--ran", "root", "--but", "user", ROOT="1")
    assert second.returncode == 0, second.stdout  # what ran before would fail
    assert "1 passed, 3 skipped" in second.stdout
    both = call(folder, "tests.ran", "user", "root")
    assert both.returncode == 1
    lines = both.stdout.splitlines()
    assert sorted(line for line in lines if line.startswith("ran nowhere")) == [
        "ran nowhere: test_it.py::test_lacking: no such thing",
        "ran nowhere: test_it.py::test_left_out: it was selected nowhere",
        "ran nowhere: test_it.py::test_never: nobody has it",
    ]
    assert lines[-1] == "9 tests, of which 3 ran nowhere"
    both = call(folder, "tests.ran", "--deselect=test_it.py::test_left_out", "user", "root")
    assert both.stdout.splitlines()[-1] == "8 tests, of which 2 ran nowhere"
