"""The table of events: each kind has a definition, a clock, a reducer and a sentence, or none on purpose."""

from __future__ import annotations

import pytest

from cockpit.base import events
from cockpit.base.events import OWN, RECORD, Fact, RecordLine, read_line
from cockpit.core.run.event_table import TABLE, Entry, WhoseClock, our_time, witnessed
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.core.run.timeline import Timeline

AHEAD = 100.0
"""Seconds that the clock of b is ahead of ours."""

OF_EACH_KIND: tuple[Fact, ...] = (
    events.SupervisorStarted(pid=4),
    events.LauncherStarted(pid=5),
    events.RankStarted(0, pid=6),
    events.RankExited(0, code=1),
    events.RankLost(0, why="nobody saw it"),
    events.RankProbe(0, 6, "2.13.0"),
    events.EvidenceKept("failure", "20261123-031200-failure.evidence", 7, stacks=(1,), failed=(0,)),
    events.RankSteps(0, 6, "optimizer", (events.StepSample(7, 1e9, 0.5),)),
    events.LauncherExited(code=1),
    events.StopRequested("enough", "ada"),
    events.Stage("term"),
    events.Report("a.nsys-rep", state="ready"),
    events.Survivors((events.Survivor(7, "python", "D"),)),
    events.Note("the clock jumped"),
    events.Ended(),
    events.Planned({"a": (0,)}),
    events.Launched("/tmp/run/a"),
    events.LinkChanged("ok"),
    events.ClockMeasured(0.5),
    events.Sample(events.NodeSample()),
    events.Filling("", 90, 100, full_at=1e9),
    events.Notice("disk", "gpu01", "the disk of gpu01 is full", 1e9, due=1e9 + 600, certainty="likely"),
    events.Saved(1200, 11.0),
    events.Watched(
        "stalled", 1.0, 30.0, 7, found=events.SavedFinding("lock", "rank 0 waits for a lock", (0,))
    ),
    events.Profiled(3, "x", "torch", (0,), (1,), 812, 5),
    events.SupervisorGone(),
    events.NodeLost("rebooted"),
    events.Gap("rank-0.log", 100, 7),
    events.Damaged(3),
    events.RankGone(0, pid=6, why="others started it"),
    events.StopAsked("enough"),
    events.RestKept(),
    events.JobEnded("SLURM ended job 12 at its time limit"),
    events.Complete(),
    events.Left(),
)
NO_CHANGE = {"launcher_started", "rank_steps", "saved", "left"}
"""Kinds that change no node and no rank."""

NO_NEWS = {
    "supervisor_started",
    "rank_probe",
    "rank_steps",
    "launcher_started",
    "launcher_exited",
    "planned",
    "clock",
    "sample",
    "complete",
}
"""Kinds that say nothing to a person."""


def model() -> RunModel:
    """Rank 0 on a and rank 1 on b, whose clock is ahead."""
    made = RunModel()
    made.apply(Event(0.0, "", events.Planned({"a": (0,), "b": (1,)})))
    made.apply(Event(0.0, "b", events.ClockMeasured(AHEAD)))
    return made


def test_every_definition_has_one_row_and_every_row_a_definition() -> None:
    assert set(TABLE) == {*RECORD.values(), *OWN.values()}
    assert set(RECORD) & set(OWN) == set()
    assert [fact.kind for fact in OF_EACH_KIND] == [*RECORD, *OWN]


@pytest.mark.parametrize("kind", sorted({**RECORD, **OWN}))
def test_what_a_node_records_is_on_its_clock_and_everything_else_on_ours(kind: str) -> None:
    fact = {**RECORD, **OWN}[kind]
    assert TABLE[fact].clock is (WhoseClock.NODE if kind in RECORD else WhoseClock.OURS)


@pytest.mark.parametrize("fact", OF_EACH_KIND, ids=lambda fact: fact.kind)
def test_each_kind_changes_and_says_what_its_row_has(fact: Fact) -> None:
    kind = fact.kind
    row = TABLE[type(fact)]
    assert (row.reduce is None, row.tell is None) == (kind in NO_CHANGE, kind in NO_NEWS)
    made = model()
    if isinstance(fact, events.RankExited):
        made.apply(Event(1.0, "a", events.RankStarted(0)))
    changed = made.apply(Event(2.0, "a", fact))
    assert bool(changed) == (
        kind not in {*NO_CHANGE, "notice", "watch", "stop_asked", "rest_kept", "job_ended", "profile"}
    )
    told = Timeline(made).tell(Event(2.0, "a", fact))
    silent = kind in {*NO_NEWS, "rank_started"}  # the start of one rank of two is none yet
    assert (told is None) == silent
    assert told is None or told.text


