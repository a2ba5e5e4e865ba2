"""The report that a run gets by itself: once, when it has ended and all of it is here."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from cockpit.cli import reporting
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.report.keep import PAGE, TICKET, keep_report
from cockpit.errors import Exit
from tests.cli.verbs import Verbs
from tests.report.made import TOKEN, made
from tests.waiting import until


def kept(folder: RunFolder) -> Path | None:
    return asyncio.run(keep_report(folder))


def test_it_is_written_once() -> None:
    folder = made()
    page = kept(folder)
    assert page == folder.path / PAGE
    text = page.read_text()
    assert "<h2>How it ended</h2>" in text
    assert TOKEN not in text + (folder.path / TICKET).read_text()
    assert page.stat().st_mode & 0o777 == 0o600
    assert kept(folder) is None
    assert RunFolder(folder.path).lock()  # others may write again


def test_not_while_it_goes_on_or_another_cockpit_writes() -> None:
    assert kept(made(over=False)) is None
    folder = made("over")
    other = RunFolder(folder.path)
    assert other.lock()
    assert kept(folder) is None
    other.close()
    assert kept(folder) is not None


def test_what_keeps_it_from_being_written_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made()
    asyncio.run(reporting.at_end(folder, asked=False))
    assert not (folder.path / PAGE).exists()
    (folder.path / TICKET).mkdir()
    asyncio.run(reporting.at_end(folder, asked=True))
    assert "Is a directory" in capsys.readouterr().err
    assert not (folder.path / PAGE).exists()
    (folder.path / TICKET).rmdir()
    monkeypatch.setattr("cockpit.config.Settings.report", True)
    asyncio.run(reporting.at_end(folder, asked=True))
    assert f"report: {folder.path / PAGE}" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_that_nobody_watched_gets_it_at_the_next_attach(
    tmp_path: Path, quick_cockpit: tuple[str, ...]
) -> None:
    world = Verbs(tmp_path / "state", tmp_path / "work", quick_cockpit)
    verb, *words = world.words("left", "while [ ! -e go ]; do sleep 0.1; done\n")
    watcher = world.start(verb, "--report", "--headless", *words[1:])
    journal = world.runs / "left" / "journal.jsonl"
    # Not when its rank has started: until all have, a signal takes the start back.
    until(lambda: journal.exists() and '"link"' in journal.read_text(), "it is watched")
    watcher.send_signal(signal.SIGHUP)
    assert world.end(watcher).code == Exit.LEFT
    page = world.runs / "left" / PAGE
    assert not page.exists()
    (world.work / "go").touch()
    done = world.call("attach", "left", "--headless")
    assert done.code == Exit.OK, done.both
    assert f"report: {page}" in done.err
    assert page.exists()
    assert "report:" not in world.call("attach", "left", "--headless").err


@pytest.mark.slow
def test_a_watched_run_gets_it_at_its_end(tmp_path: Path, quick_cockpit: tuple[str, ...]) -> None:
    world = Verbs(tmp_path / "state", tmp_path / "work", quick_cockpit)
    settings = tmp_path / "config" / "cockpit" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("report = true\n")
    done = world.call(*world.words("well", "echo hello\n"), env={"XDG_CONFIG_HOME": str(tmp_path / "config")})
    assert done.code == Exit.OK, done.both
    assert f"report: {world.runs / 'well' / PAGE}" in done.err
    done = world.call(*world.words("without", "echo hello\n"))
    assert not (world.runs / "without" / PAGE).exists()
