"""What a person reads of a run's events."""

from __future__ import annotations

from typing import Any

from cockpit.core.run.event_table import ALIKE, Entry
from cockpit.core.run.model import RunModel
from cockpit.core.run.timeline import Timeline
from tests.happened import happened


class Story:
    """A run of two nodes with four ranks each, told event by event."""

    def __init__(self) -> None:
        self.model = RunModel()
        self.timeline = Timeline(self.model)
        self.tell("planned", "", nodes={"a": [0, 1, 2, 3], "b": [4, 5, 6, 7]})

    def tell(self, kind: str, node: str, at: float = 10.0, **data: Any) -> Entry | None:
        event = happened(at, kind, node, data)
        self.model.apply(event)
        return self.timeline.tell(event)

    @property
    def texts(self) -> list[str]:
        return [entry.text for entry in self.timeline.entries]


def test_times_are_on_our_clock() -> None:
    story = Story()
    story.tell("clock", "b", offset_s=100.0, rtt_s=0.01)
    entry = story.tell("rank_exited", "b", 150.0, rank=4, code=3, signal=None)
    assert entry == Entry(50.0, "rank 4 on b exited 3: first failure so far", "error", "b", 4)


def test_ranks_that_end_alike_are_one_entry() -> None:
    story = Story()
    story.tell("rank_exited", "a", 10.0, rank=0, code=1, signal=None)
    for rank in (1, 2, 3):
        story.tell("rank_exited", "a", 10.0 + rank / 10, rank=rank, code=None, signal=15)
    story.tell("rank_exited", "b", 30.0, rank=4, code=None, signal=15)
    assert story.texts == [
        "rank 0 on a exited 1: first failure so far",
        "ranks 1-3 killed by SIGTERM",
        "rank 4 on b killed by SIGTERM",
    ]


def test_a_link_is_news_when_it_is_lost_and_when_it_is_back() -> None:
    story = Story()
    entries = [
        story.tell("link", "a", state="ok"),
        story.tell("link", "a", state="stale", why="no answer"),
        story.tell("link", "a", state="ok"),
        story.tell("link", "a", state="gone", why="cannot write the spool: Disk quota exceeded"),
    ]
    assert [entry.aside for entry in entries if entry] == [True, False, False, False]
    assert story.texts[1:] == [
        "a: connection lost (the run continues); reconnecting (no answer)",
        "a: link is back",
        "a: not followed (the run continues); trying again each minute"
        " (cannot write the spool: Disk quota exceeded)",
    ]


def test_what_a_node_says_is_harmless() -> None:
    story = Story()
    story.tell("note", "a", text="\x1b]52;c;AAAA\x07[/bold]\u202e")
    assert story.texts == ["a: \\x1b]52;c;AAAA\\x07[/bold]<U+202E>"]


def test_what_all_nodes_do_together_is_one_entry() -> None:
    story = Story()
    for node in "ab":
        story.tell("launched", node, 10.0)
        story.tell("link", node, 10.5, state="ok")
    story.tell("ended", "a", 20.0)
    story.tell("ended", "b", 40.0)
    assert story.texts == ["a,b: launched", "a,b: link is up", "a: ended", "b: ended"]


def test_a_stop_that_another_cockpit_asked_for_is_one_entry() -> None:
    story = Story()
    for at, node in ((10.0, "a"), (10.3, "b")):
        story.tell("stop_requested", node, at, by="a person", reason="asked for elsewhere")
    assert story.texts == ["a,b: asked to stop by a person: asked for elsewhere"]
    assert story.timeline.entries[0].at == 10.0
    assert story.timeline.entries[0].level == "warning"


