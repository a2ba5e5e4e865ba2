"""``cockpit metrics``: all numbers of a run, from its file of steps and from the whole of its log."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from cockpit import paths
from cockpit.base.events import Complete
from cockpit.cli.main import main
from cockpit.cli.verbs.metrics import NOTHING, SPARK
from cockpit.core.pace.series import COLUMNS
from cockpit.core.run.events import Event
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import planned
from cockpit.engine.run import work_unknown
from cockpit.engine.run.paces import FILE, PaceBook
from cockpit.private import private_dir
from cockpit.tui.look.spark import BLOCKS
from cockpit.tui.look.spark import STEPS as STEPS_ASCII
from tests.engine.books import CREATED, Writer, run_folder
from tests.engine.test_session import ENDED

STEPS = 400
URL = "https://wandb.ai/ada/gpt/runs/3k1x9s2a"

Prepare = Callable[[RunFolder], None]


def made(prepare: Prepare = lambda folder: None) -> RunFolder:
    """A run of four ranks on two nodes that has ended."""
    private_dir(paths.runs())
    folder = run_folder(paths.runs() / "a-run", {"gpu1": [0, 1], "gpu2": [2, 3]})
    folder.lock()
    folder.write(planned(folder.manifest))
    prepare(folder)
    for node in folder.manifest.nodes:
        spool = folder.spool_dir(node)
        private_dir(spool)
        (spool / "events.jsonl").write_bytes(ENDED)
        folder.write(Event(CREATED + 2 * STEPS, node.name, Complete()))
    folder.close()
    return folder


def prints(folder: RunFolder) -> None:
    """Ranks print every step; rank 0 also more text than the beginning and the end of a log are."""
    writer = Writer(folder)
    writer.write("gpu1", 0, f"wandb: 🚀 View run at {URL}?apiKey=secret\n".encode())
    writer.tick(CREATED)
    for step in range(1, STEPS + 1):
        for rank in range(4):
            loss = "nan" if step == 300 else f"{3 - step / 200:.3f}"
            line = f"step {step}/{STEPS} | loss: {loss} | lr: 1.00e-04 | samples/s: 12.5\n"
            writer.write(
                "gpu1" if rank < 2 else "gpu2", rank, line.encode() + b"x" * 1000 * (rank == 0) + b"\n"
            )
        writer.tick(CREATED + 2 * step + 0.2)
    writer.close()


def steps(folder: RunFolder) -> None:
    """The ranks note their steps; rank 2 is slow from step 100 on."""
    book = PaceBook(folder, writer=True)
    for step in range(1, STEPS + 1):
        for rank in range(4):
            book.pace.stepped(rank, step, CREATED + 2 * step)
            book.pace.worked(rank, step, 1.8 if rank == 2 and step >= 100 else 1.2)
    book.close()


def both(folder: RunFolder) -> None:
    prints(folder)
    steps(folder)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    assert main(["metrics", "a-run", *words]) == 0
    out, err = capsys.readouterr()
    return out, err


def test_the_csv_has_a_row_a_step_with_all_columns(capsys: pytest.CaptureFixture[str]) -> None:
    made(both)
    out, err = printed(capsys, "--csv")
    found = list(csv.DictReader(io.StringIO(out)))
    assert list(found[0]) == list(COLUMNS)
    assert [int(row["step"]) for row in found] == list(range(1, STEPS + 1))
    row = found[199]
    assert (row["step_s"], row["work_s"], row["slowest_s"], row["slowest_rank"]) == ("2.0", "1.2", "1.8", "2")
    assert (row["slow"], row["ranks"], row["estimated"]) == ("2:0.500", "4", "0")
    assert (float(row["t"]), row["log_step"], row["loss"]) == (CREATED + 400, "200", "2.0")
    assert (row["lr"], row["samples_s"], row["tokens_s"]) == ("0.0001", "12.5", "")
    assert found[299]["loss"] == "nan"
    assert err == ""


def test_the_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    made(both)

    def strict(constant: str) -> Any:
        raise AssertionError(f"{constant} is not JSON")

    told = json.loads(printed(capsys, "--json")[0], parse_constant=strict)
    assert (told["run"], told["ranks"], told["log"]) == ("a-run", 4, {"node": "gpu1", "rank": 0})
    assert told["pages"] == [{"name": "W&B", "url": URL, "node": "gpu1", "rank": 0}]
    assert len(told["steps"]) == STEPS
    assert told["steps"][299]["loss"] == "nan"
    assert told["steps"][299]["slow"] == [{"rank": 2, "excess": 0.5}]


def test_people_get_a_short_table(capsys: pytest.CaptureFixture[str]) -> None:
    made(both)
    out, _ = printed(capsys)
    assert f"found in its logs:\n  W&B: {URL} (rank 0 on gpu1)\n" in out
    table = {line.split("  ")[0]: line.split() for line in out.splitlines()}
    assert table["loss"][1:4] == ["1", "1", "2.995"], "the smallest is not NaN"
    assert table["work"][1:7] == ["1.2", "s", "1.2", "s", "1.2", "s"]
    assert table["slowest rank"][-2:] == ["rank", "2"]
    assert "rank 2  in 301 of 400 steps" in out


def lately(folder: RunFolder) -> None:
    """Of the last steps nobody has looked at recorders yet: whole steps are compared in them."""
    book = PaceBook(folder, writer=True)
    for step in range(1, STEPS + 1):
        for rank in range(4):
            slow = rank == 1 and step > STEPS - 20
            book.pace.stepped(rank, step, CREATED + 2 * step, span=3.0 if slow else 2.0)
            if step <= STEPS - 20:
                book.pace.worked(rank, step, 1.8 if rank == 2 else 1.2)
    book.close()


def test_who_is_slow_is_told_by_work_where_that_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    made(lately)
    out, _ = printed(capsys)
    (line,) = [line for line in out.splitlines() if line.startswith("slowest rank")]
    assert line.split()[2:4] == ["1.8", "s"]
    assert line.endswith("  rank 2")
    assert f"rank 2  in {STEPS - 20} of {STEPS - 20} steps" in out
    assert "rank 1 " not in out


def falls(folder: RunFolder) -> None:
    book = PaceBook(folder, writer=True)
    for step in range(1, STEPS + 1):
        for rank in range(4):
            book.pace.stepped(rank, step, CREATED + 2 * step, span=2.0 if step < 100 else 1.0)
    book.close()


def test_a_curve_is_of_the_whole_run(capsys: pytest.CaptureFixture[str]) -> None:
    made(falls)
    (line,) = [line for line in printed(capsys)[0].splitlines() if line.startswith("step time")]
    curve = line.split()[-1]
    assert len(curve) == SPARK
    assert curve[0] in BLOCKS[-1] + STEPS_ASCII[-1]
    assert curve[SPARK // 2] in BLOCKS[0] + STEPS_ASCII[0]


def test_without_the_probe_times_are_those_of_lines(capsys: pytest.CaptureFixture[str]) -> None:
    made(prints)
    found = list(csv.DictReader(io.StringIO(printed(capsys, "--csv")[0])))
    assert len(found) == STEPS
    assert float(found[9]["t"]) == pytest.approx(CREATED + 20.2)
    assert (found[9]["step"], found[9]["log_step"]) == ("10", "10")
    assert (found[9]["estimated"], found[9]["ranks"], found[9]["step_s"]) == ("1", "", "")
    assert f"step {STEPS}" in printed(capsys)[0]


@pytest.mark.parametrize("form", ["--csv", "--json", ""])
def test_without_any_number_it_says_so(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    made()
    out, err = printed(capsys, *form.split())
    assert NOTHING in (err if form else out)
    if form == "--csv":
        assert out == ",".join(COLUMNS) + "\n"
    if form == "--json":
        assert json.loads(out)["steps"] == []


def test_two_forms_at_once_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["metrics", "a-run", "--csv", "--json"])
    assert caught.value.code == 2
    assert "not allowed with" in capsys.readouterr().err


def test_a_damaged_file_costs_its_lines_alone(capsys: pytest.CaptureFixture[str]) -> None:
    folder = made(both)
    file = folder.path / FILE
    good = file.read_bytes().splitlines(keepends=True)
    junk = [
        b"[1,2\n",
        b"\xff\xfe\n",
        b'[0,3,1,1,"0-99999999",1,1,1,1,1,true,true,false,[]]\n',
        b"{}\n",
        b"\n",
    ]
    file.write_bytes(b"".join([*good[:50], *junk, *good[50:]]) + b"[0,9")
    found = list(csv.DictReader(io.StringIO(printed(capsys, "--csv")[0])))
    assert {int(row["step"]) for row in found} == set(range(1, STEPS + 1))


def test_what_cannot_be_read_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    folder = made(steps)
    (folder.spool_dir(folder.manifest.nodes[0]) / "rank-0.log").mkdir()
    out, err = printed(capsys, "--csv")
    assert len(out.splitlines()) == STEPS + 1
    assert "rank-0.log" in err
    assert "cannot read the spool" in err


def test_a_log_of_anything_prints_nothing_odd(capsys: pytest.CaptureFixture[str]) -> None:
    def odd(folder: RunFolder) -> None:
        writer = Writer(folder)
        writer.write("gpu1", 0, b"step 1 loss 2.0\x1b]0;title\x07\n" + b"step 9" * 200_000 + b"\xff\x00\n")
        writer.write("gpu1", 0, b"step 99999999999999999999 loss 1e999\nstep 2 loss -inf\n")
        writer.write("gpu1", 0, b"TensorBoard 2.0 at http://gpu1:6006/\x1b]52;c;x\x07\r\n" * 100)
        writer.tick(CREATED + 1)
        writer.close()

    made(odd)
    for form in ((), ("--csv",), ("--json",)):
        out, err = printed(capsys, *form)
        assert all(char.isprintable() or char == "\n" for char in out + err)


def test_ps_knows_the_steps_of_a_run_that_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    made(both)
    assert main(["ps", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["step"], row["step_t"], row["step_estimated"]) == (STEPS, CREATED + 2 * STEPS, False)
    assert main(["ps", "a-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["step"] == STEPS
    assert [page["url"] for page in told["pages"]] == [URL]
    ranks = {rank["rank"]: rank for rank in told["ranks"]}
    assert ranks[2]["slow"] == {"excess": pytest.approx(0.5, abs=0.01), "since_step": 100, "reason": None}
    assert ranks[2]["work_s"] == pytest.approx(1.8)
    assert (ranks[0]["slow"], ranks[0]["step_source"], ranks[0]["behind_s"]) == (None, "kept", None)
    assert main(["ps", "a-run"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("2 ")]
    assert "+50 %" in line


def test_ps_says_why_work_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    folder = made(steps)
    work_unknown.keep(folder.path, {0: "a recorder does not go back that far", 9: "of no rank of this run"})
    assert main(["ps", "a-run", "--json"]) == 0
    ranks = {rank["rank"]: rank for rank in json.loads(capsys.readouterr().out)["ranks"]}
    assert (ranks[0]["work_why"], ranks[1]["work_why"]) == ("a recorder does not go back that far", "")
    # Of ranks that have ended nobody asks any more.
    assert main(["ps", "a-run"]) == 0
    assert "is not known" not in capsys.readouterr().out


def lags(folder: RunFolder) -> None:
    steps(folder)
    file = folder.path / FILE
    file.write_bytes(file.read_bytes().replace(b"true,true,false,false,[", b"true,true,true,false,["))


def test_on_nccl_programs_are_told_of_enqueue_lag_and_of_no_work(capsys: pytest.CaptureFixture[str]) -> None:
    made(lags)
    assert main(["ps", "a-run", "--json"]) == 0
    ranks = {rank["rank"]: rank for rank in json.loads(capsys.readouterr().out)["ranks"]}
    assert (ranks[2]["slow"], ranks[2]["work_s"]) == (None, None)
    assert ranks[2]["late"] == {"excess": pytest.approx(0.5, abs=0.01), "since_step": 100, "reason": None}
    assert ranks[2]["enqueue_lag_s"] == pytest.approx(0.6)
    assert main(["ps", "a-run"]) == 0
    out = capsys.readouterr().out
    assert "ENQUEUE LAG" in out
    assert "WORK" not in out
    assert main(["metrics", "a-run"]) == 0
    out = capsys.readouterr().out
    assert "CPUs that enqueue at least 15 % later than the median rank" in out
    assert "\n15 % slower" not in out


def test_ps_reads_steps_from_logs_if_nothing_else_tells_them(capsys: pytest.CaptureFixture[str]) -> None:
    made(prints)
    assert main(["ps"]) == 0
    assert f"~{STEPS}" in capsys.readouterr().out
    assert main(["ps", "a-run", "--json"]) == 0
    rank = json.loads(capsys.readouterr().out)["ranks"][3]
    assert (rank["step"], rank["step_estimated"], rank["step_source"]) == (STEPS, True, "log")


def test_it_only_reads() -> None:
    folder = made(both)
    before = {path: path.stat().st_mtime_ns for path in folder.path.rglob("*")}
    assert main(["metrics", "a-run"]) == 0
    assert {path: path.stat().st_mtime_ns for path in folder.path.rglob("*")} == before
