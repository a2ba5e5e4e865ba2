"""``cockpit stop`` waits for nodes that are silent for a while, not for those that stay so."""

from __future__ import annotations

import asyncio
import io
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cockpit.base.answers import StopAnswer
from cockpit.base.verbs import Stop
from cockpit.cli.main import main
from cockpit.cli.verbs import stop
from cockpit.core.run.model import RunModel
from cockpit.engine.links.pool import LinkPool
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.errors import CockpitError, Exit
from cockpit.transport.base import LinkError, Reach
from tests.happened import happened

MANIFEST = Manifest(
    run="r", created=0.0, nodes=[NodeEntry("n", "/tmp/r", [0])], launcher="", program=[], cwd="", pythons=[]
)


@pytest.mark.parametrize(("silent", "code"), [((True, False), Exit.OK), ((True, True), Exit.NODE_UNFIT)])
def test_a_node_that_is_silent_once(
    silent: tuple[bool, ...], code: Exit, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = iter(silent)

    async def asked(*_: Any) -> Any:
        return {"n": StopAnswer(True)}, {}

    async def now(*_: Any, **__: Any) -> Any:
        model = RunModel.of([happened(time.time(), "planned", "", {"nodes": {"n": (0,)}})])
        if next(lost):
            return model, {"n": LinkError("no answer within 15 s", where="n")}
        model.apply(happened(time.time(), "ended", "n", {}))
        return model, {}

    monkeypatch.setattr(stop, "ask_all", asked)
    monkeypatch.setattr(stop, "model_now", now)
    monkeypatch.setattr(stop, "AGAIN_S", 0.0)
    pool = LinkPool([], Reach("local", {}))
    wish = Stop("", "asked", "me", True, None)
    assert asyncio.run(stop._stop(MANIFEST, pool, wish, as_json=False)) is code
    assert next(lost, None) is None


NAMES = ["20261125-220000-otter", "20261126-010000-otter", "20261126-020000-heron", "llama-2", "llama-70b"]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Some runs that are known here."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for number, name in enumerate(NAMES):
        RunFolder.create(replace(MANIFEST, run=name, created=float(number))).close()


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    ("typed", "meant"),
    [*((name, name) for name in NAMES), ("heron", NAMES[2]), ("70b", "llama-70b"), ("last", "llama-70b")],
)
def test_what_is_enough_to_change_a_run(typed: str, meant: str) -> None:
    assert RunFolder.find_for_sure(typed, lambda name: pytest.fail("it asks")).name == meant


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    ("typed", "meant"), [("20261126-02", NAMES[2]), ("a-2", "llama-2"), ("her", NAMES[2])]
)
def test_a_part_is_asked_about(typed: str, meant: str) -> None:
    assert RunFolder.find_for_sure(typed, lambda name: name == meant).name == meant
    with pytest.raises(CockpitError, match=f"{typed}: not a full run name; did you mean: {meant}"):
        RunFolder.find_for_sure(typed, lambda name: False)
    assert RunFolder.find(typed).name == meant  # to look at it


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("typed", ["2", "otter", "llama", "0"])
def test_what_may_be_several_is_refused_with_their_names(typed: str) -> None:
    with pytest.raises(CockpitError, match=f"{typed}: several runs: .*, "):
        RunFolder.find_for_sure(typed, lambda name: pytest.fail("it asks"))


def test_a_number_alone_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    RunFolder.create(replace(MANIFEST, run="llama-2")).close()
    monkeypatch.setattr(stop, "_stop_or_why_not", lambda *_, **__: pytest.fail("it stops"))
    assert main(["stop", "2"]) == Exit.USAGE
    assert "2: not a full run name; did you mean: llama-2" in capsys.readouterr().err


@pytest.mark.parametrize(("typed", "stops"), [("y", True), ("YES", True), ("", False), ("n", False)])
def test_a_person_at_the_terminal_decides(
    typed: str, stops: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    confirmed = partial(stop._confirmed, "llama-2")
    monkeypatch.setattr("sys.stdin", Terminal(f"{typed}\n"))
    assert not confirmed(asks=True)  # stderr is none
    monkeypatch.setattr("sys.stderr", Terminal())
    assert not confirmed(asks=False)
    assert confirmed(asks=True) is stops


@pytest.mark.parametrize(
    "words", [["run", "--name", "last"], ["plan", "--name", "LAST"], ["attach", "--name", "last"]]
)
def test_no_run_is_called_what_means_another(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    verb, *options = words
    rest = [] if verb == "attach" else ["--launcher", "command", "--", "true"]
    assert main([verb, "-w", "localhost:1", *options, *rest]) == Exit.USAGE
    assert "means the newest one; use another --name" in capsys.readouterr().err
