"""The program itself: streams, runs with damaged folders, sets of ranks."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from cockpit import paths
from cockpit.cli.parsing import rank_set
from cockpit.cli.verbs import ps
from cockpit.engine.records.folder import RunFolder, list_runs
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.errors import CockpitError, near


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


def test_a_damaged_run_hides_no_other_one(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [NodeEntry("gpu1", "/nowhere", [0])]
    RunFolder.create(Manifest("crane", 1.0, nodes, "command", ["train.py"], "/"))
    damaged = RunFolder.create(Manifest("otter", 2.0, nodes, "command", ["train.py"], "/"))
    (damaged.path / "manifest.json").write_text('{"run": "ott')
    assert [folder.name for folder in list_runs()] == ["crane", "otter"]
    assert RunFolder.find("crane").manifest.run == "crane"
    with pytest.raises(CockpitError, match="manifest cannot be read"):
        assert RunFolder.find("last").manifest
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
