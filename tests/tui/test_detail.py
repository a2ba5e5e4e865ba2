"""Detail, events and commands, as they stand on the screen."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events
from textual.app import App, ComposeResult
from textual.geometry import Offset
from textual.message import Message
from textual.pilot import Pilot
from textual.selection import SELECT_ALL, Selection

from cockpit.base.answers import EnvironAnswer
from cockpit.base.gate import Malformed, read
from cockpit.core.logs.metrics import Metrics
from cockpit.core.logs.trackers import Tracker
from cockpit.core.nccl.findings import found
from cockpit.core.nccl.reading import Reader
from cockpit.core.pace.pace import Pace
from cockpit.core.recorder.counts import Count
from cockpit.core.rules.table import table
from cockpit.core.run.event_table import Entry
from cockpit.core.run.model import RunModel
from cockpit.core.run.trends import Trends
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.tui.look import themes
from cockpit.tui.look.units import BINARY, DECIMAL, clock_text, number_text
from cockpit.tui.panes.list_pane import ListPane
from cockpit.tui.panes.text_pane import TextPane, fold
from cockpit.tui.run.command_list import CommandList, Ran, launched_commands
from cockpit.tui.run.detail import Detail, detail_lines
from cockpit.tui.run.detail_paper import About, Part
from cockpit.tui.run.event_list import EventList
from tests.happened import happened
from tests.nccl.samples import IB_2_18
from tests.tui.scenes import until

T0 = 1_795_000_000.0
GIB = 1 << 30
HOSTILE = "[/x][@click=app.quit]a\x1b]52;c;aGk=\x07\u202eb\nc"

PLAN = {
    "argv": [
        "deepspeed",
        "--no_ssh",
        "--node_rank",
        "1",
        "--master_addr",
        "gpu01",
        "train.py",
        "--name",
        "a b",
    ],
    "env": {"NCCL_DEBUG": "INFO", "PYTHONUNBUFFERED": "1", "HF_TOKEN": "(secret, 9 characters)"},
    "cwd": "/home/me/train",
    "setup": "source venv/bin/activate",
    "slots": [0, 1],
}
FACTS = {
    "python": "/home/me/train/venv/bin/python",
    "python_version": "3.11.7",
    "torch": "2.9.1",
    "deepspeed": "0.19.8",
    "nsys": None,
    "cores": list(range(64)),
}
ENTRY = NodeEntry("gpu02", "/tmp/cockpit-0/20261121-otter/gpu02", [2, 3], "ssh", "gpu02.cluster", FACTS)


class Run:
    """A run of ranks 0, 1 on gpu01 and 2, 3 on gpu02, as its board keeps it."""

    def __init__(self) -> None:
        self.model, self.trends, self.metrics = RunModel(), Trends(), Metrics()
        self.tell(0, "planned", "", nodes={"gpu01": [0, 1], "gpu02": [2, 3]})

    def tell(self, at: float, kind: str, node: str, **data: Any) -> None:
        event = happened(T0 + at, kind, node, data)
        self.model.apply(event)
        self.trends.take(event)

    def running(self) -> Run:
        """Two minutes of training on gpu02, whose clock is 3 s ahead."""
        self.tell(1, "link", "gpu02", state="ok")
        self.tell(1, "clock", "gpu02", offset_s=3.0, rtt_s=0.022)
        self.tell(5, "launched", "gpu02", dir="/tmp")
        for rank in (2, 3):
            self.tell(9, "rank_started", "gpu02", rank=rank, pid=4000 + rank, attempt=0)
        for second in range(110):
            self.tell(10 + second, "sample", "gpu02", **sample(second))
        for step in range(30):
            line = f"step {step}/5000 loss {2.5 - step / 100} lr 1e-04 step_time 0.118\n"
            self.metrics.feed(3, line.encode(), T0 + 10 + step)
        return self


def sample(second: int = 0) -> dict[str, Any]:
    process = {"cpu_percent": 90.0 + second % 9, "rss_bytes": 30 * GIB + second * GIB // 100, "threads": 45}
    gpus = [gpu(index) for index in range(2)]
    memory = {"memory_bytes": 412 * GIB, "memory_total_bytes": 1008 * GIB}
    return {
        "sample": {"load": 12.4, "cores": 64, **memory, "disk_free_bytes": 1_300 * GIB},
        "ranks": {"2": {**process, "children": 8}, "3": {**process, "children": 8}},
        "gpus": gpus,
    }


def gpu(index: int) -> dict[str, Any]:
    memory = {"memory_bytes": int(79.1 * GIB), "memory_total_bytes": 80 * GIB}
    used = {"utilisation_percent": 96, **memory, "processes": {str(4002 + index): 7}}
    return {"index": index, "name": "NVIDIA H100 80GB HBM3", **used}


class Bench(App[None]):
    """An app of one pane."""

    def __init__(self, pane: TextPane) -> None:
        super().__init__()
        self.pane = pane
        self.heard: list[ListPane.Opened] = []

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return themes.defaults()

    def compose(self) -> ComposeResult:
        yield self.pane

    def on_list_pane_opened(self, message: ListPane.Opened) -> None:
        self.heard.append(message)

    def screen_text(self) -> list[str]:
        """What stands on the screen."""
        pane = self.pane
        return [pane.render_line(y).text.rstrip() for y in range(pane.size.height)]


Script = Callable[[Pilot[None], Bench], Coroutine[Any, Any, None]]


def drive(pane: TextPane, size: tuple[int, int], script: Script) -> None:
    """Run a script over a pane on a terminal of this size."""

    async def main() -> None:
        bench = Bench(pane)
        async with bench.run_test(size=size) as pilot:
            pane.focus()
            await pilot.pause()
            await script(pilot, bench)

    asyncio.run(main())


def about(run: Run, rank: int | None, node: str = "gpu02", **more: Any) -> About:
    """What a detail of gpu02 or a rank of it is made of."""
    fields: dict[str, Any] = {"entry": ENTRY, "plan": PLAN, "environ": None, "now": T0 + 120, **more}
    return About(node, rank, run.model, run.trends, run.metrics, **fields)


def show(pane: Detail, run: Run, rank: int | None, node: str = "gpu02", **more: Any) -> None:
    """Show gpu02 or a rank of it."""
    pane.show(about(run, rank, node, **more))


def drive_detail(
    pane: Detail, run: Run, rank: int | None, script: Script, size: tuple[int, int] = (45, 12), **more: Any
) -> None:
    """Run a script over a detail."""

    async def first(pilot: Pilot[None], bench: Bench) -> None:
        show(pane, run, rank, **more)
        await pilot.pause()
        await script(pilot, bench)

    drive(pane, size, first)


def shown(run: Run, rank: int | None, width: int = 90, *, ascii_only: bool = False, **more: Any) -> list[str]:
    """All lines of a detail of gpu02."""
    pane = Detail(ascii_only=ascii_only)

    async def script(pilot: Pilot[None], bench: Bench) -> None:
        bench.screen_text()  # draws it

    drive_detail(pane, run, rank, script, (width, 24), **more)
    lines = [line.text.rstrip() for line in pane.lines]
    assert max(map(len, lines)) < width, "wider than its pane"
    return lines


def row(lines: list[str], label: str) -> str:
    """The value behind a name."""
    return next(line[len(label) :].strip() for line in lines if line.startswith(f"{label} "))


# A rank


def test_a_slow_rank_says_how_slow_it_is_and_since_when() -> None:
    pace = Pace(range(4))
    for step in range(40):
        for rank in range(4):
            late = 1.0 if rank == 3 and step >= 20 else 0.0
            pace.stepped(rank, step, T0 + 2.0 * step + 0.5 * late)
            pace.worked(rank, step, 2.0 + late)
    page = Tracker("W&B", "https://wandb.ai/ada/gpt/runs/3k1x9s2a")
    lines = shown(Run().running(), 3, pace=pace, pages=[(("gpu01", 0), page)])
    assert lines[0] == "rank 3  gpu02:1  pid 4003  ● running  ▲ slow"
    assert row(lines, "work").endswith("3.00 s  others 2.00 s")
    assert row(lines, "last step") == "39, 42 s ago"
    assert row(lines, "slow") == "+50 % over the median rank since step 20"
    assert "W&B: https://wandb.ai/ada/gpt/runs/3k1x9s2a" in lines
    assert "  in the log of rank 0 on gpu01" in lines
    calm = shown(Run().running(), 2, pace=pace)
    assert calm[0] == "rank 2  gpu02:0  pid 4002  ● running"
    assert row(calm, "work").endswith("2.00 s  others 2.00 s")
    assert not any("slow" in line for line in calm)


def phased(*, works: bool) -> Pace:
    """Rank 3 waits a second for its input in each step, in which the others wait for it."""
    pace = Pace(range(4))
    for step in range(40):
        for rank in range(4):
            late = 0.97 if rank == 3 else 0.0
            phases = (0.05 + late, 0.5, 1.9 - late, 0.1)
            pace.stepped(rank, step, T0 + 2.6 * step, span=2.6, phases=phases)
            if works:
                pace.worked(rank, step, 2.6 if late else 1.63)
    return pace


@pytest.mark.parametrize("width", [30, 45, 80])
def test_where_the_time_of_steps_goes(width: int) -> None:
    lines = shown(Run().running(), 3, width, pace=phased(works=True))
    at = next(at for at, line in enumerate(lines) if line.startswith("phases"))
    indent = 11 if width > 45 else 8
    assert lines[at].split() == ["phases", "█" * min(48, width - 1 - indent)]
    text = " ".join(" ".join(lines[at + 1 :]).split())
    assert text.startswith("input 1.02 fwd 0.50 bwd 0.93 update 0.10 wait 0.00 other 0.04 ")
    assert "since step 0: input 1.02 s, others 0.05 s" in text
    calm = " ".join(shown(Run().running(), 2, pace=phased(works=True)))
    assert "wait 0.97" in calm
    assert "slow" not in calm


def test_waiting_is_not_known_where_recorders_were_not_looked_at() -> None:
    pace = phased(works=False)
    text = "\n".join(shown(Run().running(), 3, pace=pace))
    assert "input 1.02  fwd 0.50  bwd 0.93" in text
    assert "update 0.10  other 0.04" in text
    assert "wait" not in text
    letters = shown(Run().running(), 3, pace=pace, plain=True)
    assert row(letters, "phases").startswith("iiii")
    assert not any(line.startswith("phases") for line in shown(Run().running(), 3, pace=Pace(range(4))))


def test_between_two_looks_at_recorders_a_slow_rank_is_compared_by_its_last_known_work() -> None:
    pace = Pace(range(4))
    for step in range(60):
        for rank in range(4):
            pace.stepped(rank, step, T0 + 2.0 * step, span=3.0)
            if step < 40:
                pace.worked(rank, step, 3.0 if rank == 3 else 2.0)
    lines = shown(Run().running(), 3, pace=pace)
    assert lines[0].endswith("▲ slow")
    assert row(lines, "work").endswith("3.00 s  others 2.00 s")
    assert row(lines, "Pace") == "from the probe, work 42 s ago"
    fresh = shown(Run().running(), 3, pace=phased(works=True))
    assert row(fresh, "Pace") == "from the probe"


def test_the_work_of_a_rank_is_that_of_the_map() -> None:
    pace = Pace(range(4))
    for step in range(40):
        for rank in range(4):
            pace.stepped(rank, step, T0 + 2.0 * step, span=2.0)
            pace.worked(rank, step, 1.9 if step == 39 and rank == 3 else 1.0)
    assert pace.of(3).work == 1.0
    assert row(shown(Run().running(), 3, pace=pace), "work").endswith("1.00 s  others 1.00 s")


def test_a_rank_whose_steps_nobody_tells_says_when_it_went_on() -> None:
    pace, now = Pace(range(4)), T0 + 120
    pace.signs.ran(3, 5.0, 7, now - 30)
    assert row(shown(Run().running(), 3, pace=pace), "activity").startswith("main thread has not run for >")
    pace.signs.ran(3, 6.0, 7, now - 1)
    assert row(shown(Run().running(), 3, pace=pace), "activity") == "main thread last ran ~<2 s ago"
    pace.signs.entered(3, Count(1204, round(1e6 * (now - 43)), 3, round(1e6 * (now - 1))), now)
    lines = shown(Run().running(), 3, pace=pace)
    active = row(lines, "activity")
    assert active.startswith("last collective ~42 s ago, as of ")
    assert active.endswith("(flight recorder)")
    assert row(lines, "entered") == "1,204 collectives"
    assert row(lines, "behind") == "~3 collectives behind"
    ended = Run().running()
    ended.tell(122, "rank_exited", "gpu02", rank=3, code=0, signal=None)
    assert not any("collective" in line for line in shown(ended, 3, pace=pace))


@pytest.mark.parametrize("width", [45, 90])
def test_a_running_rank(width: int) -> None:
    lines = shown(Run().running(), 3, width)
    assert lines[0] == "rank 3  gpu02:1  pid 4003  ● running"
    assert row(lines, "cpu").endswith("91 %  max 98 %")
    # The most it has been is not said if that reads the same.
    assert row(lines, "rss").endswith("▄  31.1 GiB")
    assert row(lines, "gpu").endswith("█  96 %")
    assert row(lines, "vram").endswith("79.1/80.0 GiB")
    assert row(lines, "step").endswith("▅  118 ms")
    # Names, sparklines and values each begin in one column.
    drawn = [next(line for line in lines if line.startswith(label)) for label in ("cpu ", "rss ", "vram ")]
    assert all(line[5] == " " and line[6 : width - 27].strip(" ▁▂▃▄▅▆▇█") == "" for line in drawn)
    assert len({len(line) - len(line.lstrip()) for line in drawn}) == 1
    assert row(lines, "local rank") == "1 on gpu02"
    assert row(lines, "started") == f"{clock_text(T0 + 6, 8)}, runs for 1 min 54 s"
    assert row(lines, "threads") == "45"
    assert row(lines, "children") == "8"
    assert row(lines, "loss") == "2.21"
    assert "reading from gpu02 …" in lines
    assert "deepspeed --no_ssh" in "\n".join(lines)


def test_the_small_pane_leaves_what_stays_to_the_tab() -> None:
    lines = shown(Run().running(), 3, 45, more="3")
    assert lines[-5].startswith("started    ")
    assert lines[-4:-1] == [
        "command    deepspeed --no_ssh --node_rank 1",
        "           --master_addr gpu01 train.py",
        "           --name 'a b'",
    ]
    assert lines[-1] == "3: process, environment, files"
    assert not any("Environment" in line or "threads" in line for line in lines)
    assert shown(Run().running(), None, 45, more="3")[-1] == "3: what was found on it, environment, files"


def test_a_command_is_cut_only_where_rows_are_missing_and_then_names_its_script() -> None:
    sight = about(Run().running(), 3, more="3")
    least = len(detail_lines(sight, 44))
    fits: dict[int, list[str]] = {}

    async def script(pilot: Pilot[None], bench: Bench) -> None:
        for rows in range(least, least + 3):
            await pilot.resize_terminal(45, rows)
            await pilot.pause()
            at = next(at for at, line in enumerate(pane.lines) if line.text.startswith("command"))
            fits[rows] = [line.text[11:] for line in pane.lines[at:-1]]
            assert len(pane.lines) == rows
            assert pane.get_content_height(None, None, 45) == least
            assert pane.rows_cut(45) == 2

    pane = Detail()
    drive_detail(pane, Run().running(), 3, script, (45, 60), more="3")
    first, whole = "deepspeed --no_ssh --node_rank 1 ", "--master_addr gpu01 train.py "
    assert fits[least] == ["deepspeed … train.py --name 'a b'"]
    assert [fits[least + 1][0], fits[least + 2]] == [first, [first, whole, "--name 'a b'"]]
    assert "train.py" in fits[least + 1][1]


def test_no_time_is_left_to_a_run_that_stands_still_or_stops() -> None:
    stands, stops = Run().running(), Run().running()
    assert row(shown(stands, 3, now=T0 + 41), "time left")
    stands.tell(41, "watch", "", state="stalled", since=T0 + 39, still_s=2.0, step=29)
    stops.tell(41, "stop_asked", "", reason="cockpit stop")
    for run in (stands, stops):
        assert not any(line.startswith("time left") for line in shown(run, 3, now=T0 + 41))


def test_the_command_is_the_exact_one() -> None:
    async def script(pilot: Pilot[None], bench: Bench) -> None:
        text = pane.copy_text()
        assert "\ndeepspeed --no_ssh --node_rank 1 --master_addr gpu01 train.py --name 'a b'\n" in text

    pane = Detail()
    drive_detail(pane, Run().running(), 3, script)


def test_a_failed_rank() -> None:
    run = Run().running()
    run.tell(121, "rank_exited", "gpu02", rank=3, code=1, signal=None, attempt=0)
    lines = shown(run, 3)
    assert lines[0].endswith("✖ exited 1")
    assert "last measured before it ended" in lines
    assert row(lines, "ended") == f"{clock_text(T0 + 118)}, exited 1"
    assert row(lines, "started").endswith("ran for 1 min 52 s")
    assert lines[-1] == "reading from gpu02 …"
    lines = shown(run, 3, environ=EnvironAnswer({"RANK": "3", "LOCAL_RANK": "1"}))
    assert "Environment  2 variables its process was started with" in lines
    assert "RANK=3" in lines
    assert shown(run, 3, ascii_only=True)[0].endswith("X exited 1")


def test_attempts() -> None:
    run = Run().running()
    run.tell(121, "rank_started", "gpu02", rank=3, pid=5000, attempt=1, max_restarts=3)
    lines = shown(run, 3)
    assert row(lines, "attempt") == "2 of 4"
    assert not any(line.startswith("cpu ") for line in lines)


def test_old_measurements_are_said_to_be_old() -> None:
    run = Run().running()
    assert not [line for line in shown(run, 3) if "ago" in line]
    run.tell(130, "link", "gpu02", state="stale", why="no answer")
    assert "measured 21 s ago" in shown(run, 3, now=T0 + 140)
    assert row(shown(run, None, now=T0 + 140), "state") == "stale for 10 s: no answer"


def test_before_anything_is_known() -> None:
    lines = shown(Run(), 3, environ=None, plan={}, entry=NodeEntry("gpu02", "/d", [2, 3]))
    assert lines[0] == "rank 3  gpu02:1  · waiting"
    assert lines[-1] == "its process has not started yet"
    assert shown(Run(), 77) == ["no rank 77 in this run"]
    assert shown(Run(), None, node="gone") == ["nothing is selected"]
    run = Run()
    run.tell(5, "launched", "gpu02", dir="/tmp")
    assert "not measured yet" in shown(run, None)
    why = "no measurements: run folder /x: no space"
    run.tell(6, "note", "gpu02", text=why, about="samples")
    assert "no measurements: run folder /x: no space" in shown(run, 3)


def test_the_gpu_is_the_one_the_process_is_on() -> None:
    run = Run().running()
    gpus = [{**gpu(0), "processes": {"4003": 1}, "utilisation_percent": 11}, gpu(5)]
    run.tell(121, "sample", "gpu02", **{**sample(), "gpus": gpus})
    assert row(shown(run, 3), "gpu").endswith("11 %  max 96 %")
    # The driver does not tell whose processes they are: the GPU of the slot.
    gpus = [{**gpu(0), "processes": {}}, {**gpu(1), "processes": {}, "utilisation_percent": 22}]
    run.tell(122, "sample", "gpu02", **{**sample(), "gpus": gpus})
    assert "22 %" in row(shown(run, 3), "gpu")


# The environment


@pytest.mark.parametrize("width", [45, 90])
def test_the_environment(width: int) -> None:
    got = {"NCCL_DEBUG": "WARN", "PATH": "/usr/bin:" * 30, "HF_TOKEN": "(secret, 4 characters)", "B": ""}
    lines = shown(Run().running(), 3, width, environ=read(EnvironAnswer, {"environ": got, "left_out": 7}))
    at = next(number for number, line in enumerate(lines) if line.startswith("Environment"))
    text = "\n".join(lines[at:])
    names = [line.partition("=")[0] for line in lines[at:] if "=" in line]
    assert names == ["HF_TOKEN", "NCCL_DEBUG", "B", "PATH"]  # those of the training first
    assert "HF_TOKEN=(secret, 4 characters)\nNCCL_DEBUG=WARN\n  the launch set INFO\n" in text
    assert "PYTHONUNBUFFERED was set by the launch but is missing" in text.replace("\n", " ")
    assert "7 more are left out: too much for one answer" in text.replace("\n", " ")


def test_why_there_is_no_environment() -> None:
    run = Run().running()
    assert shown(run, 3, environ="no link now")[-1] == "no link now"
    run.tell(121, "link", "gpu02", state="gone", why="no answer")
    assert shown(run, 3)[-1] == "no link to gpu02 to ask for it"


# A node


@pytest.mark.parametrize("width", [45, 90])
def test_a_node(width: int) -> None:
    run = Run().running()
    run.tell(121, "report", "gpu02", name="gpu02.nsys-rep", state="ready", size=210 << 20, text="")
    run.tell(122, "rank_exited", "gpu02", rank=2, code=None, signal=9, attempt=0)
    run.tell(123, "survivors", "gpu02", procs=[{"pid": 7, "name": "python", "state": "D"}])
    run.tell(124, "note", "gpu02", text="something odd")
    lines = shown(run, None, width)
    text = " ".join(lines)
    assert "gpu02  ranks 2-3" in lines[0]
    assert "● 1 running" in text
    assert "■ 1 killed by SIGKILL" in text
    assert row(lines, "load").endswith("12.4 on 64 cores")
    assert row(lines, "mem").endswith("412/1,008 GiB")
    assert row(lines, "disk") == "1.3 TiB free for the run's files"
    heads = [line for line in lines if "80.0 GiB" in line]
    assert [line[:6].split()[0] for line in heads] == ["0", "1"]
    assert row(lines, "state") == "ok for 1 min 59 s"
    assert row(lines, "round trip") == "22 ms"
    assert "3.0 s ahead of ours, give or take 11 ms" in " ".join(text.split())
    assert row(lines, "torch") == "2.9.1"
    assert row(lines, "cores") == "64 (0-63)"
    assert "gpu02.nsys-rep  ready  210 MiB" in lines
    assert "python  pid 7  state D" in lines
    assert "- something odd" in lines
    assert "NCCL_DEBUG=INFO" in lines
    assert not any(line.startswith("nsys ") for line in lines)


@pytest.mark.parametrize("rank", [3, None])
def test_two_panes_beside_each_other_share_it_without_repeating(rank: int | None) -> None:
    run = Run().running()
    run.tell(123, "survivors", "gpu02", procs=[{"pid": 7, "name": "python", "state": "D"}])
    whole, now, rest = ({*shown(run, rank, part=part)} - {""} for part in (Part.ALL, Part.NOW, Part.REST))
    head = "gpu02" if rank is None else f"rank {rank}"  # whose it is, and no more
    assert now | rest == whole | {head}
    assert not now & rest
    changing = "rss   " if rank is not None else "python  pid 7  state D"
    assert any(line.startswith(changing) for line in now)
    assert any("Command" in line for line in rest)


def test_what_the_probe_says() -> None:
    run = Run().running()
    run.tell(121, "supervisor_started", "gpu02", probe="auto")
    assert "probe      waiting for torch to be imported" in shown(run, 3)
    run.tell(122, "rank_probe", "gpu02", rank=3, pid=4003, torch="2.13.0", server=HOSTILE)
    told = {"source": "deepspeed", "step": 1234, "age_s": 2.0, "step_s": 0.5, "steps": []}
    ranks = {"3": {"rss_bytes": 1, "progress": told}}
    run.tell(123, "sample", "gpu02", sample={}, ranks=ranks)
    lines = shown(run, 3, now=T0 + 124)
    assert "step       1,234 of 5,000, ended 3.0 s ago" in lines, "it ages after its sample"
    told_of = phased(works=False)
    counted = shown(run, 3, now=T0 + 124, pace=told_of)
    assert "step       1,234 of 5,000" in counted
    assert row(counted, "last step").endswith(" ago"), "its pace says it, and only that"
    assert "step time  500 ms" in lines
    assert any(line.startswith("probe      on: no recorder: ") for line in lines)
    told["source"] = "optimizer"
    run.tell(124, "sample", "gpu02", sample={}, ranks=ranks)
    assert "step       29 of 5,000, ended 2.0 s ago" in shown(run, 3, now=T0 + 124), (
        "the log's own count continues"
    )


# What nodes send may be anything


@pytest.mark.few(3)
@pytest.mark.parametrize("value", [HOSTILE, None, 5, [HOSTILE], {"x": HOSTILE}, math.nan, math.inf, 10**400])
def test_hostile_fields_break_nothing(value: Any) -> None:
    run = Run().running()
    facts = dict.fromkeys(FACTS, value)
    entry = NodeEntry("gpu02", "/d", [2, 3], "ssh", HOSTILE, facts)
    gpus = [dict.fromkeys(gpu(0), value), value, gpu(1)]
    fields = dict.fromkeys(("load", "memory_bytes", "memory_total_bytes", "disk_free_bytes"), value)
    ranks = {
        "3": dict.fromkeys(
            ("cpu_percent", "rss_bytes", "threads", "children", "main_cpu_s", "main_switches"), value
        )
    }
    told: list[tuple[str, dict[str, Any]]] = [
        ("sample", {"sample": fields, "ranks": ranks, "gpus": gpus}),
        ("note", {"text": value}),
        ("report", {"name": "x", "state": value, "size": 5}),
        ("survivors", {"procs": [{"pid": 7, "name": value, "state": value}]}),
        ("link", {"state": "stale", "why": value}),
        ("launcher_exited", {"code": value}),
    ]
    for at, (kind, data) in enumerate(told, 121):
        with suppress(Malformed):  # what does not pass the gate is not there
            run.tell(at, kind, "gpu02", **data)
    run.metrics.feed(3, b"step 1/2 loss nan lr inf step_time nan tokens/s: 9e999\n", T0 + 127)
    odd = value if isinstance(value, str) else "x"
    environ = read(EnvironAnswer, {"environ": {"A": odd, HOSTILE: HOSTILE}, "left_out": 3})
    for rank in (None, 3):
        for line in shown(run, rank, entry=entry, environ=environ):
            assert line.isprintable(), line


def test_markup_is_text() -> None:
    async def script(pilot: Pilot[None], bench: Bench) -> None:
        assert any("[@click=app.quit]" in line for line in bench.screen_text())
        await pilot.click(pane, offset=(20, 0))
        assert bench.is_running

    pane = EventList()

    async def first(pilot: Pilot[None], bench: Bench) -> None:
        pane.show([Entry(T0, "[/x] [b]bold[/b] [@click=app.quit]here[/]")])
        await pilot.pause()
        await script(pilot, bench)

    drive(pane, (80, 10), first)


# Scrolling and selecting


def test_it_scrolls_and_a_new_subject_begins_at_its_top() -> None:
    run = Run().running()

    async def script(pilot: Pilot[None], bench: Bench) -> None:
        assert bench.screen_text()[0].startswith("rank 3")
        await pilot.press("pagedown")
        assert pane.scroll_offset.y == pane.size.height - 1
        show(pane, run, 3, now=T0 + 121)
        assert pane.scroll_offset.y == pane.size.height - 1
        await pilot.press("end")
        assert bench.screen_text()[-1] == "reading from gpu02 …"
        show(pane, run, 2)
        await pilot.pause()
        assert pane.scroll_offset.y == 0
        assert bench.screen_text()[0].startswith("rank 2")

    pane = Detail()
    drive_detail(pane, run, 3, script)


def test_fewer_lines_than_before_are_never_scrolled_past() -> None:
    run = Run().running()
    long = {"environ": {f"V{number}": "x" for number in range(300)}, "left_out": 0}

    async def script(pilot: Pilot[None], bench: Bench) -> None:
        pane.end()
        show(pane, run, 3, environ="no link now")
        await pilot.pause()
        assert bench.screen_text()[-1] == "no link now"

    pane = Detail()
    drive_detail(pane, run, 3, script, environ=long)


def test_selected_text_is_whole_again() -> None:
    value = "abcdefghij " * 20

    async def script(pilot: Pilot[None], bench: Bench) -> None:
        found = pane.get_selection(SELECT_ALL)
        assert found is not None
        assert f"\nA={value}" in found[0]
        assert found[0] == pane.copy_text()
        found = pane.get_selection(Selection(Offset(0, 0), Offset(6, 0)))
        assert found == ("rank 3", "\n")
        bench.screen.selections = {pane: Selection(Offset(2, 0), Offset(4, 1))}
        await pilot.pause()
        strip = pane.render_line(0)
        style = bench.screen.get_component_rich_style("screen--selection")
        marked = [part.text for part in strip if part.style and part.style.bgcolor == style.bgcolor]
        assert "".join(marked).startswith("nk 3")

    pane = Detail()
    drive_detail(
        pane,
        Run().running(),
        3,
        script,
        environ=read(EnvironAnswer, {"environ": {"A": value}, "left_out": 0}),
    )


@given(st.text(), st.integers(1, 20))
def test_folding_loses_nothing(text: str, columns: int) -> None:
    pieces = fold(text, columns)
    assert "".join(pieces) == text
    assert all(pieces) or pieces == [""]


# Events


def entries(count: int) -> list[Entry]:
    return [Entry(T0 + number, f"event {number}", node="gpu02", rank=number) for number in range(count)]


def test_events_in_the_order_they_happened() -> None:
    pane = EventList()
    told = [
        Entry(T0 + 5.771, "rank 13 on gpu02 exited 1: first failure so far", "error", "gpu02", 13),
        Entry(T0 + 2, "gpu06: link lost", "warning", "gpu06"),
        Entry(T0 + 1, "64/64 ranks running"),
    ]

    async def script(pilot: Pilot[None], bench: Bench) -> None:
        pane.show(told)
        await pilot.pause()
        assert bench.screen_text()[:4] == [
            f"{clock_text(T0 + 1)}   64/64 ranks running",
            f"{clock_text(T0 + 2)} ▲ gpu06: link lost",
            f"{clock_text(T0 + 5.771)} ✖ rank 13 on gpu02 exited 1: first failure so far",
            "",
        ]
        await pilot.resize_terminal(45, 12)
        await pilot.pause()
        assert bench.screen_text()[2:4] == [
            f"{clock_text(T0 + 5, 8)} ✖ rank 13 on gpu02 exited 1: first",
            "           failure so far",
        ]

    drive(pane, (90, 12), script)


def test_events_follow_until_the_cursor_moves() -> None:
    pane = EventList()
    told = entries(50)

    async def script(pilot: Pilot[None], bench: Bench) -> None:
        def newest() -> str:
            return bench.screen_text()[-1].partition("   ")[2]

        assert bench.screen_text()[0] == "nothing has happened yet"
        pane.show(told[:40])
        await pilot.pause()
        assert newest() == "event 39"
        await pilot.press("up")
        assert not pane.following
        assert pane.current == told[38]
        pane.show(told)
        await pilot.pause()
        assert newest() == "event 39"
        # The oldest go: what is read stays where it is.
        pane.show(told[5:])
        await pilot.pause()
        assert newest() == "event 39"
        assert pane.current == told[38]
        assert pane.copy_text().endswith("event 38")
        await pilot.press("home")
        assert pane.current == told[5]
        pane.show(told[20:])
        await pilot.pause()
        assert pane.current == told[20]
        await pilot.press("enter")
        await pilot.press("end")
        assert pane.following
        assert newest() == "event 49"
        await pilot.press("pageup", "pageup", "pagedown", "pagedown", "pagedown")
        assert pane.following

    drive(pane, (80, 10), script)


def test_a_pane_fits_a_size_of_which_no_event_came() -> None:
    class Deaf(EventList):
        """It loses what Textual leaves out: the event of a size that was known before its layout."""

        deaf = False

        def post_message(self, message: Message) -> bool:
            if self.deaf and isinstance(message, events.Resize):
                self.deaf = False
                return False
            return super().post_message(message)

    pane = Deaf()

    async def script(pilot: Pilot[None], bench: Bench) -> None:
        pane.show(entries(12))
        await pilot.pause()
        pane.deaf = True
        pane.styles.height = 5
        await until(pilot, lambda: "event 11" in bench.screen_text()[-1], "the newest is in view")
        assert not pane.deaf
        assert len(bench.screen_text()) == 5

    drive(pane, (60, 20), script)


def test_a_scrollbar_begins_where_the_text_is() -> None:
    pane = EventList()

    async def script(pilot: Pilot[None], bench: Bench) -> None:
        pane.show(entries(50))
        await until(pilot, lambda: pane.show_vertical_scrollbar, "a scrollbar")
        assert pane.vertical_scrollbar.position == pane.scroll_y == 40

    drive(pane, (80, 10), script)


def test_moving_past_the_last_event_follows_again() -> None:
    pane = EventList()

    async def script(pilot: Pilot[None], bench: Bench) -> None:
        pane.show(entries(5))
        await pilot.press("up", "down")
        assert pane.current == entries(5)[4]
        assert not pane.following
        await pilot.press("down")
        assert pane.following

    drive(pane, (80, 10), script)


def test_an_event_is_opened_by_a_double_click() -> None:
    pane = EventList()

    async def script(pilot: Pilot[None], bench: Bench) -> None:
        pane.show(entries(5))
        await pilot.pause()
        await pilot.click(pane, offset=(16, 2))
        assert pane.current == entries(5)[2]
        await pilot.click(pane, offset=(16, 3), times=2)
        await pilot.pause()
        assert [message.pane.current for message in bench.heard] == [entries(5)[3]]

    drive(pane, (80, 10), script)


def test_a_new_day_is_said_once_and_is_no_event() -> None:
    pane = EventList()

    async def script(pilot: Pilot[None], bench: Bench) -> None:
        pane.show([Entry(T0, "one"), Entry(T0 + 86400, "two"), Entry(T0 + 86401, "three")])
        pane.home()
        pane.move(1)
        await pilot.pause()
        lines = bench.screen_text()
        assert [line.split()[-1] for line in lines[:4]] == ["one", "2026", "two", "three"]
        assert [pane.is_marked(y) for y in range(4)] == [False, False, True, False]
        assert pane.copy_text().endswith("two")
        assert "\n" not in pane.copy_text()

    drive(pane, (80, 10), script)


@pytest.mark.parametrize("at", [math.nan, math.inf, -math.inf, 1e300, -1e18])
def test_a_time_that_is_none(at: float) -> None:
    pane = EventList()

    async def script(pilot: Pilot[None], bench: Bench) -> None:
        pane.show([Entry(T0, "one"), Entry(at, "two")])
        await pilot.pause()
        assert any(line.endswith("two") for line in bench.screen_text())

    drive(pane, (80, 10), script)


# Commands


SCRIPT = "#!/bin/bash\ncd -- /home/me || exit 90\nexec deepspeed --no_ssh \\\n  " + "word " * 30 + "\n"


@pytest.mark.parametrize("width", [45, 90])
def test_commands_can_be_read_and_copied(width: int) -> None:
    pane = CommandList()
    told = [Ran(T0, "launch on gpu01", SCRIPT), Ran(T0 + 1, HOSTILE, HOSTILE)]

    async def script(pilot: Pilot[None], bench: Bench) -> None:
        assert bench.screen_text()[0] == "no command has been run yet"
        pane.show(told)
        pane.home()
        await pilot.pause()
        lines = bench.screen_text()
        assert lines[0] == f"{clock_text(T0, 8)} launch on gpu01"
        assert lines[2] == "  cd -- /home/me || exit 90"
        assert pane.copy_text() == SCRIPT.rstrip("\n")
        found = pane.get_selection(SELECT_ALL)
        assert found is not None
        assert SCRIPT in found[0]
        pane.move(1)
        assert pane.current is told[1]
        assert all(line.isprintable() for line in bench.screen_text())
        assert pane.copy_text().isprintable() or "\n" in pane.copy_text()

    drive(pane, (width, 24), script)


def test_what_was_typed_comes_first_and_all_of_it_can_be_pasted(tmp_path: Path) -> None:
    plan = {
        "node": "gpu01",
        "cwd": str(tmp_path),
        "env": {"NCCL_DEBUG": "IN FO", "HF_TOKEN": "(secret, 9 characters)"},
        "run_argv": ["printf", "%s\\n", "@COCKPIT_DIR@/rankwrap", "a b", "$HOME"],
    }
    nodes = [NodeEntry("gpu01", "/tmp/cockpit 0/r/gpu01", [0])]
    typed = ["cockpit", "run", "hosts", "--", "train.py", "a b"]
    manifest = Manifest("r", T0, nodes, "torchrun", ["train.py"], "/", plans=[plan], command=typed)
    first, agent, launch = launched_commands(manifest)
    assert (first.title, first.text) == ("run", "cockpit run hosts -- train.py 'a b'")
    assert "@COCKPIT_DIR@" not in agent.text + launch.text
    for token in ("", "hush"):
        env = {"PATH": os.defpath, **({"HF_TOKEN": token} if token else {})}
        text = launch.text + '\necho "$NCCL_DEBUG $HF_TOKEN"'
        done = subprocess.run(["bash", "-c", text], env=env, capture_output=True, text=True, check=False)
        if token:
            told = ["/tmp/cockpit 0/r/gpu01/rankwrap", "a b", "$HOME", "IN FO hush"]
            assert (done.returncode, done.stdout.splitlines()) == (0, told)
        else:
            assert done.returncode != 0
            assert "HF_TOKEN: is a secret: set it first" in done.stderr
    (only,) = launched_commands(Manifest("r", T0, nodes, "torchrun", ["train.py"], "/"))
    assert only.title == "agent on gpu01", "a manifest of an earlier version"


def test_a_list_that_grows_is_drawn_again() -> None:
    pane = CommandList()
    told = [Ran(T0, "one", "true")]

    async def script(pilot: Pilot[None], bench: Bench) -> None:
        pane.show(told)
        told.append(Ran(T0 + 1, "two", "false"))
        pane.show(told)
        await pilot.pause()
        assert bench.screen_text()[4] == "  false"

    drive(pane, (80, 10), script)


def test_a_command_taller_than_the_pane_is_scrolled_through() -> None:
    pane = CommandList()
    tall = "\n".join(f"line {number}" for number in range(30))

    async def script(pilot: Pilot[None], bench: Bench) -> None:
        pane.show([Ran(T0, "tall", tall), Ran(T0 + 1, "next", "true")])
        pane.home()
        await pilot.pause()
        seen = set(bench.screen_text())
        for _ in range(21):
            await pilot.press("down")
            seen |= set(bench.screen_text())
        assert {f"  line {number}" for number in range(30)} <= seen
        assert pane.copy_text() == tall
        await pilot.press("down")
        assert pane.copy_text() == "true"
        await pilot.press("up", "up")
        assert pane.copy_text() == tall

    drive(pane, (80, 10), script)


# Units


def test_every_number_has_its_unit() -> None:
    sizes = [0, 999, 2048, 512 << 20, 1000 << 20, 31.2 * GIB, 412 * GIB, 1300 * GIB]
    texts = ["0 B", "999 B", "2.0 KiB", "512 MiB", "1.0 GiB", "31.2 GiB", "412 GiB", "1.3 TiB"]
    assert [BINARY.text(size) for size in sizes] == texts
    assert BINARY.part(79.1 * GIB, 80 * GIB) == "79.1/80.0 GiB"
    assert BINARY.part(512 << 20, 80 * GIB) == "0.5/80.0 GiB"
    assert DECIMAL.text(31.2e9) == "31.2 GB"
    assert DECIMAL.part(79.1e9, 1008e9) == "79.1/1,008 GB"
    numbers = [0, 2.341, 41200.4, 0.0001, 0.00002, 13.25, 250.0, 1e9, 8.77e-4, 0.009996, 0.0123]
    assert [number_text(number) for number in numbers] == [
        "0",
        "2.341",
        "41,200",
        "0.0001",
        "2e-05",
        "13.25",
        "250",
        "1e+09",
        "0.000877",
        "0.01",
        "0.0123",
    ]


# NCCL


def nccl(rank: int, text: str = IB_2_18) -> bytes:
    return text.replace(" rank 0 ", f" rank {rank} ").encode()


def told(**other: str) -> dict[str, Any]:
    """What ranks 0 to 3 say of their NCCL; rank 3 another thing."""
    reader = Reader()
    for rank in range(4):
        text = IB_2_18
        for old, new in other.items() if rank == 3 else ():
            text = text.replace(old, new)
        reader.take(nccl(rank, text), rank)
    table = reader.table({rank: f"gpu0{1 + rank // 2}" for rank in range(4)})
    return {"nccl": table, "nccl_wrong": found(table)}


def test_what_nccl_says_is_shown_with_what_differs_first() -> None:
    lines = shown(Run().running(), 3, 90, **told(bond0="docker0"))
    at = lines.index("NCCL  as reported by NCCL")
    assert lines[at + 1] == "bootstrap interface: docker0, most others bond0"
    assert "NCCL uses docker0 on gpu02" in lines[at:]
    assert table().by_id["on-bridge"].means in " ".join(lines[at:])
    text = "\n".join(lines[at:])
    assert "version    NCCL 2.18.6, CUDA 12.1, driver for CUDA 12.2" in text
    assert "to nodes   NET/IB/GDRDMA" in text


def test_a_rank_like_the_others_has_no_difference() -> None:
    lines = shown(Run().running(), 2, 90, **told(bond0="docker0"))
    at = lines.index("NCCL  as reported by NCCL")
    assert lines[at + 1].startswith("version ")
    assert not any("docker0" in line for line in lines)


def test_a_node_has_what_its_ranks_say_together() -> None:
    text = "\n".join(shown(Run().running(), None, 90, **told(bond0="docker0")))
    assert "bootstrap interface: rank 3 docker0, most others bond0" in text
    text = "\n".join(shown(Run().running(), None, 90, **told()))
    assert text.count("network    IB") == 1


def test_nothing_is_said_of_nccl_where_nothing_is_known() -> None:
    assert not any(line.startswith("NCCL ") for line in shown(Run().running(), 3, 90))
