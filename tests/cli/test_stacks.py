"""``cockpit stacks`` as it is typed: what is meant, what is printed, what is kept; with nodes made up."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import sys
import unicodedata
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cockpit.base.stacks import kinds
from cockpit.base.stacks.dump import Child, Dump, Frame, Process, Thread
from cockpit.base.stacks.packing import dump_json, pack
from cockpit.cli import job_options
from cockpit.cli.output import StatusLine
from cockpit.cli.verbs import stacks
from cockpit.core.stacks import verdict
from cockpit.core.stacks.snapshot import Place, Sample, Snapshot
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest
from cockpit.engine.stacks import saved, take
from cockpit.errors import CockpitError, Exit
from tests.engine.test_stacks import MAIN, Answer, FakeLink, FakeParty, dump
from tests.waiting import soon

WAITS = Frame("all_reduce", "torch/distributed/distributed_c10d.py", 10)


CTRL_C = "Ctrl-C"
"""Among the parts of an answer: the person presses it, and the node says nothing more."""


class Talk(Answer):
    """A stream that gives these parts; it waits where one is a condition."""

    def __init__(self, told: Sequence[Any]) -> None:
        super().__init__()
        self.told = told

    async def parts(self) -> AsyncIterator[tuple[dict[str, Any], bytes]]:
        for part in self.told:
            if isinstance(part, bytes):
                yield {}, part
            elif callable(part):
                await soon(part)
            else:
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder of the test's own."""
    made = tmp_path / "here"
    made.mkdir()
    monkeypatch.chdir(made)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A snapshot: rank 1 is elsewhere, the others wait for it."""
    ranks = {rank: Place("gpu01", rank, 1000 + rank) for rank in range(4)}
    dumps = {rank: dump(rank, *((MAIN,) if rank == 1 else (MAIN, WAITS))) for rank in ranks}
    samples = [Sample(at, dict(dumps), {}, 0.1) for at in (10.0, 12.0)]
    snapshot = Snapshot("20261121-040000", "a job", "", ranks, samples)
    made = saved.new_folder(tmp_path / "kept", snapshot)
    saved.save(snapshot, made)
    return made


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the one node of the job of ``hostfile`` answers to each sample; it has ranks 0 and 1."""
    told: list[Any] = []

    class Link(FakeLink):
        async def stream(self, request: Any) -> Answer:
            return Talk(told)

    @asynccontextmanager
    async def party(*args: object) -> AsyncIterator[FakeParty]:
        yield FakeParty([Link("gpu01")])

    monkeypatch.setattr(job_options, "party", party)
    Path("hostfile").touch()
    return told


def a_run(name: str) -> None:
    """A run that had no node."""
    RunFolder.create(Manifest(name, 1.0, [], "command", ["train.py"], "/"))


