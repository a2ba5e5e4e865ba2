"""``--nccl-debug`` from end to end, with ranks that print what NCCL would; there is no NCCL here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cockpit.engine.nccl import NcclReader, table_here
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry
from tests.cli.schemas import fits
from tests.engine.watched import COCKPIT
from tests.nccl.samples import IB_2_18
from tests.node.runs import program
from tests.waiting import PATIENCE_S

TRAIN = """
said() {{ sed "s/ rank 0 / rank $RANK /" {sample}; }}
case "$NCCL_DEBUG" in INFO) ;; *) exit 8 ;; esac
if [ -n "$NCCL_DEBUG_FILE" ]; then said >"$NCCL_DEBUG_FILE"; else said; fi
if [ $RANK = 1 ] && [ -n "$FAILS" ]; then
    printf '\\nn:1:1 [0] misc/cudawrap.cc:12 NCCL WARN Cuda failure 2 %s\\n' "'out of memory'" \\
        >>"$NCCL_DEBUG_FILE"
    exit 1
fi
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, quick_cockpit: tuple[str, ...]) -> None:
    """Each verb runs to its end."""
    monkeypatch.setattr(sys.modules[__name__], "COCKPIT", [*quick_cockpit])


def cockpit(folder: Path, *words: str, code: int = 0, **environment: str) -> str:
    done = subprocess.run(
        [*COCKPIT, *words],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def run(folder: Path, *options: str, code: int = 0, **environment: str) -> str:
    """The name of a run of two ranks that is over; what it printed is in ``printed``."""
    name = f"nccl-{uuid4().hex}"
    (folder / "sample").write_text(IB_2_18)
    train = program(folder / "train", TRAIN.format(sample=folder / "sample"))
    (folder / "hostfile").write_text("localhost slots=2\n")
    words = ["run", "hostfile", "--name", name, "--transport", "local", "--launcher", "command"]
    words += ["--headless", "--no-preflight", "--failure-wait", "0.1", "--node-dir", str(folder / "nodes")]
    printed = cockpit(folder, *words, *options, "--", str(train), code=code, **environment)
    (folder / "printed").write_text(printed)
    return name


@pytest.mark.slow
@pytest.mark.parametrize("own", [False, True], ids=["a file of the run", "the user's own on stdout"])
def test_what_nccl_says_is_shown(tmp_path: Path, own: bool) -> None:
    name = run(tmp_path, NCCL_DEBUG="INFO") if own else run(tmp_path, "--nccl-debug")
    told = json.loads(cockpit(tmp_path, "ps", name, "--nccl", "--json"))
    fits("ps-nccl", told)
    assert [row["ranks"] for row in told["rows"]] == ["0", "1"]
    assert {row["network"] for row in told["rows"]} == {"IB"}
    assert (told["findings"], told["differs"], told["not_asked"]) == ([], [], {})
    text = cockpit(tmp_path, "ps", name, "--nccl")
    assert "same on all ranks that report it:" in text
    assert "NET/IB/GDRDMA" in text
    # Nor are its lines in the logs unasked, unless the user has put them there.
    assert ("NCCL INFO" in cockpit(tmp_path, "logs", name)) is own
    asked = cockpit(tmp_path, "logs", name, "--nccl", code=2 if own else 0)
    assert asked.startswith("[0-1]:nccl ×2 ") is not own
    assert ("NCCL INFO" in asked) is not own
    if not own:
        asked_of_its_node(tmp_path, name)


def asked_of_its_node(folder: Path, name: str) -> None:
    """Where there is no copy of what is said, the node is asked."""
    found = ["--transport", "local", "-w", "localhost", "--node-dir", str(folder / "nodes")]
    elsewhere = str(folder / "elsewhere")
    told = json.loads(cockpit(folder, "ps", name, *found, "--nccl", "--json", XDG_STATE_HOME=elsewhere))
    assert [row["network"] for row in told["rows"]] == ["IB", "IB"]


@pytest.mark.slow
def test_its_warnings_are_the_words_of_the_rank(tmp_path: Path) -> None:
    name = run(tmp_path, "--nccl-debug", code=1, FAILS="1")
    told = json.loads(cockpit(tmp_path, "ps", name, "--json"))
    (found,) = [one for one in told["findings"] if one["ranks"] == "1"]
    warning = "n:1:1 [0] misc/cudawrap.cc:12 NCCL WARN Cuda failure 2 'out of memory'"
    assert warning.partition(" WARN ")[2] in found["detail"]
    # They are printed among its lines, and no others of that file; also as they come.
    assert (tmp_path / "printed").read_text() == f"localhost:1:nccl   | {warning}\n"
    assert cockpit(tmp_path, "logs", name, "--rank", "1") == f"localhost:1:nccl   | {warning}\n"
    assert cockpit(tmp_path, "logs", name, "--grep", "!NCCL WARN") == ""
    (line,) = map(json.loads, cockpit(tmp_path, "logs", name, "--json").splitlines())
    fits("logs", line)
    assert (line["rank"], line["file"], line["text"]) == (1, "rank-1.nccl", warning)
    file = next((tmp_path / "nodes").glob("*/*/*/rank-1.nccl"))
    data = file.read_bytes()
    assert data[line["offset"] :] == warning.encode() + b"\n"
    assert cockpit(tmp_path, "logs", name, "--nccl", "--rank", "1", "--raw") == data.decode()
    explained = json.loads(cockpit(tmp_path, "explain", name, "--json", code=1))
    assert any(one["text"] == warning for one in explained["cause"]["lines"])


@pytest.mark.slow
def test_nothing_is_known(tmp_path: Path) -> None:
    name = run(tmp_path, "--env", "NCCL_DEBUG=INFO", "--env", f"NCCL_DEBUG_FILE={tmp_path}/mine.%p")
    text = cockpit(tmp_path, "ps", name, "--nccl")
    assert "no NCCL output recorded" in text
    assert "--nccl-debug" in text


@pytest.mark.slow
def test_words(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COCKPIT, "ps", "--nccl"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.returncode, "needs a RUN" in done.stderr) == (2, True)
    words = ["run", "-w", "h:1", "--launcher", "per-node", "--nccl-debug", "--python", sys.executable]
    done = subprocess.run(
        [*COCKPIT, *words, "--", "train.py"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.returncode, "does not apply" in done.stderr) == (2, True)
    told = json.loads(
        cockpit(
            tmp_path,
            *(
                "plan",
                "-w",
                "h:1",
                "--nccl-debug",
                "--python",
                "/usr/bin/python3",
                "--json",
                "--",
                "train.py",
            ),
            NCCL_DEBUG="TRACE",
        )
    )
    (plan,) = told["plans"]
    assert plan["nccl_debug"] is True
    assert plan["env"]["NCCL_DEBUG"] == "TRACE"  # the user's own
    assert plan["env"]["NCCL_DEBUG_SUBSYS"] == "INIT,BOOTSTRAP,NET,GRAPH,ENV"


def kept(path: Path, **fields: Any) -> RunFolder:
    """A run of two ranks, of which nothing is copied yet."""
    entry = NodeEntry("gpu01", "/tmp/cockpit-0/otter/gpu01", [0, 1])
    manifest = Manifest("otter", 1.0, [entry], "command", ["train"], "/", **fields)
    folder = path / "otter"
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps(asdict(manifest)))
    found = RunFolder(folder)
    found.spool_dir(entry).mkdir(parents=True)
    return found


def test_copies_are_read_as_they_grow(tmp_path: Path) -> None:
    folder = kept(tmp_path, nccl_debug=True)
    path = folder.spool_dir(folder.manifest.nodes[0]) / "rank-1.nccl"
    heard = NcclReader(folder)
    assert (heard.read(), heard.table().rows) == (False, ())
    data = IB_2_18.encode()
    # In the middle of a line.
    at = data.index(b"network IB") + 3
    path.write_bytes(data[:at])
    assert heard.read()
    (row,) = heard.table().rows
    assert (row.numbers, row.node, row.network, row.bootstrap) == ((1,), "gpu01", "", "bond0")
    with path.open("ab") as file:
        file.write(data[at:])
    assert heard.read()
    assert heard.table().rows[0].network == "IB"
    assert not heard.read()


def test_of_a_copy_only_the_beginning_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cockpit.engine.nccl.LOG_READ", 1000)
    folder = kept(tmp_path)
    path = folder.spool_dir(folder.manifest.nodes[0]) / "rank-0.log"
    path.write_bytes(b"x" * (1 << 20) + b"\n" + IB_2_18.encode())
    heard = NcclReader(folder)
    assert heard.read()
    assert (heard.table().rows, heard.read()) == ((), False)


def test_what_is_no_file_says_nothing(tmp_path: Path) -> None:
    folder = kept(tmp_path, nccl_debug=True)
    spool = folder.spool_dir(folder.manifest.nodes[0])
    os.mkfifo(spool / "rank-0.nccl")
    (spool / "rank-1.nccl").symlink_to("/etc/passwd")
    assert table_here(folder).rows == ()
