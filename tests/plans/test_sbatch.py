"""Batch scripts of plans: the example is one, and words arrive whatever they are."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from cockpit.cli.main import main

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the words are typed, with a virtual environment of its own."""
    (tmp_path / "v/bin").mkdir(parents=True)
    for name in ("activate", "python", "python3"):
        (tmp_path / "v/bin" / name).touch(0o755)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "v"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["plan", "--sbatch", *words]) == 0
    return capsys.readouterr().out


def last(script: str) -> list[str]:
    """The words of the command that trains."""
    return shlex.split(script.rstrip("\n").rpartition("\n")[2])


def test_the_example_is_what_plan_prints(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    text = printed(capsys, "--nodes", "4", "--slots", "8", "--", "train.py", "--steps", "100000")
    there = text.replace(str(folder / "v"), "/home/ada/venv").replace(str(folder), "/home/ada/project")
    assert (ROOT / "examples/slurm.sbatch").read_text() == there, "write it there"


def test_options_of_the_launch_are_kept_and_those_about_nodes_are_not(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "hostfile").write_text("gpu[01-03] slots=2\n")
    kept = ["--launcher", "torchrun", "--launcher-args=-x y", "--env", "A=b c", "--env", "HF_TOKEN"]
    ours = ["--exclude", "gpu03", "-F", "config", "--transport", "openssh"]
    given = [word.replace("HF_TOKEN", "HF_TOKEN=hush") for word in kept]
    text = printed(capsys, "hostfile", *ours, *given, "--", "-m", "pkg", "it's", "$HOME", "--name")
    assert "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=2\n#SBATCH --gpus-per-node=2\n" in text
    assert "hush" not in text
    before, _, after = " ".join(last(text)).partition(" -- ")
    assert before.startswith("cockpit run --slurm --headless ")
    assert sorted(before.split()[4:]) == sorted(" ".join(kept).split())
    assert after == "-m pkg it's $HOME --name"


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    shown = json.loads(printed(capsys, "-w", "a:2,b:2", "--json", "--", "x"))
    assert (shown["nodes"], shown["ranks_per_node"]) == (2, 2)
    assert shown["sbatch"].startswith("#!/bin/bash\n")
    assert last(shown["sbatch"]) == shown["words"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("-w a:1,b:2", "nodes have 1, 2 slots"),
        ("--nodes 2", "no number of slots"),
        ("--nodes 0 --slots 1", "out of range: '0' (1 to "),
        ("--nodes 2 -w a:1", "--nodes and -w both select nodes"),
    ],
)
def test_what_cannot_be_one_job(words: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["plan", "--sbatch", *words.split(), "--", "x"])
    except SystemExit as error:
        code = error.code  # type: ignore[assignment]
    assert code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("program", ["-x.py", "...", "a\nb;c", "Zürich", "''"])
def test_the_name_of_the_job_is_plain(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--nodes", "1", "--slots", "1", "--launcher", "command", "--", program)
    assert "# Train on 1 node of a SLURM cluster, 1 rank on each: sbatch FILE\n" in text
    lines = [line for line in text.splitlines() if line.startswith("#SBATCH")]
    assert lines[0].removeprefix("#SBATCH --job-name=").isascii()
    assert len(lines) == 5
