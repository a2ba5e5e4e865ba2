"""Snapshots as HTML pages: whole, well formed, and harmless whatever a node has sent."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.base.stacks.dump import Child, Dump, Frame, Process, Thread
from cockpit.core.stacks.page import as_page
from cockpit.core.stacks.snapshot import Place, Sample, Snapshot
from cockpit.core.stacks.verdict import verdict

C10D = "torch/distributed/distributed_c10d.py"
WAITS = (Frame("main", "./train.py", 212), Frame("all_reduce", C10D, 3252))
READS = (Frame("main", "./train.py", 190), Frame("read_shard", "./data.py", 118))
VOID = {"meta", "input"}


class Page(HTMLParser):
    """What a browser would see."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def dump(rank: int, frames: tuple[Frame, ...], at: float, **facts: object) -> Dump:
    worker = Child(77, "pt_data_worker", "S", (Thread("MainThread", 77, False, False, READS[-1:]),))
    process = Process(41_000 + rank, 9, "S", call="futex", children=(worker,))
    names = ({}, {"path": "'/data/7'"}) if frames is READS else ()
    threads = (Thread("MainThread", 1, False, False, frames, names), Thread("pin_memory", 2, False, True, ()))
    return Dump(rank, at, process, "native", threads, **facts)  # type: ignore[arg-type]


def snapshot(odd: int | None = 2, world: int = 4) -> Snapshot:
    samples = [
        Sample(
            at,
            {rank: dump(rank, READS if rank == odd else WAITS, at) for rank in range(world - 1)},
            {"gpu2": "connection lost"},
            0.4,
        )
        for at in (1000.0, 1001.0)
    ]
    places = {rank: Place("gpu2" if rank == world - 1 else "gpu1", rank) for rank in range(world)}
    return Snapshot("20261121-040441", "otter", "otter", places, samples)


def page(told: Snapshot) -> Page:
    found = Page(as_page(told, verdict(told)))
    assert found.open == []
    return found


def test_all_that_is_known_is_in_it() -> None:
    told = snapshot()
    text = page(told).text
    judged = verdict(told)
    for part in (judged.what, judged.where, judged.certainty, *judged.evidence):
        assert part in text
    assert "3 of 4 ranks answered" in text
    assert "rank 2: " in text
    assert "2 ranks 0-1: wait in all_reduce" in text
    assert "path = '/data/7'" in text
    assert "rank 2, thread pin_memory, holds the GIL" in text
    assert "its child 77 pt_data_worker" in text
    assert "1 here, 2 missing" in text
    assert "gpu2: connection lost" in text


def test_nothing_is_loaded_and_nothing_runs() -> None:
    found = page(snapshot())
    assert found.tags.isdisjoint({"script", "link", "img", "iframe", "object", "form"})
    assert found.attributes.isdisjoint({"src", "href", "onclick", "onload"})


HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=y>\"'&"


def test_what_a_node_sends_is_text() -> None:
    told = snapshot()
    frames = (Frame(HOSTILE, HOSTILE, 1),)
    threads = (Thread(HOSTILE, 1, True, True, frames, ({HOSTILE: HOSTILE},)),)
    process = Process(1, 2, "S", children=(Child(1, HOSTILE, "S", threads),))
    told.samples[-1].dumps[0] = Dump(
        0, 1001.0, process, HOSTILE, threads, HOSTILE, HOSTILE, HOSTILE, HOSTILE, (HOSTILE,)
    )
    told.samples[-1].silent["gpu2"] = HOSTILE
    told.ranks[1] = Place(HOSTILE, 1)
    told.title = told.name = HOSTILE
    found = page(told)
    assert found.tags.isdisjoint({"script", "img"})
    assert found.text.count(HOSTILE) > 8


@given(st.text(max_size=20))
def test_any_text_leaves_it_well_formed(text: str) -> None:
    told = snapshot()
    told.samples[-1].dumps[0] = dump(0, (Frame(text, text, 1),), 1001.0, source=text)
    page(told)


@pytest.mark.parametrize("samples", [0, 1])
def test_without_an_answer(samples: int) -> None:
    told = Snapshot("n", "otter", "otter", {0: Place("gpu1", 0)}, [Sample(1000.0)] * samples)
    found = page(told)
    assert verdict(told).what in found.text
    assert "no answer" in found.text
    assert page(Snapshot("n", "otter")).text