# -- what is meant -----------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["", "/", "/snapshot.json", "/rank-0.json"])
def test_a_snapshot_is_opened_by_its_folder_or_a_file_of_it(
    folder: Path, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stacks.main([f"{folder}{file}"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("rank 1 ")
    assert "\nrank 1: " in out
    assert "\n3 ranks 0,2-3: " in out
    assert "1970" in err
    assert "a job" in err


def test_inferred_ranks_have_a_mark_and_a_word_everywhere(
    folder: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = saved.load(folder)
    for rank in (0, 1):
        snapshot.ranks[rank] = replace(snapshot.ranks[rank], inferred="order")
    saved.save(snapshot, folder)
    said = "~ ranks 0-1 are inferred: in the order in which they were started"
    assert stacks.main([str(folder)]) == 0
    text = capsys.readouterr().out
    for line in (
        said,
        "rank ~1: ",
        "3 ranks ~0,2-3: ",
        "~0-3    <module>",
        "  likely",
        "- rank 1 is inferred: process 1001 on gpu01",
    ):
        assert line in text, text
    assert stacks.main([str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [rank["inferred"] for rank in told["ranks"].values()] == ["order", "order", "", ""]
    assert told["verdict"]["certainty"] == "likely"
    for option, word in (("--html", said), ("--speedscope", "ranks ~0,2-3")):
        assert stacks.main([str(folder), option, "page"]) == 0
        assert word in (here / "page").read_text()


def test_the_app_needs_a_terminal_before_anybody_is_asked(job: list[Any], folder: Path) -> None:
    for target in ("hostfile", str(folder)):
        with pytest.raises(CockpitError, match="--tui needs a terminal"):
            stacks.main([target, "--tui"])
    assert job == []


def test_a_page_of_a_snapshot(folder: Path, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert stacks.main([str(folder), "--html", "page.html"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "written: page.html" in err
    text = (here / "page.html").read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert "rank 1 is not in all_reduce" in text or "rank 1 did not join all_reduce" in text


@pytest.mark.parametrize("target", ["x" * 5000, "a/" + "x" * 300, "./none", "a\0/b", "none", ""])
def test_what_is_not_there_is_said(target: str) -> None:
    with pytest.raises(CockpitError) as caught:
        stacks.main([target])
    assert caught.value.code == Exit.USAGE


def test_a_name_is_that_of_the_run_and_a_path_is_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    a_run("otter")
    Path("otter").symlink_to(folder)
    taken: list[object] = []

    async def take(meant: object, args: object) -> int:
        taken.append(meant)
        return 0

    monkeypatch.setattr(stacks, "_take", take)
    stacks.main(["otter"])
    assert isinstance(taken[0], RunFolder)
    assert "./otter" in capsys.readouterr().err
    assert stacks.main(["./otter"]) == 0
    assert capsys.readouterr().out.startswith("rank 1 ")
    assert len(taken) == 1


def test_options_of_a_hostfile_do_not_go_with_a_run() -> None:
    a_run("otter")
    with pytest.raises(CockpitError, match="--include needs a hostfile"):
        stacks.main(["otter", "--include", "gpu01"])


# -- snapshots ---------------------------------------------------------------------------------------


def test_of_a_snapshot_only_these_ranks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert stacks.main([str(folder), "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert whole["verdict"]["ranks"] == "1"
    assert stacks.main([str(folder), "--json", "--ranks", "1"]) == 0
    part = json.loads(capsys.readouterr().out)
    assert list(part["ranks"]) == ["1"]
    assert [one["ranks"] for one in part["classes"]] == ["1"]
    assert part["verdict"] == whole["verdict"]
    with pytest.raises(CockpitError, match="no rank 7; it has 0-3"):
        stacks.main([str(folder), "--ranks", "1,7"])


def test_what_a_snapshot_lacks_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert stacks.main([str(folder), "--native", "--locals"]) == 0
    assert "without C frames and local variables" in capsys.readouterr().err


def test_the_folder_says_which_ranks_did_not_come_along(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "rank-3.json").unlink()
    assert stacks.main([str(folder)]) == 1
    assert "  3: rank-3.json cannot be read" in capsys.readouterr().out


# -- samples -----------------------------------------------------------------------------------------


def test_local_variables_that_were_asked_for_are_printed(
    job: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    first = dump(0)
    (main,) = first.threads
    other = Thread("loader", 0, False, False, (MAIN,))
    job.append(pack([replace(first, threads=(main._replace(locals=({"loss": "nan"}, {})), other)), dump(1)]))
    assert stacks.main(["hostfile", "--samples", "1", "--locals"]) == 0
    text = capsys.readouterr().out
    assert "loss = nan" in text
    assert "thread loader" not in text
    assert stacks.main(["hostfile", "--samples", "1", "--threads", "all"]) == 0
    assert "thread loader" in capsys.readouterr().out


def test_stacks_that_cannot_be_kept_are_shown(
    job: list[Any], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job.append(pack([dump(0), dump(1)]))
    with pytest.raises(CockpitError, match="cannot make a folder"):
        stacks.main(["hostfile", "--interval", "0", "--json", "-o", str(here / "hostfile" / "x")])
    told = json.loads(capsys.readouterr().out)
    assert told["snapshot"] == ""
    assert list(told["ranks"]) == ["0", "1"]


def test_who_may_not_write_where_snapshots_are_kept_gets_the_stacks(
    job: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job.append(pack([dump(0), dump(1)]))
    monkeypatch.setenv("XDG_STATE_HOME", str(Path("hostfile").absolute()))
    assert stacks.main(["hostfile", "--interval", "0", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["snapshot"] == ""
    assert "not saved: " in err
    assert "to save it in a folder of yours: -o DIR" in err


def test_a_file_that_cannot_be_written_costs_no_samples(
    job: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    job.append(pack([dump(0), dump(1)]))
    with pytest.raises(CockpitError, match=r"none/x: cannot write"):
        stacks.main(["hostfile", "--samples", "1", "--folded", "none/x"])
    where = capsys.readouterr().err.rpartition("snapshot: ")[2].strip()
    assert list(saved.load(Path(where)).ranks) == [0, 1]


def test_the_next_step_can_be_typed(job: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    job += [pack([dump(0, MAIN, WAITS), dump(1, MAIN)])]
    stacks.main(["hostfile", "--samples", "1"])
    assert f"next: {FakeParty.command} --samples 3  (what moves)" in capsys.readouterr().out


def test_ctrl_c_shows_and_keeps_what_has_come(job: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    job += [pack([dump(0)]), CTRL_C]
    assert stacks.main(["hostfile", "--json"]) == Exit.LEFT
    out, err = capsys.readouterr()
    assert json.loads(out)["missing"] == {"1": "gpu01: cancelled before it answered"}
    assert "left at sample 1 of 2" in err
    kept = saved.load(Path(err.rpartition("snapshot: ")[2].strip()))
    assert list(kept.samples[0].dumps) == [0]


def test_a_snapshot_that_is_full_is_shown_as_it_is(
    job: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job.append(pack([dump(0), dump(1)]))
    monkeypatch.setattr(take, "SNAPSHOT_LIMIT", 5000)
    assert stacks.main(["hostfile", "--json", "--samples", "9", "--interval", "0"]) == Exit.OK
    out, err = capsys.readouterr()
    assert "this snapshot is full (1 sample, 0 MB)" in err
    assert len(json.loads(out)["samples"]) == 1


def test_a_reader_that_went_away_is_met_before_the_end(
    job: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job.append(pack([dump(0), dump(1)]))
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        with pytest.raises(BrokenPipeError):
            stacks.main(["hostfile", "--samples", "1"])
        os.dup2(os.open(os.devnull, os.O_WRONLY), writer)
    assert "snapshot: " in capsys.readouterr().err


# -- for programs ------------------------------------------------------------------------------------


def test_every_field_and_word_is_in_the_docs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stacks.main([str(folder), "--json"])
    told = json.loads(capsys.readouterr().out)
    inner = [told["samples"][0], told["verdict"], told["classes"][0], told["ranks"]["0"]]
    names = [name for part in (told, *inner, verdict.KINDS, kinds.KINDS) for name in part]
    page = (Path(__file__).parents[2] / "docs/stacks.md").read_text()
    words = set(re.findall(r"`(\w+)`", page.partition("## For programs")[2]))
    assert [name for name in names if name not in words] == []


# -- progress ----------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """A terminal in place of stderr."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
        super().__init__()
        monkeypatch.setattr(sys, "stderr", self)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", str(columns))

    def isatty(self) -> bool:
        return True


def test_a_terminal_is_told_which_node_is_waited_for(job: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch, 80)
    text = "\r\x1b[Ksample 1 of 2: 1 of 2 ranks, waiting for gpu01\r\x1b[K"
    job += [pack([dump(0)]), lambda: text in terminal.getvalue(), CTRL_C]
    assert stacks.main(["hostfile", "--json"]) == Exit.LEFT
    assert text in terminal.getvalue()


def test_progress_fits_the_line_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch, 30)
    progress = StatusLine()
    progress.show("a" * 80)
    progress.clear()
    assert terminal.getvalue() == "\r\x1b[K" + "a" * 29 + "\r\x1b[K"
    monkeypatch.setenv("TERM", "dumb")
    StatusLine().show("a")
    assert terminal.getvalue().count("a") == 29


EVIL = [
    "\x1b]0;title\x07\x1b[31mred",
    "\x1b]52;c;cm0gLXJm\x07",
    "\u202egnp.exe\u200b\u2028",
    "\ud800\udfff lone",
    "\x00\x08\x7f\x9b31m\r\n\t;",
    "</pre><script>alert(1)</script>",
    "e" + "\u0301" * 200,
]
FORMS = [
    ["--threads", "all"],
    ["--text"],
    ["--json"],
    ["--folded", "-"],
    ["--speedscope", "-"],
    ["--html", "-"],
]


def evil_dump(rank: int, evil: str) -> Dump:
    """A dump every text of which is hostile."""
    thread = Thread(
        evil, 1, True, True, (Frame(evil, f"./{evil}", 1), Frame("f", evil, 2)), ({evil: evil}, {})
    )
    process = Process(5, 6, evil, evil, evil, evil, children=(Child(7, evil, evil, (thread,)),))
    return Dump(rank, 1.0, process, evil, (thread, thread), evil, evil, evil, evil, (evil, evil))


def harmless(out: str) -> None:
    """Nothing in it but lines of text that a terminal shows as they are."""
    out.encode()
    odd = {
        char for char in out if char != "\n" and unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    }
    assert not odd
    assert "<script" not in out or "<html" not in out


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form[0])
def test_whatever_a_node_sends_is_text(
    job: list[Any], capsys: pytest.CaptureFixture[str], form: list[str]
) -> None:
    for evil in EVIL:
        job[:] = [pack([evil_dump(0, evil), evil_dump(1, evil + "2")])]
        assert stacks.main(["hostfile", "--samples", "1", "--locals", "--children", *form]) == Exit.OK
        out, err = capsys.readouterr()
        harmless(out)
        harmless(err)
        kept = Path(err.rpartition("snapshot: ")[2].strip())
        assert stacks.main([str(kept), *form]) == Exit.OK
        again = capsys.readouterr().out
        harmless(again)
        assert again


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form[0])
def test_whatever_is_in_a_folder_is_text(
    folder: Path, capsys: pytest.CaptureFixture[str], form: list[str]
) -> None:
    for evil in EVIL:
        head = json.loads((folder / "snapshot.json").read_text())
        head.update(name=evil, title=evil, run=evil, version=evil)
        head["options"] = {evil: True}
        for sample in head["samples"]:
            sample["silent"] = {evil: evil}
        for place in head["ranks"].values():
            place.update(node=evil, why=evil)
        (folder / "snapshot.json").write_text(json.dumps(head))
        for rank in (0, 1):
            told = [dump_json(evil_dump(rank, evil)) for _ in head["samples"]]
            (folder / f"rank-{rank}.json").write_text(json.dumps({"samples": told}))
        stacks.main([str(folder), *form])
        for text in capsys.readouterr():
            harmless(text)
            assert text


def test_snapshots_of_single_nodes_are_shown_as_one(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    later = saved.load(folder)
    for sample in later.samples:
        sample.at += 60
        del sample.dumps[0]
    other = saved.new_folder(tmp_path / "later", later)
    saved.save(later, other)
    assert stacks.main([str(folder), str(other / "snapshot.json")]) == Exit.OK
    out, err = capsys.readouterr()
    assert f"ranks 1-3: in {folder} and in {other}, which is newer and is used" in err
    assert "taken 60 s apart" in err
    assert "these snapshots were taken 60 s apart" in out
    with pytest.raises(CockpitError, match="is not a snapshot"):
        stacks.main([str(folder), str(tmp_path)])
    monkeypatch.setattr("cockpit.cli.terminal.needed", lambda: None)
    with pytest.raises(CockpitError, match="--tui shows one snapshot"):
        stacks.main([str(folder), str(other), "--tui"])