@pytest.mark.parametrize("fact", OF_EACH_KIND, ids=lambda fact: fact.kind)
def test_the_definition_of_each_kind_is_its_way_through_a_record(fact: Fact) -> None:
    assert read_line(RecordLine(2.0, fact).as_json(), {**RECORD, **OWN}) == RecordLine(2.0, fact)


@pytest.mark.parametrize("fact", OF_EACH_KIND, ids=lambda fact: fact.kind)
def test_what_we_see_ourselves_is_written_on_the_clock_of_its_kind(fact: Fact) -> None:
    seen = witnessed(model(), 50.0, "b", fact)
    assert seen.at == 50.0 + AHEAD * (fact.kind in RECORD)
    assert our_time(model(), seen) == 50.0


def test_facts_about_nodes_that_the_run_does_not_have_change_nothing() -> None:
    of_the_run = {"notice", "watch", "planned", "stop_asked", "job_ended"}
    for fact in OF_EACH_KIND:
        if fact.kind not in of_the_run:
            for node in ("", "c"):
                made = model()
                before = dict(made.nodes), dict(made.ranks)
                assert made.apply(Event(2.0, node, fact)) == set()
                assert (made.nodes, made.ranks) == before


def test_what_a_node_ahead_of_us_recorded_is_told_at_our_time() -> None:
    made = model()
    told = Timeline(made)
    for fact in (events.Note("the clock jumped"), events.Ended()):
        event = Event(150.0, "b", fact)
        made.apply(event)
        told.tell(event)
    assert [entry.at for entry in told.entries] == [50.0, 50.0]


def test_ranks_of_a_node_that_is_lost_end_when_we_saw_it() -> None:
    made = model()
    made.apply(Event(50.0, "b", events.NodeLost("rebooted")))
    assert made.ended_at(made.ranks[1]) == 50.0
    assert made.ranks[1].text == "lost: rebooted"


def test_a_stop_that_was_asked_for_keeps_its_first_reason() -> None:
    made = model()
    for reason in ("enough", "too late"):
        made.apply(Event(1.0, "", events.StopAsked(reason)))
    assert made.stop_reason == "enough"
    entry = Timeline(made).tell(Event(2.0, "a", events.StopRequested("enough", "ada")))
    assert entry is None, "the stop was told when it was asked for"


def test_the_start_of_all_ranks_is_news_again_after_one_was_missing() -> None:
    made = model()
    told = Timeline(made)

    def start(rank: int, attempt: int = 0) -> Entry | None:
        event = Event(1.0, "ab"[rank], events.RankStarted(rank, attempt, pid=9))
        made.apply(event)
        return told.tell(event)

    assert start(0) is None
    both = start(1)
    assert both is not None
    assert both.text == "2/2 ranks running"
    assert start(1) is None
    made.apply(Event(2.0, "a", events.RankExited(0, code=1)))
    assert start(1) is None
    again = start(0, attempt=1)
    assert again is not None
    assert again.text == "rank 0 on a started again, attempt 2"
    assert start(1) == both


def test_evidence_is_told_with_what_there_is_of_it() -> None:
    made, name = model(), "20261123-031200-stall.evidence"
    told = Timeline(made)
    for at, fact in (
        (50.0, events.EvidenceKept("stall", name, 7, 20.0 + AHEAD, (0, 1), (1,), text="rank 0: silent")),
        (60.0, events.EvidenceKept("stall", name, over_s=40.0)),
        (70.0, events.EvidenceKept("failure", text="only 3 MB are free")),
        (80.0, events.EvidenceKept("stall", "20261123-031300-stall.evidence", over_s=1.0)),
    ):
        event = Event(at + AHEAD, "b", fact)
        made.apply(event)
        told.tell(event)
    texts = [entry.text for entry in told.entries]
    assert texts[0] == (
        "b: ranks made no progress for 30 s; saved: stacks of ranks 0-1, recorders of rank 1 (rank 0: silent)"
    )
    assert texts[1] == "b: ranks resumed after 40 s"
    assert texts[2] == "b: a rank failed; no evidence could be saved: only 3 MB are free"
    ((at, kept),) = made.nodes["b"].evidence
    assert (at, kept.over_s, kept.stacks) == (50.0 + AHEAD, 40.0, (0, 1))


def test_a_node_that_is_not_followed_for_a_reason_here_is_not_said_to_run_or_to_be_unreachable() -> None:
    told = Timeline(model()).tell(Event(2.0, "a", events.LinkChanged("gone", "the disk is full", here=True)))
    assert told is not None
    assert told.text == "a: not followed (the disk is full)"
