"""The program itself: streams, runs with damaged folders, sets of ranks."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cockpit import paths
from cockpit.cli.output import to_file
from cockpit.cli.parsing import rank_set
from cockpit.cli.verbs import attach, ps
from cockpit.engine.records.folder import RunFolder, list_runs
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.errors import CockpitError, near

ROOT = Path(__file__).parents[2]


@pytest.mark.few(3)
@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
@pytest.mark.parametrize(("words", "code"), [("where", 0), ("attach none", 2)])
def test_closed_streams_are_no_mistake(closed: str, words: str, code: int, tmp_path: Path) -> None:
    # What the program opens must not get the number of a stream: it says so by the number of the next file.
    program = "import os, sys; from cockpit.cli.main import main; code = main(sys.argv[2:]);"
    program += "open(sys.argv[1], 'w').write(str(os.dup(0))); sys.exit(code)"
    line = f'exec "$0" -c "$1" {tmp_path}/fd {words} {closed}'
    ended = subprocess.run(
        ["/bin/sh", "-c", line, sys.executable, program], capture_output=True, text=True, check=False
    )
    assert ended.returncode == code, ended.stderr
    assert int((tmp_path / "fd").read_text()) > 2
    assert "Traceback" not in ended.stderr + ended.stdout
    if words == "where":
        assert bool(ended.stdout) == ("1>&-" not in closed)
    else:
        assert ("no such run" in ended.stderr) == ("2>&-" not in closed)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            "plan -w localhost:1 --launcher command -- true",
            "the working directory no longer exists; cd to another",
        ),
        (
            "run -w localhost:1 --launcher command -- true",
            "the working directory no longer exists; cd to another",
        ),
        ("where", ""),
        ("config --init", ""),
    ],
)
def test_a_working_directory_that_was_removed(words: str, says: str, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    line = f'cd {gone} && rmdir {gone} && exec "$0" -m cockpit {words}'
    env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "settings"), "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        ["/bin/sh", "-c", line, sys.executable], capture_output=True, text=True, check=False, env=env
    )
    assert (ended.returncode, says in ended.stderr) == (2 if says else 0, True), ended.stderr


def test_a_file_that_cannot_be_written_stays_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, linked = tmp_path / "report.html", tmp_path / "linked.html"
    good.write_text("good")
    good.chmod(0o640)
    program = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096));"
    program += "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
    program += "from cockpit.cli.output import to_file; to_file(sys.argv[1], 'x' * 9999)"
    ended = subprocess.run([sys.executable, "-c", program, good], capture_output=True, text=True, check=False)
    assert "cannot write: File too large; raise the limit of file sizes" in ended.stderr
    assert (good.read_text(), sorted(tmp_path.iterdir())) == ("good", [good])
    to_file(str(good), "better")
    assert (good.read_text(), good.stat().st_mode & 0o777) == ("better", 0o640)
    linked.symlink_to(good)
    to_file(str(linked), "best")
    assert (good.read_text(), linked.is_symlink()) == ("best", True)
    to_file("/dev/null", "nothing")
    assert not Path("/dev/null").is_file()


def test_a_damaged_run_hides_no_other_one(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [NodeEntry("gpu1", "/nowhere", [0])]
    RunFolder.create(Manifest("crane", 1.0, nodes, "command", ["train.py"], "/"))
    damaged = RunFolder.create(Manifest("otter", 2.0, nodes, "command", ["train.py"], "/"))
    (damaged.path / "manifest.json").write_text('{"run": "ott')
    assert [folder.name for folder in list_runs()] == ["crane", "otter"]
    assert RunFolder.find("crane").manifest.run == "crane"
    with pytest.raises(CockpitError, match="manifest cannot be read"):
        assert RunFolder.find("last").manifest
    with pytest.raises(CockpitError, match="--pid goes with nodes, not with a run"):
        attach.main(["crane", "--pid", "7"])
    assert ps.main(["--no-connect"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("crane ")
    assert "damaged: manifest cannot be read" in lines[2]
    assert ps.main(["--no-connect", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[0].keys() == rows[1].keys()
    assert str(paths.runs())


def test_rank_sets() -> None:
    assert rank_set("0-3,7") == {0, 1, 2, 3, 7}
    for text in ("", "a", "3-1", "0-3000000000", "9" * 5000, "-1"):
        with pytest.raises(argparse.ArgumentTypeError, match="not a rank set"):
            rank_set(text)


def test_a_hint_never_suggests_what_was_typed() -> None:
    assert near("--rank", ["--rank", "--ranks"]) == "--ranks"
    assert near("--rank", ["--rank", "--node"]) == ""
