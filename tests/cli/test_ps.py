"""What ``ps`` prints of runs."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import pytest

from cockpit import config
from cockpit.base.events import (
    NodeLost,
    NodeSample,
    Notice,
    Planned,
    Progress,
    RankExited,
    RankProbe,
    RankSample,
    RankStarted,
    Sample,
    SupervisorStarted,
)
from cockpit.cli import run_details
from cockpit.cli.verbs import metrics, ps
from cockpit.core.pace.pace import Pace
from cockpit.core.recorder.counts import Count
from cockpit.core.rules.table import table
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.core.text import columns
from cockpit.engine import briefs
from cockpit.engine.logs.spool import Spool
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.engine.run.front import estimate, front_here
from cockpit.engine.run.join import Pools
from cockpit.engine.run.paces import FILE, PaceBook
from cockpit.engine.stacks import saved
from cockpit.errors import CockpitError
from tests.engine import test_evidence_gathered as evidence
from tests.engine.knownruns import many
from tests.engine.test_session import ENDED, FAILED, lines
from tests.nccl.samples import SOCKET_2_10

PROGRAM = [
    *("train.py", "--data", "/scratch/ada/tokens/2026-11/part-00/train.bin"),
    *("--lr", "3e-4", "--deepspeed", "conf/zero3.json", "--resume", "/scratch/ada/run-7/epoch-12/optim.pt"),
]


def listed(**more: Any) -> None:
    ps._table(
        [
            {
                **{"run": "otter", "state": "ended", "unreachable": [], "ranks": 2, "running": 0},
                **{"standing": "", "step": None, "step_t": None, "step_s": None},
                **{"step_estimated": False, "starting": False},
                **{"started": 1_795_233_881.0, "nodes": ["zeus", "apollo"], "program": PROGRAM},
                **more,
            }
        ]
    )


def test_evidence_that_cannot_be_saved_here_costs_no_more_than_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise CockpitError("cannot write: No space left on device", where="rank-0.json")

    made = evidence.folder()
    now = evidence.model(made)
    evidence.gathered(made, now, gpu01=evidence.Node({evidence.NAME: evidence.GOOD}))
    monkeypatch.setattr(saved, "save", full)
    assert asyncio.run(run_details.evidence(made, now, Pools(0.0), connect=False)) == []
    assert "can't save the evidence of its nodes: rank-0.json: cannot write: No" in capsys.readouterr().err


def test_before_its_first_step_it_is_starting(capsys: pytest.CaptureFixture[str]) -> None:
    listed(state="running", starting=True, running=2, foreign=False)
    assert "otter  starting  2/2" in capsys.readouterr().out


def test_whole_where_no_person_reads_it(capsys: pytest.CaptureFixture[str]) -> None:
    listed()
    assert capsys.readouterr().out.splitlines()[1].endswith("  " + " ".join(PROGRAM))


@pytest.mark.parametrize("width", [80, 120])
def test_on_a_terminal_what_is_cut_is_said_to_be(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    listed()
    _, row = capsys.readouterr().out.splitlines()
    assert columns(row) <= width
    assert "…" in row
    assert row.endswith("/optim.pt"), "what the run went on from"
    listed(program=["train.py"])
    assert capsys.readouterr().out.splitlines()[1].endswith("  train.py")


@pytest.mark.parametrize(
    ("age", "step_s", "running", "shown"),
    [
        (20.0, 1.0, 2, "7"),
        (100.0, 1.0, 2, "7 (1 min 40 s ago)"),
        (100.0, 30.0, 2, "7"),
        (100.0, None, 2, "7 (1 min 40 s ago)"),
        (100.0, 1.0, 0, "7"),
    ],
)
def test_a_step_of_a_live_run_says_how_old_it_is(
    age: float,
    step_s: float | None,
    running: int,
    shown: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    listed(step=7, step_t=1000.0 - age, step_s=step_s, running=running)
    assert f"  {shown}  " in capsys.readouterr().out


def test_a_run_without_a_probe_is_at_the_last_step_of_its_log(capsys: pytest.CaptureFixture[str]) -> None:
    details(capsys, ENDED, b"step 6214/9000 loss 2.3\nstep 6216/9000 loss 2.2\n")
    run = RunModel.of([Event(0.0, "", Planned({"gpu1": (0,)})), Event(1.0, "gpu1", RankStarted(0, pid=7))])
    folder = RunFolder.find("otter")
    book = PaceBook(folder, writer=True)
    for number in (6200, 6210):
        book.pace.stepped(0, number, time.time() + number, exact=False)
    book.close()
    assert front_here(folder, run)["step"] == 6216


def test_where_only_the_console_of_a_job_tells_a_step_that_is_its_step(
    capsys: pytest.CaptureFixture[str],
) -> None:
    details(capsys, ENDED, b"step 6214/9000 loss 2.3\nstep 6216/9000 loss 2.2\n", "launcher.log")
    run = RunModel.of([Event(0.0, "", Planned({"gpu1": (0,)})), Event(1.0, "gpu1", RankStarted(0, pid=7))])
    found = front_here(RunFolder.find("otter"), run)
    assert (found["step"], found["step_estimated"]) == (6216, True)


def test_a_resumed_run_is_where_its_log_says(capsys: pytest.CaptureFixture[str]) -> None:
    """The hook of an optimizer counts from the start of the program; that is said beside its numbers."""
    details(capsys, ENDED, b"step 6214/9000 loss 2.3\nstep 6216/9000 loss 2.2\n")
    run = RunModel.of([Event(0.0, "", Planned({"gpu1": (0,)})), Event(1.0, "gpu1", RankStarted(0, pid=7))])
    folder, pace = RunFolder.find("otter"), Pace((0,))
    pace.stepped(0, 1216, time.time(), span=1.5)
    for relative, step in ((True, 6216), (False, 1216)):
        pace.relative = relative
        run_details.show(folder, run, "running", pace, [], as_json=True)
        told = json.loads(capsys.readouterr().out)
        assert (told["step"], told["steps_since_start"], told["ranks"][0]["step"]) == (step, relative, 1216)
        run_details.show(folder, run, "running", pace, [], as_json=False)
        text = capsys.readouterr().out
        assert ("the run is at step 6,216" in text) == relative
        book = PaceBook(folder, writer=True)
        book.pace.relative = relative
        for number in range(1200, 1217):
            book.pace.stepped(0, number, time.time() + number)
        (folder.path / FILE).unlink(missing_ok=True)
        book.close()
        assert front_here(folder, run)["step"] == step


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize(
    ("ago", "shown"),
    [(12.0, 399), (13.5, 399), (30.0, 387), (3.0, 387), (0.0, 387), (-12.0, 387)],
    ids=["as many steps as there was time for", "printed late", "too few", "too many", "no time", "earlier"],
)
def test_a_live_run_is_where_its_log_says_if_that_counts_as_its_ranks_do(
    capsys: pytest.CaptureFixture[str], ago: float, shown: int, relative: bool
) -> None:
    """What its ranks noted is saved a while later."""
    details(capsys, ENDED, b"step 398/900 loss 2.3\nstep 399/900 loss 2.2\n")
    folder = RunFolder.find("otter")
    run = RunModel.of([Event(0.0, "", Planned({"gpu1": (0,)})), Event(1.0, "gpu1", RankStarted(0, pid=7))])
    book = PaceBook(folder, writer=True)
    book.pace.relative = relative
    for number in range(380, 388):
        book.pace.stepped(0, number, 1501.0 - ago - (387 - number), span=1.0)
    book.close()
    found = front_here(folder, run)
    assert (found["step"], found["step_estimated"]) == (shown, shown == 399)


@pytest.mark.parametrize(("exact", "step"), [(False, 399), (True, 387)])
def test_a_log_goes_on_from_where_its_steps_were_kept(
    capsys: pytest.CaptureFixture[str], exact: bool, step: int
) -> None:
    details(capsys, ENDED, b"step 398/900 loss 2.3\nstep 399/900 loss 2.2\n")
    folder, pace = RunFolder.find("otter"), Pace((0,))
    pace.recall((0, 387), 1400.0, 0.3, {0: 0.3}, count=1, work=False, exact=exact)
    estimate(folder, folder.model(), pace)
    assert (pace.of(0).step, pace.of(0).estimated) == (step, not exact)


def test_nodes_stand_as_in_the_hostfile(capsys: pytest.CaptureFixture[str]) -> None:
    listed()
    assert "  zeus,apollo  " in capsys.readouterr().out


def details(
    capsys: pytest.CaptureFixture[str], record: bytes, log: bytes, name: str = "rank-0.log"
) -> dict[str, Any]:
    """``ps RUN --json`` of a run that is over, by what was copied from its only node.

    :param name: of the log
    """
    node = NodeEntry("gpu1", "/none/gpu1", [0], "local")
    folder = RunFolder.create(Manifest("otter", 1000.0, [node], "command", ["train.py"], "/"))
    spool = Spool(folder.spool_dir(node))
    spool.append("events.jsonl", 0, record)
    spool.append(name, 0, log)
    spool.append("sizes.jsonl", 0, lines(*({"t": 1500 + n, "s": {name: n * len(log)}} for n in (0, 1))))
    spool.close()
    folder.write(Event(2000.0, "gpu1", NodeLost("rebooted")))
    folder.close()
    assert ps.main(["otter", "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def test_a_run_that_failed_has_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    told = details(capsys, FAILED, b"step 3\nRuntimeError: CUDA out of memory\n")
    (found,) = told["findings"]
    assert told["state"] == "failed: rank 0 exited 1"
    assert (found["what"], found["detail"]) == ("rank 0 exited 1", "RuntimeError: CUDA out of memory")
    assert (found["ranks"], found["nodes"]) == ("0", ["gpu1"])
    assert (found["rule"], found["steps"][-1]["command"]) == ("gpu-oom", "cockpit logs otter --rank 0")


def test_without_its_log_the_cause_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = details(capsys, FAILED, b"")["findings"]
    assert (found["what"], found["detail"], found["certainty"]) == ("rank 0 exited 1", "", "unsure")


@pytest.mark.parametrize("wanted", [True, False])
def test_what_nccl_says_is_wrong_is_said_after_why_it_failed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, wanted: bool
) -> None:
    settings = config.Config(lang="zh", notices=config.Notices(nccl=wanted))
    monkeypatch.setattr(config, "load", lambda: settings)
    told = details(capsys, FAILED, SOCKET_2_10.encode() + b"RuntimeError: CUDA out of memory\n")
    assert [one["id"] for one in told["findings"]] == ["failed", "nccl-bridge"][: 1 + wanted]
    assert ps.main(["otter"]) == 0
    text = capsys.readouterr().out
    row = table().by_id["on-bridge"]
    assert (row.zh in text) is wanted
    assert (f"  --env NCCL_SOCKET_IFNAME=eth0: {row.next[0].zh}\n" in text) is wanted


def test_a_run_that_ended_well_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert details(capsys, ENDED, b"RuntimeError: survived\n")["findings"] == []


def test_what_the_probe_of_a_rank_tells(capsys: pytest.CaptureFixture[str]) -> None:
    details(capsys, ENDED, b"")
    run = RunModel.of([Event(0.0, "", Planned({"gpu1": (0,)})), Event(1.0, "gpu1", RankStarted(0, pid=7))])
    run.apply(Event(2.0, "gpu1", SupervisorStarted(probe="auto")))
    run.apply(Event(2.0, "gpu1", RankProbe(0, 7, "2.13.0", handlers=("ping",), steps="OSError: no")))
    sample = RankSample(progress=Progress("deepspeed", 1200, 0.25, 1.5))
    run.apply(Event(3.0, "gpu1", Sample(NodeSample(), {0: sample})))
    pace = Pace((0,))
    pace.stepped(0, 1200, time.time(), span=1.5)
    folder = RunFolder.find("otter")
    run_details.show(folder, run, "running", pace, [], as_json=True)
    (rank,) = json.loads(capsys.readouterr().out)["ranks"]
    assert [rank[name] for name in ("step", "step_s", "step_source")] == [1200, 1.5, "deepspeed"]
    why = "no steps: OSError: no"
    assert rank["probe"] == {"state": "on", "why": why, "handlers": ["ping"], "torch": "2.13.0"}
    run_details.show(folder, run, "running", pace, [], as_json=False)
    header, row = capsys.readouterr().out.splitlines()[-2:]
    assert header.index("STEP ") == row.index("1,200")
    assert header.index("STEP TIME") == row.index("1.5 s")


def test_ranks_whose_steps_nobody_tells(capsys: pytest.CaptureFixture[str]) -> None:
    """Recorders come before main threads; of a rank that has ended there is no sign."""
    details(capsys, ENDED, b"")
    run = RunModel.of([Event(0.0, "", Planned({"gpu1": (0, 1, 2, 3)}))])
    for rank in range(4):
        run.apply(Event(1.0, "gpu1", RankStarted(rank, pid=7 + rank)))
    run.apply(Event(2.0, "gpu1", RankExited(3, code=0)))
    pace, now = Pace(range(4)), time.time()
    for rank, used in ((0, 9.0), (2, 5.0), (3, 9.0)):
        pace.signs.ran(rank, 5.0, 7, now - 60)
        pace.signs.ran(rank, used, 7, now)
    pace.signs.entered(1, Count(1204, round(1e6 * (now - 42.2)), 3, round(1e6 * now)), now)
    folder = RunFolder.find("otter")
    run_details.show(folder, run, "running", pace, [], as_json=True)
    told = [rank["progress"] for rank in json.loads(capsys.readouterr().out)["ranks"]]
    assert [one["source"] for one in told] == ["cpu", "recorder", "cpu", None]
    assert [one["at_least"] for one in told] == [False, False, True, False]
    assert (told[1]["collectives"], told[1]["behind_collectives"]) == (1204, 3)
    assert told[1]["age_s"] == pytest.approx(42.2, abs=1e-3)
    assert told[2]["age_s"] >= 60
    assert (told[3]["age_s"], told[0]["collectives"], told[0]["behind_collectives"]) == (None, None, None)
    run_details.show(folder, run, "running", pace, [], as_json=False)
    text = capsys.readouterr().out
    (header, *rows) = [line for line in text.splitlines() if line.startswith(("RANK", "0", "1", "2", "3"))]
    ages = [row[header.index("AGE") : header.index("BEHIND")].strip() for row in rows]
    assert ages[1] == "~42 s"
    assert ages[2].startswith(">60 s")
    assert (ages[0], ages[3]) == ("~<2 s", "")
    behind = [row[header.index("BEHIND") : header.index("STEP TIME")].strip() for row in rows]
    assert behind == ["", "~3 collectives", "", ""]
    clock = time.strftime("%H:%M:%S", time.localtime(now))
    (first, second) = [line for line in text.splitlines() if line.startswith("no step is known for")]
    last = "AGE is since its last collective, as of"
    assert first == f"no step is known for rank 1: {last} {clock} (flight recorder)"
    assert second.startswith(
        "no step is known for ranks 0,2: AGE is since their main threads last ran; > means"
    )


@pytest.mark.parametrize(("ended", "behind"), [(True, None), (False, 30)])
def test_a_rank_that_has_ended_is_behind_nobody(
    ended: bool, behind: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    details(capsys, ENDED, b"")
    run = RunModel.of([Event(0.0, "", Planned({"gpu1": (0, 1)}))])
    for rank in (0, 1):
        run.apply(Event(1.0, "gpu1", RankStarted(rank, pid=7 + rank)))
    if ended:
        run.apply(Event(2.0, "gpu1", RankExited(1, code=3)))
    pace, now = Pace((0, 1)), time.time()
    for step in range(1, 51):
        pace.stepped(0, step, now - 50 + step)
        if step <= 20:
            pace.stepped(1, step, now - 50 + step)
    folder = RunFolder.find("otter")
    run_details.show(folder, run, "running", pace, [], as_json=True)
    told = json.loads(capsys.readouterr().out)["ranks"]
    assert [one["behind_steps"] for one in told] == [0, behind]
    run_details.show(folder, run, "running", pace, [], as_json=False)
    assert ("30 steps" in capsys.readouterr().out) == (not ended)


def test_where_the_progress_of_a_rank_is_known_from(capsys: pytest.CaptureFixture[str]) -> None:
    details(capsys, ENDED, b"")
    run = RunModel.of([Event(0.0, "", Planned({"gpu1": (0, 1)})), Event(1.0, "gpu1", RankStarted(0, pid=7))])
    sample = RankSample(progress=Progress("deepspeed", 12, 0.25, 1.5))
    run.apply(Event(3.0, "gpu1", Sample(NodeSample(), {0: sample})))
    pace, now = Pace((0, 1)), time.time()
    pace.stepped(0, 12, now - 5)
    pace.stepped(1, 12, now - 5, exact=False)
    run_details.show(RunFolder.find("otter"), run, "running", pace, [], as_json=True)
    told = [rank["progress"] for rank in json.loads(capsys.readouterr().out)["ranks"]]
    assert [one["source"] for one in told] == ["deepspeed", "log"]
    assert all(one["age_s"] >= 5 for one in told)
    assert all(one["collectives"] is one["behind_collectives"] is None for one in told)


def test_a_slow_rank_that_only_who_watches_knows_of_yet_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    details(capsys, ENDED, b"")
    run = RunModel.of([Event(0.0, "", Planned({"gpu1": (0, 1)})), Event(1.0, "gpu1", RankStarted(0, pid=7))])
    what = "rank 1 slow since step 2: 0.26 s, others 0.06 s"
    run.apply(Event(time.time() - 5, "", Notice("slow", "1", what, certainty="sure", ranks=(1,))))
    pace = Pace((0, 1))
    for step in range(20):
        for rank in range(2):
            pace.stepped(rank, step, time.time() - 20 + step, span=1.0)
    run_details.show(RunFolder.find("otter"), run, "running", pace, [], as_json=False)
    assert what in capsys.readouterr().out
    for step in range(20):
        for rank in range(2):
            pace.worked(rank, step, 0.5)  # whoever knows of work knows that nobody is slow
    run_details.show(RunFolder.find("otter"), run, "running", pace, [], as_json=False)
    assert what not in capsys.readouterr().out


def test_work_that_is_read_from_the_folder_here_is_about_what_it_was(
    capsys: pytest.CaptureFixture[str],
) -> None:
    details(capsys, ENDED, b"")
    run = RunModel.of([Event(0.0, "", Planned({"gpu1": (0, 1, 2)}))])
    for rank in range(3):
        run.apply(Event(1.0, "gpu1", RankStarted(rank, pid=7 + rank)))
        sample = RankSample(progress=Progress("deepspeed", 20, 0.25, 1.5))
        run.apply(Event(3.0, "gpu1", Sample(NodeSample(), {rank: sample})))
    folder, pace, now = RunFolder.find("otter"), Pace(range(3)), time.time()
    for step in range(21):
        for rank in range(3):
            pace.stepped(rank, step, now - 1.5 * (20 - step), span=1.5)
    for step in range(11):
        seconds = {0: 0.5, 1: 0.5, 2: 1.0}
        pace.recall((0, step), now, 1.5, seconds, count=1, work=True, exact=True)
    run_details.show(folder, run, "running", pace, [], as_json=False)
    _header, *rows = capsys.readouterr().out.split("RANK")[1].splitlines()[:4]
    assert [row.split("~")[1].split()[0] for row in rows] == ["500", "500", "1.0"]
    assert "+100 %" in rows[2]
    run_details.show(folder, run, "running", pace, [], as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert [rank["work_s"] for rank in told["ranks"]] == [0.5, 0.5, 1.0]
    assert told["ranks"][0]["work_age_s"] == pytest.approx(15, abs=3)
    assert [found["what"] for found in told["findings"]] == ["rank 2 is slow"]


@pytest.mark.parametrize("verb", [run_details, metrics], ids=["ps", "metrics"])
def test_work_of_a_run_that_is_not_kept_yet_is_asked_for_once(
    monkeypatch: pytest.MonkeyPatch, verb: Any
) -> None:
    details = Manifest("otter", 0.0, [NodeEntry("zeus", "/none", [0, 1])], "command", ["train.py"], "/")
    folder, asked = RunFolder.create(details), []

    async def model_now(*_: object, paces: PaceBook, **__: object) -> tuple[RunModel, dict[str, Any]]:
        run = RunModel.of([Event(0.0, "", Planned({"zeus": (0, 1)}))])
        for rank in range(2):
            run.apply(Event(1.0, "zeus", RankStarted(rank, pid=7 + rank)))
            run.apply(Event(2.0, "zeus", RankProbe(rank, 7 + rank, "2.13.0", handlers=("fr_trace_json",))))
            paces.pace.stepped(rank, 1, time.time())
        return run, {}

    async def glance(party: object, pace: Pace) -> None:
        asked.append(party)
        pace.worked(1, 1, 1.5)

    async def started(*_: object) -> tuple[str, list[str]]:
        return "", []

    monkeypatch.setattr(verb, "model_now", model_now)
    monkeypatch.setattr(verb, "glance_at_work", glance)

    async def story() -> Pace:
        if verb is metrics:
            monkeypatch.setattr(metrics, "started", started)
            monkeypatch.setattr(RunFolder, "lock", lambda folder: False)
            return (await metrics._now(folder, connect=True))[1].pace
        monkeypatch.setattr(run_details, "start_state", started)
        async with Pools(1.0) as pools:
            return (await run_details.now(folder, pools, connect=True))[2]

    pace = asyncio.run(story())
    assert len(asked) == 1
    assert pace.of(1).work == 1.5


def test_all_runs_are_as_without_the_index_and_read_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    many(5, time.time())

    def rows(*words: str) -> list[dict[str, Any]]:
        assert ps.main([*words, "--json", "--no-connect"]) == 0
        told: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        return told

    plain = rows()
    assert [row["run"] for row in plain] == [f"run-000{at}" for at in range(5)]
    assert rows("--all") == plain
    monkeypatch.setattr(briefs, "brief_here", lambda folder: pytest.fail(f"{folder.name} is read again"))
    assert rows("--all") == plain
    assert (plain[1]["word"], plain[1]["code"], plain[1]["over"]) == ("failed", 1, True)
