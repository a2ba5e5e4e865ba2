"""A profiler around each rank: a stand-in for nsys starts ranks in a session of its own, or fails to.

With the real one: ``tests/profile/test_per_rank.py``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cockpit.base import record
from cockpit.node import procfs, usermask
from cockpit.node.run import leftovers, profiled, rank_profiler
from tests.node.conftest import Launch
from tests.node.runs import Run, alive, command, program
from tests.waiting import until

# It knows one option, and passes on neither open files nor the reason of an end. What it runs has a session
# of its own and signals blocked.
STAND_IN = r"""#!/bin/bash
while [ "$1" != -o ]; do shift; done
out=$2
shift 2
echo $$ >>"$COCKPIT_DIR"/nsys."$RANK".pid
case $FAKE in
  fails) exit 3 ;;
  once) [ -e "$COCKPIT_DIR"/tried."$RANK" ] || { touch "$COCKPIT_DIR"/tried."$RANK"; exit 1; } ;;
  hangs) exec sleep 1000 ;;
esac
umask 0
trap '' TERM INT
setsid env INSIDE=nsys %(python)s -c '
import os, signal, sys
os.closerange(3, 100)
signal.signal(signal.SIGUSR2, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.execvp(sys.argv[1], sys.argv[1:])' "$@" &
wait $!
while [ -e "$COCKPIT_DIR"/slow ]; do sleep 0.05; done
[ "$FAKE" = silent ] || echo report >"$out".nsys-rep
""" % {"python": sys.executable}

WAITS = """trap 'echo got TERM; exit 6' TERM
echo ready
while :; do sleep 0.05; done
"""


@pytest.fixture
def profiling(launch: Launch, tmp_path: Path) -> Any:
    """Start a run of two ranks below the stand-in."""
    nsys = tmp_path / "nsys"
    nsys.write_text(STAND_IN)
    nsys.chmod(0o755)

    def start(text: str, ranks: str = "0-1", fake: str = "", words: str = "", **facts: Any) -> Run:
        path = program(tmp_path / "rank", text)
        asked = {"before": [str(nsys)], "sampler": ["-x"], "samplers": [0], "report": "t.node1"}
        return launch(
            f"export FAKE={fake}\n" + command(2, path),
            profile={"nsys": str(nsys), "report": "reports/t.node1", "ranks": ranks},
            files={record.AROUND: words or json.dumps(asked)},
            **facts,
        )

    return start


def ends(run: Run) -> dict[int, tuple[int | None, int | None, str]]:
    return {one["rank"]: (one["code"], one["signal"], one["by"]) for one in run.events("rank_exited")}


def pid(run: Run, rank: int) -> int:
    return int(run.event("rank_started", rank=rank)["pid"])


def nsys_of(run: Run, rank: int) -> int:
    return int((run.folder / f"nsys.{rank}.pid").read_text().split()[-1])


def test_a_rank_is_as_without_a_profiler(profiling: Any) -> None:
    run = profiling("echo $$ $INSIDE $(umask); kill -USR2 $$; exit 7")
    run.ended()
    assert ends(run) == dict.fromkeys(range(2), (None, signal.SIGUSR2, "wrapper"))
    for rank in range(2):
        assert run.log(rank).split()[:3] == [str(pid(run, rank)), "nsys", f"{usermask.theirs() or 0o22:04o}"]
        assert run.event("report", name=f"t.node1.rank-{rank}.nsys-rep")["state"] == "ready"
    assert not run.events("report", state="missing")
    assert not run.events("stage", stage="sweep")


def test_only_listed_ranks(profiling: Any) -> None:
    run = profiling("echo inside:$INSIDE; exit 7", ranks="1")
    run.ended()
    assert [run.log(rank) for rank in range(2)] == ["inside:\n", "inside:nsys\n"]
    assert ends(run) == dict.fromkeys(range(2), (7, None, "wrapper"))
    assert [one["name"] for one in run.events("report", state="ready")] == ["t.node1.rank-1.nsys-rep"]


def test_signals_reach_the_rank_once_and_its_profiler_gets_its_time(profiling: Any) -> None:
    run = profiling(WAITS, grace_s=5)
    for rank in range(2):
        run.says(rank, "ready")
    (run.folder / "slow").touch()
    run.stop()
    over = time.monotonic() + 5
    run.event("stage", stage="finalising")
    until(lambda: time.monotonic() > over, "the time that ranks have to end is over")
    until(lambda: not alive(int(run.event("launcher_started")["pid"])), "the launcher has ended")
    assert [run.log(rank) for rank in range(2)] == ["ready\ngot TERM\n"] * 2
    assert not run.events("ended")
    (run.folder / "slow").unlink()
    run.ended()
    assert ends(run) == dict.fromkeys(range(2), (6, None, "wrapper"))
    assert len(run.events("report", state="ready")) == 2


def test_a_hard_stop_waits_for_no_report(profiling: Any) -> None:
    run = profiling(WAITS)
    for rank in range(2):
        run.says(rank, "ready")
    (run.folder / "slow").touch()
    run.stop(hard=True)
    run.ended()
    assert not any(alive(nsys_of(run, rank)) for rank in range(2))
    why = "its profiler was ended by signal 9 before it wrote a report"
    texts = [one["text"] for one in run.events("report", state="missing")]
    assert texts == [f"rank {rank}: {why}" for rank in range(2)]


def test_a_rank_dies_with_its_wrapper(profiling: Any) -> None:
    run = profiling(WAITS)
    for rank in range(2):
        run.says(rank, "ready")
    os.kill(run.event("rank_started", rank=0)["wrapper"], signal.SIGKILL)
    until(lambda: not alive(pid(run, 0)), "the rank has ended")
    assert alive(pid(run, 1))
    os.kill(pid(run, 1), signal.SIGTERM)
    run.ended()
    assert run.event("report", state="ready", name="t.node1.rank-0.nsys-rep")


def test_a_killed_profiler_costs_its_report_alone(profiling: Any) -> None:
    run = profiling(WAITS)
    for rank in range(2):
        run.says(rank, "ready")
    os.kill(nsys_of(run, 0), signal.SIGKILL)
    found = run.folder / record.rank_profiler(0, 0)
    until(lambda: json.loads(found.read_text())["status"] == signal.SIGKILL, "the wrapper has noticed")
    assert all(alive(pid(run, rank)) for rank in range(2))
    run.stop()
    run.ended()
    assert ends(run)[0] == (6, None, "wrapper")
    [lost] = run.events("report", state="missing")
    assert lost["name"] == "t.node1.rank-0.nsys-rep"
    assert lost["text"] == "rank 0: its profiler was ended by signal 9 before it wrote a report"


@pytest.mark.slow
def test_without_inner_a_rank_has_no_parent_and_dies(profiling: Any) -> None:
    run = profiling(WAITS, ranks="0")
    for rank in range(2):
        run.says(rank, "ready")
    found = procfs.stat(pid(run, 0))
    assert found is not None
    os.kill(found.parent, signal.SIGKILL)
    until(lambda: ends(run).get(0), "its end")
    run.stop()
    run.ended()
    [end] = run.events("rank_exited", rank=0)
    assert (end["code"], end["signal"]) == (None, signal.SIGKILL)
    assert not run.events("rank_lost")


@pytest.mark.few(1)
@pytest.mark.parametrize("fake", ["once", "fails"])
def test_a_profiler_that_fails_before_it_starts_anything(profiling: Any, fake: str) -> None:
    run = profiling("echo inside:$INSIDE; exit 7", fake=fake)
    run.ended()
    inside = "inside:nsys\n" if fake == "once" else "inside:\n"
    assert [run.log(rank) for rank in range(2)] == [inside] * 2
    assert ends(run) == dict.fromkeys(range(2), (7, None, "wrapper"))
    if fake == "fails":
        notes = {one["text"] for one in run.events("note")}
        why = "nsys ended with status 3 before it had started it; see launcher.log"
        assert {f"rank {rank} runs without its profiler: {why}" for rank in range(2)} <= notes
        texts = [one["text"] for one in run.events("report", state="missing")]
        why = "its profiler ended with status 3 without a report; see launcher.log"
        assert texts == [f"rank {rank}: {why}" for rank in range(2)]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "words",
    [
        "[]",
        "{",
        "{}",
        '{"report": 3, "sampler": [], "samplers": [], "before": []}',
        '{"before": null}',
        '{"report": "a", "sampler": [], "samplers": [], "before": ["/none/nsys"]}',
    ],
)
def test_damaged_words_cost_the_report_alone(profiling: Any, words: str) -> None:
    run = profiling("exit 7", words=words)
    run.ended()
    assert ends(run) == dict.fromkeys(range(2), (7, None, "wrapper"))
    assert sum("runs without its profiler: " in one["text"] for one in run.events("note")) == 2
    assert len(run.events("report", state="missing")) == 2


def test_a_profiler_that_hangs_does_not_keep_a_rank_from_ending(profiling: Any) -> None:
    run = profiling("sleep 1000", fake="hangs")
    for rank in range(2):
        until((run.folder / f"nsys.{rank}.pid").exists, "nsys hangs")
    run.stop()
    run.ended()
    assert not any(alive(nsys_of(run, rank)) for rank in range(2))


def test_a_window_that_never_began_is_said(profiling: Any) -> None:
    run = profiling("exit 0", fake="silent")
    run.ended()
    texts = {one["text"] for one in run.events("report", state="missing")}
    assert texts == {
        f"rank {rank}: its profiler ended without a report; see launcher.log" for rank in range(2)
    }
    assert profiled.hint({"range": "nvtx"}) == "nsys recorded nothing: it waited for nvtx"


def test_ranks_are_found_without_a_run_folder(profiling: Any) -> None:
    run = profiling(WAITS, ranks="1")
    for rank in range(2):
        run.says(rank, "ready")
    found = leftovers.find(str(run.folder), run.run, run.node).ranks
    assert {rank: identity[0] for rank, identity in found.items()} == {r: pid(run, r) for r in range(2)}


@pytest.mark.parametrize(
    ("wanted", "attempt", "name"),
    [
        ("a", 0, "a.rank-3"),
        ("a.%q{RANK}", 0, "a.3"),
        ("a.%q{RANK}", 2, "a.3.attempt-3"),
        ("%q{JOB}_%p", 0, "7_x_%p"),
        ("%q{NOTHING}b", 0, "b.rank-3"),
        ("%q{JOB", 0, "%q{JOB.rank-3"),
        ("../%q{JOB}", 0, ".._7_x.rank-3"),
    ],
)
def test_names(monkeypatch: pytest.MonkeyPatch, wanted: str, attempt: int, name: str) -> None:
    monkeypatch.setenv("JOB", "7/x")
    assert rank_profiler.report_name(wanted, 3, attempt) == name


@pytest.mark.parametrize(
    ("text", "own", "ranks"),
    [("0-3,7", [2, 3, 4, 7], [2, 3, 7]), ("", [0], []), ("x,-,1-,9-x", [0, 1, 9], [1, 9])],
)
def test_listed(text: str, own: list[int], ranks: list[int]) -> None:
    assert profiled.listed({"ranks": text}, own) == ranks


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"rank": 1},
        {"report": "../x"},
        {"pid": -1},
        {"status": "9"},
        {"ticks": 1 << 80},
    ],
)
def test_hostile_records_are_not_believed(tmp_path: Path, facts: dict[str, Any]) -> None:
    told = {"rank": 0, "attempt": 0, "pid": os.getpid(), "ticks": 1, "status": 0, "report": "a"}
    name = record.rank_profiler(0, 0)
    (tmp_path / name).write_text(json.dumps({**told, **facts} if facts else []))
    (tmp_path / record.REPORTS).mkdir()
    (tmp_path / record.REPORTS / "a.nsys-rep").touch()
    found = profiled.Profilers(str(tmp_path), [0])
    found.look([name, "rank-0.profiler.x.json", "rank-1.profiler.json"])
    assert not found.writing()
    assert found.missing(str) == [("rank-0.nsys-rep", "rank 0: its profiler was not started")]
