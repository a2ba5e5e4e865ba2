"""A second user's folders in every verb: what they say is shown, and nothing in them is run or followed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cockpit import paths
from cockpit.base import owners
from cockpit.cli.main import VERBS, main
from cockpit.engine.files import open_regular
from cockpit.engine.records.folder import RunFolder
from cockpit.errors import CockpitError

RUN = "teamjob"
WORDS = {
    "ps": [["ps"], ["ps", RUN], ["ps", "--json"], ["ps", RUN, "--json"]],
    "attach": [["attach", RUN, "--plain"], ["attach", "last", "--headless"]],
    "logs": [["logs", RUN], ["logs", RUN, "-f"], ["logs", RUN, "--rank", "0", "--raw"]],
    "metrics": [["metrics", RUN], ["metrics", RUN, "--json"]],
    "stacks": [["stacks", RUN], ["stacks", RUN, "--list"]],
    "profile": [["profile", RUN], ["profile", RUN, "--kind", "cpu"]],
    "stop": [["stop", RUN], ["stop", RUN, "--now"], ["stop", "last", "--foreign"]],
    "collect": [["collect", RUN], ["collect", RUN, "*.log"]],
    "doctor": [["doctor", "-w", "localhost", "--transport", "local", "--timeout", "20"]],
    "plan": [["plan", "-w", "localhost:1", "--launcher", "command", "--", "true"]],
    "clean": [
        ["clean", RUN, "--yes"],
        ["clean", "--older-than", "0s", "--unended", "--yes"],
        ["clean", "--json"],
    ],
    "where": [["where"]],
    "report": [["report", RUN], ["report", RUN, "--json"], ["report", RUN, "--md"]],
    "compare": [["compare", RUN, RUN], ["compare", RUN, "--json"]],
    "replay": [["replay", RUN, "--at", "end"], ["replay", RUN, "--at", "end", "--json"]],
    "explain": [["explain", RUN], ["explain", RUN, "--json"]],
    "completion": [
        ["completion", "--words", "--", "stop", ""],
        ["completion", "--words", "--", "logs", RUN, "--rank", ""],
    ],
}
"""What is typed, by verb; ``config``, ``run`` and ``demo`` look at no other run."""

SHOWS = {
    "ps",
    "clean",
    "logs",
    "metrics",
    "doctor",
    "plan",
    "where",
    "explain",
    "report",
    "completion",
    "compare",
    "replay",
}
"""Verbs that need no connection to the nodes of a run."""

CASES = [words for each in WORDS.values() for words in each]
WAYS = ["python", "proxy"]


@pytest.fixture
def laid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Makes a run whose manifest names a program; returns the file that this program makes."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def make(way: str) -> Path:
        trap, sign = tmp_path / "trap", tmp_path / "sprung"
        trap.write_text(f"#!/bin/sh\ntouch {sign}\nexit 1\n")
        trap.chmod(0o755)
        config = tmp_path / "ssh_config"
        config.write_text(f"Host *\n  ProxyCommand {trap}\n")
        transport = {"python": "local", "proxy": "ssh"}[way]
        node = {"name": "gpu01", "dir": f"/tmp/cockpit-9/{RUN}/gpu01", "ranks": [0], "transport": transport}
        manifest: dict[str, Any] = {
            "run": RUN,
            "created": time.time(),
            "nodes": [node],
            "launcher": "command",
        }
        manifest |= {"program": ["train.py"], "cwd": "/", "format": 1, "transport": transport}
        manifest["pythons"] = [str(trap)] if way == "python" else ["/usr/bin/python3"]
        manifest["transport_options"] = {} if way == "python" else {"config": str(config)}
        folder = tmp_path / "state/cockpit/runs" / RUN
        spool = folder / "spool/0000-gpu01"
        spool.mkdir(parents=True)
        (spool / "rank-0.log").write_text("step 1\n")
        (folder / "manifest.json").write_text(json.dumps(manifest))
        planned = {"t": time.time(), "e": "planned", "node": "", "nodes": {"gpu01": [0]}}
        (folder / "journal.jsonl").write_text(json.dumps(planned) + "\n")
        return sign

    return make


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose files they are is another user."""
    monkeypatch.setattr(owners, "is_ours", lambda uid: uid == 4242)
    monkeypatch.setattr("cockpit.engine.records.folder.other_owner", lambda folder: "mallory")


def test_every_verb_is_tried() -> None:
    assert {*WORDS, "config", "run", "demo"} == set(VERBS)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("words", CASES, ids=" ".join)
@pytest.mark.usefixtures("second")
def test_nothing_of_it_is_run(
    laid: Callable[[str], Path], words: list[str], way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sign = laid(way)
    before = sorted(paths.runs().rglob("*"))
    code = main(words)
    told = capsys.readouterr()
    assert not sign.exists()
    assert sorted(paths.runs().rglob("*")) == before
    assert "internal error" not in told.err
    if words[0] in SHOWS or "--list" in words:
        assert code in (0, 1) or (words[0], code) == ("compare", 2), "there is one run alone"
    else:
        assert code == 3
        assert "belongs to" in told.err
        assert "to ask its nodes yourself: cockpit attach HOSTFILE" in told.err
    if words[0] == "logs":
        assert "step 1" in told.out


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_of_a_run_of_ours_it_would_be(laid: Callable[[str], Path], way: str) -> None:
    sign = laid(way)
    main(["ps"])
    assert sign.exists()


@pytest.mark.parametrize("loose", ["folder", "manifest.json"])
def test_a_run_of_ours_that_others_may_write_is_theirs(laid: Callable[[str], Path], loose: str) -> None:
    sign = laid("python")
    path = paths.runs() / RUN
    path = path if loose == "folder" else path / loose
    path.chmod(0o777)
    assert "anybody may write to" in RunFolder(paths.runs() / RUN).manifest.closed
    assert main(["ps"]) == 0
    assert not sign.exists()


@pytest.mark.usefixtures("second")
def test_nothing_is_made_below_a_state_folder_of_another(
    laid: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    laid("python")
    words = ["run", "-w", "localhost:1", "--transport", "local", "--launcher", "command", "--headless"]
    assert main([*words, "--name", "mine", "--", "true"]) == 2
    assert "belongs to" in capsys.readouterr().err
    assert not (paths.runs() / "mine").exists()


def test_links_of_another_lead_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/rank-0.log").write_text("mine")
    (tmp_path / "spool").symlink_to("secret")
    os.close(open_regular(tmp_path / "spool/rank-0.log"))  # a link of ours
    monkeypatch.setattr(owners, "is_ours", lambda uid: False)
    with pytest.raises(OSError, match="is a link that"):
        open_regular(tmp_path / "spool/rank-0.log")
    os.close(open_regular(tmp_path / "secret/rank-0.log"))


def test_the_last_run_is_one_of_ours(laid: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    laid("python")
    theirs = json.loads((paths.runs() / RUN / "manifest.json").read_text()) | {"run": "b", "created": 4e9}
    (paths.runs() / "b").mkdir()
    (paths.runs() / "b/manifest.json").write_text(json.dumps(theirs))
    assert RunFolder.find("last").name == "b"
    owner = {"b": "mallory"}
    monkeypatch.setattr("cockpit.engine.records.folder.other_owner", lambda path: owner.get(path.name, ""))
    assert RunFolder.find("last").name == RUN
    owner[RUN] = "mallory"
    assert RunFolder.find("last").name == "b"
    with pytest.raises(CockpitError, match="no such run"):
        RunFolder.find("c")