def test_all_ranks_running_is_said_once() -> None:
    story = Story()
    for rank in range(8):
        story.tell("rank_started", "ab"[rank // 4], rank=rank, pid=1)
    assert story.texts == ["8/8 ranks running"]


def test_what_all_nodes_do_at_once_does_not_push_out_the_cause() -> None:
    nodes = [f"gpu{number:02d}" for number in range(1, 9)]
    story = Story()
    story.tell("planned", "", nodes={name: [rank] for rank, name in enumerate(nodes)})
    story.tell("rank_exited", "gpu02", 10.0, rank=1, code=1, signal=None)
    told = [story.tell("stage", name, 20.0 + at / 10, stage="term") for at, name in enumerate(nodes)]
    for at, name in enumerate(nodes):
        story.tell("stage", name, 22.0 + at / 10, stage="finalising")
        if name != "gpu02":
            story.tell("rank_exited", name, 22.0 + at / 10, rank=at, code=None, signal=15)
        story.tell("report", name, 24.0 + at / 10, name=f"{name}.nsys-rep", state="ready", size=1)
    assert story.texts == [
        "rank 1 on gpu02 exited 1: first failure so far",
        "gpu[01-08]: sent SIGTERM to their ranks",
        "gpu[01-08]: their ranks have ended; the profiler writes its report",
        "ranks 0,2-7 killed by SIGTERM",
        "gpu[01-08]: reports are ready",
    ]
    assert told[1] is not None
    assert told[1].text == "gpu02: sent SIGTERM to its ranks", "told line by line, each says its own"


def test_what_nodes_say_in_like_words_is_one_entry_with_ranges() -> None:
    story = Story()
    for at, node, ranks in ((50.0, "a", [0, 1, 2, 3]), (51.0, "b", [4, 5, 6, 7])):
        story.tell("evidence", node, at, why="asked", file="20261123-031200-stall.evidence", stacks=ranks)
    for node, over_s in (("a", 40.0), ("b", 44.0)):
        story.tell("evidence", node, 90.0, why="stall", file="20261123-031200-stall.evidence", over_s=over_s)
    asked, over = story.timeline.entries
    assert (asked.text, asked.evidence) == ("a,b: snapshot requested; saved: stacks", True)
    assert asked.sources == (("a", None), ("b", None))
    assert over.text == "a,b: ranks resumed after 40–44 s"


def test_how_ranks_ended_is_no_range_and_a_node_is_not_folded_with_itself() -> None:
    story = Story()
    for rank, code in enumerate((1, 1, 2)):
        story.tell("rank_exited", "a", 10.0 + rank / 10, rank=rank, code=code, signal=None)
    for number in (1, 2):
        story.tell("note", "a", 20.0, text=f"{number} files are missing")
    assert story.texts[1:] == [
        "rank 1 on a exited 1",
        "rank 2 on a exited 2",
        "a: 1 files are missing",
        "a: 2 files are missing",
    ]


def test_a_node_alone_keeps_its_entry() -> None:
    story = Story()
    for at in range(3):
        story.tell("note", "a", 10.0 + at / 10, text="the clock jumped")
    (entry,) = story.timeline.entries
    assert (entry.text, entry.node) == ("a: the clock jumped", "a")


def test_nodes_of_an_entry_stand_in_the_hostfile_s_order() -> None:
    story = Story()
    story.tell("planned", "", nodes={"zeus": [0], "apollo": [1]})
    for node in ("apollo", "zeus"):
        story.tell("launched", node, 10.0)
    assert story.texts == ["zeus,apollo: launched"]


def test_memory_that_fills_on_all_nodes_at_once_is_not_told_node_by_node() -> None:
    story = Story()
    names = [f"gpu {number}" for number in range(200)]
    story.tell("planned", "", nodes={name: [number] for number, name in enumerate(names)})
    filling: dict[str, Any] = {"of": "/job_7/step 0", "used_bytes": 90, "limit_bytes": 100}
    for left_s in (4000.0, 3990.0, 30.0):
        for name in names:
            story.tell("filling", name, full_at=10.0 + left_s, **filling)
    assert len(story.texts) == 2 * ALIKE + 1
    assert sum(text.startswith("memory of more nodes is approaching its limit") for text in story.texts) == 1
    assert sum("in less than a minute" in text for text in story.texts) == ALIKE
