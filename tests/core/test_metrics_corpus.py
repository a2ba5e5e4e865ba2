"""How right the numbers are that are read of the logs in ``tests/logs``; ``pytest -s`` shows the figures."""

from __future__ import annotations

import pytest

from cockpit.core.logs.metrics import Metrics
from cockpit.core.logs.patterns import needed_texts
from cockpit.core.logs.progress.reading import Reading
from cockpit.core.logs.progress.rows import ROWS
from tests.logs.corpus import Sample, samples
from tests.logs.readings import MODES, fed, score

AIM = 0.93
"""Of what the samples say of a field, so much is read."""


@pytest.mark.parametrize("mode", MODES)
def test_numbers_of_training_are_read_and_none_is_false(mode: str) -> None:
    found = score(samples("progress"), mode, seed=7)
    print(f"\n{mode}\n{found.table()}")
    assert found.false == []
    short = {name: found.missed for name in found.asked if found.right[name] < AIM * found.asked[name]}
    assert short == {}


def test_there_are_samples_enough() -> None:
    asked = score(samples("progress"), "plain").asked
    assert len(samples("progress")) >= 60
    assert set(asked) == {"losses", *Reading.__dataclass_fields__}
    assert all(count >= 8 for count in asked.values()), asked


@pytest.mark.parametrize("sample", samples("healthy"), ids=lambda sample: sample.name)
@pytest.mark.parametrize("mode", MODES)
def test_what_looks_like_progress_tells_nothing(sample: Sample, mode: str) -> None:
    if not sample.expect.get("numbers"):  # which those have that are healthy in other ways
        metrics = fed(sample, mode, seed=7)
        assert metrics.latest == Reading()
        assert metrics.series("loss") == []


@pytest.mark.few(8)
@pytest.mark.parametrize("seed", range(20))
def test_chunks_change_nothing(seed: int) -> None:
    for sample in samples("progress"):
        whole, cut = fed(sample, "plain"), fed(sample, "chunked", seed)
        assert cut.latest == whole.latest, sample.name
        assert [loss for _, loss in cut.series("loss")] == [loss for _, loss in whole.series("loss")], (
            sample.name
        )


@pytest.mark.parametrize("sample", samples("healthy"), ids=lambda sample: sample.name)
@pytest.mark.parametrize(
    "training",
    [
        b"step %d/5004 loss 2.%d lr 1e-4 step_time 0.4\n",
        b"  8%%|#  | %d/5004 [52:09<27:23,  3.33s/it]\n{'loss': 2.%d, 'learning_rate': 1e-05, 'epoch': 1}\n",
    ],
    ids=["lines", "bar"],
)
def test_what_looks_like_progress_does_not_disturb_training(training: bytes, sample: Sample) -> None:
    if not sample.expect.get("numbers"):
        metrics = Metrics()
        metrics.feed(0, training % (340, 5) + training % (341, 4), 1.0)
        before = metrics.latest
        metrics.feed(0, sample.text, 2.0)
        assert metrics.latest == before


@pytest.mark.parametrize(("text", "row"), ROWS)
def test_a_pattern_is_tried_on_every_line_that_it_matches(text: bytes, row: bytes) -> None:
    assert needed_texts(row.decode()) == [text.decode()]
