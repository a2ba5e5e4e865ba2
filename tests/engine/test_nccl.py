"""``--nccl-debug`` from end to end, with ranks that print what NCCL would; there is no NCCL here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from tests.cli.schemas import fits
from tests.engine.watched import COCKPIT
from tests.nccl.samples import IB_2_18
from tests.node.runs import program

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


def cockpit(folder: Path, *words: str, code: int = 0, **environment: str) -> str:
    done = subprocess.run(
        [*COCKPIT, *words],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def run(folder: Path, *options: str, code: int = 0, **environment: str) -> str:
    """The name of a run of two ranks that is over."""
    name = f"nccl-{uuid4().hex}"
    (folder / "sample").write_text(IB_2_18)
    train = program(folder / "train", TRAIN.format(sample=folder / "sample"))
    (folder / "hostfile").write_text("localhost slots=2\n")
    words = ["run", "hostfile", "--name", name, "--transport", "local", "--launcher", "command"]
    words += ["--headless", "--no-preflight", "--failure-wait", "0.1", "--node-dir", str(folder / "nodes")]
    cockpit(folder, *words, *options, "--", str(train), code=code, **environment)
    return name


@pytest.mark.parametrize("own", [False, True], ids=["a file of the run", "the user's own on stdout"])
def test_what_nccl_says_is_shown(tmp_path: Path, own: bool) -> None:
    name = run(tmp_path, NCCL_DEBUG="INFO") if own else run(tmp_path, "--nccl-debug")
    told = json.loads(cockpit(tmp_path, "ps", name, "--nccl", "--json"))
    fits("ps-nccl", told)
    assert [row["ranks"] for row in told["rows"]] == ["0", "1"]
    assert {row["network"] for row in told["rows"]} == {"IB"}
    assert (told["findings"], told["differs"], told["not_asked"]) == ([], [], {})
    text = cockpit(tmp_path, "ps", name, "--nccl")
    assert "the same for all that say it:" in text
    assert "NET/IB/GDRDMA" in text
    # Nor are its lines in the logs, unless the user has put them there.
    assert ("NCCL INFO" in cockpit(tmp_path, "logs", name)) is own


def test_it_is_asked_of_the_node_where_it_is_not_here(tmp_path: Path) -> None:
    name = run(tmp_path, "--nccl-debug")
    elsewhere = str(tmp_path / "elsewhere")
    found = ["--transport", "local", "-w", "localhost", "--node-dir", str(tmp_path / "nodes")]
    told = json.loads(cockpit(tmp_path, "ps", name, *found, "--nccl", "--json", XDG_STATE_HOME=elsewhere))
    assert [row["network"] for row in told["rows"]] == ["IB", "IB"]


def test_its_warnings_are_the_words_of_the_rank(tmp_path: Path) -> None:
    name = run(tmp_path, "--nccl-debug", code=1, FAILS="1")
    told = json.loads(cockpit(tmp_path, "ps", name, "--json"))
    (found,) = [one for one in told["findings"] if one["ranks"] == "1"]
    assert "Cuda failure 2 'out of memory'" in found["detail"]


def test_nothing_is_known(tmp_path: Path) -> None:
    name = run(tmp_path, "--env", "NCCL_DEBUG=INFO", "--env", f"NCCL_DEBUG_FILE={tmp_path}/mine.%p")
    text = cockpit(tmp_path, "ps", name, "--nccl")
    assert "nothing that NCCL says is known" in text
    assert "--nccl-debug" in text


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
