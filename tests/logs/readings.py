"""How right the readings of the samples are: per field, whole, in chunks, behind launchers' prefixes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from cockpit.core.logs.metrics import Metrics
from cockpit.core.logs.progress.reading import FIELDS
from tests.logs.corpus import PREFIXES, Sample, chunks, prefixed

MODES = ("plain", "chunked", *PREFIXES)
"""How a sample is fed: in one piece, in pieces of any size, or with a launcher's prefix, in pieces too."""


@dataclass
class Score:
    """What was read of some samples.

    :param asked: how often a field has a value
    :param right: how often it was read
    :param false: each value that is not in a sample, in words
    :param missed: each value that was not read, in words
    """

    asked: Counter[str] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)
    false: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    def table(self) -> str:
        """A line for each field."""
        return "\n".join(
            f"{name:10} {self.right[name]:4} of {count:4}  {100 * self.right[name] / count:5.1f} %"
            for name, count in self.asked.items()
        )


def fed(sample: Sample, mode: str, seed: int = 0) -> Metrics:
    """The numbers after the sample's last line; all at one time, so that none is measured by the clock."""
    metrics = Metrics()
    text = sample.text if mode in ("plain", "chunked") else prefixed(sample.text, PREFIXES[mode])
    for piece in [text] if mode == "plain" else chunks(text, seed):
        metrics.feed(3, piece, 1.0)
    return metrics


def score(samples: list[Sample], mode: str, seed: int = 0) -> Score:
    """Compare what is read of the samples with what they expect."""
    result = Score()
    for sample in samples:
        for name, wanted, found in _compared(sample, fed(sample, mode, seed)):
            said = f"{sample.name}: {name} {found}, expected {wanted}"
            if wanted is not None:
                result.asked[name] += 1
            if _same(wanted, found):
                result.right[name] += wanted is not None
            elif found is None:
                result.missed.append(said)
            else:
                result.false.append(said)
    return result


def _compared(sample: Sample, metrics: Metrics) -> Iterator[tuple[str, float | None, float | None]]:
    for name in FIELDS:
        yield name, sample.expect.get(name), getattr(metrics.latest, name)
    if "losses" in sample.expect:
        count = len(metrics.series("loss"))
        yield "losses", sample.expect["losses"], count or None


def _same(wanted: float | None, found: float | None) -> bool:
    if wanted is None or found is None:
        return wanted is found
    return math.isclose(wanted, found, rel_tol=2e-3)
