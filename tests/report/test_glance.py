"""A glance at a run: what the preview of home shows of it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from threading import Event

from cockpit.base.events import GpuSample, NodeSample, RankSample, Sample
from cockpit.core.pace.measured import measured
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.report.glance import Glance, Memory, glance
from cockpit.engine.run.measures import FILE
from tests.engine.knownruns import KnownRun

GIB = 1 << 30
BEGAN = time.time() - 9000


def look(folder: RunFolder) -> Glance:
    return glance(folder, Event())


def write(folder: RunFolder, *samples: tuple[str, Sample], junk: bytes = b"") -> None:
    lines = [measured(BEGAN + 20 * at, node, sample).line() for at, (node, sample) in enumerate(samples)]
    (folder.path / FILE).write_bytes(junk + b"".join(lines))


def sample(host: int | None, *gpus: tuple[int | None, int | None], rank: int = 0) -> Sample:
    found = (GpuSample(index, None, 90.0, used, total) for index, (used, total) in enumerate(gpus))
    return Sample(NodeSample(1.0, 8, host, 512 * GIB), {rank: RankSample(90.0, GIB)}, tuple(found))


def test_the_fullest_gpu_and_how_full_it_was_at_first() -> None:
    folder = KnownRun("otter", BEGAN).write()
    write(
        folder,
        ("gpu01", sample(300 * GIB, (10 * GIB, 80 * GIB), (20 * GIB, 80 * GIB))),
        ("gpu02", sample(500 * GIB, (60 * GIB, 80 * GIB), rank=2)),
        ("gpu01", sample(300 * GIB, (10 * GIB, 80 * GIB), (79 * GIB, 80 * GIB))),
        ("gpu02", sample(500 * GIB, (60 * GIB, 80 * GIB), rank=2)),
    )
    assert look(folder).memory == Memory("gpu01", 1, [20 * GIB, 79 * GIB], 80 * GIB)


def test_without_a_gpu_the_fullest_node() -> None:
    folder = KnownRun("otter", BEGAN).write()
    write(folder, ("gpu01", sample(300 * GIB, (None, 80 * GIB))), ("gpu02", sample(500 * GIB, rank=2)))
    assert look(folder).memory == Memory("gpu02", None, [500 * GIB], 512 * GIB)


def test_of_what_is_no_measurement_or_of_another_node_nothing_is_taken() -> None:
    folder = KnownRun("otter", BEGAN).write()
    assert look(folder).memory is None
    stranger = sample(1, (90 * GIB, 80 * GIB))
    wrong_rank = sample(1, (90 * GIB, 80 * GIB), rank=3)
    write(folder, ("gpu99", stranger), ("gpu01", wrong_rank), junk=b'{"x": 1}\n\0\xff\n[1e999]\n')
    assert look(folder).memory is None
    write(folder, ("gpu01", sample(7)), junk=json.dumps([1] * 10).encode() + b"\n")
    assert look(folder).memory == Memory("gpu01", None, [7], 512 * GIB)


def test_a_file_that_cannot_be_read_hides_nothing_else(tmp_path: Path) -> None:
    folder = KnownRun("otter", BEGAN, end="failed").write()
    (folder.path / FILE).mkdir()
    found = look(folder)
    assert found.memory is None
    assert found.cause


def test_whoever_does_not_wait_any_more_gets_nothing() -> None:
    folder = KnownRun("otter", BEGAN).write()
    enough = Event()
    enough.set()
    assert glance(folder, enough) == Glance()
