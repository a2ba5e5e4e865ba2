"""Curves of a report as pictures inside its page: lines of numbers, whose colors and fonts are the page's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from html import escape

from cockpit.core.report.model import Curve
from cockpit.core.report.words import number

WIDTH, HEIGHT = 600, 140
"""Units of a picture, however large it is drawn."""
PAD = 6
FAR = 8.0
"""So many times the spread of the middle 96 % above it, values are cut off: a spike flattens all else."""


def plot(curve: Curve) -> Iterator[str]:
    """A figure: its name, its last value, the curve, and what its edges stand for."""
    low, high = value_range([value for _, value in curve.points])
    steps = [step for step, _ in curve.points]
    begin, end = min(steps), max(steps)
    paths = "".join(f'<path d="{path}"/>' for path in _paths(curve, begin, end, low, high))
    last, most = number(curve.last, curve.unit), number(curve.most, curve.unit)
    least = number(curve.least, curve.unit)
    yield f"<figure><figcaption><b>{escape(curve.name)}</b><span>{escape(last)}</span></figcaption>"
    yield f'<div class="plot"><svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none"'
    yield ' aria-hidden="true">'
    yield f'<path class="grid" d="M0 {PAD}H{WIDTH}M0 {HEIGHT // 2}H{WIDTH}M0 {HEIGHT - PAD}H{WIDTH}"/>'
    yield f"{paths}</svg>"
    top = "high" if high > low else "middle"
    yield f'<span class="{top}">{escape(number(high, curve.unit))}</span>'
    yield f'<span class="low">{escape(number(low, curve.unit))}</span></div>' if high > low else "</div>"
    yield f'<div class="axis"><span>step {begin:,.0f}</span><span>{end:,.0f}</span></div>'
    said = f"min {least}, max {most} at step {curve.most_at:,.0f}"
    if curve.odd and curve.odd_from is not None:
        said += f"; not a number {curve.odd:,} times, from step {curve.odd_from:,.0f} on"
    yield f'<p class="dim">{escape(said)}</p></figure>'


def value_range(values: Iterable[float]) -> tuple[float, float]:
    """The values of the lower and the upper edge, of which some are cut off if they flatten all others."""
    values = sorted(values)
    low, high = values[0], values[-1]
    middle = values[int(0.98 * (len(values) - 1))]
    spread = middle - values[int(0.02 * (len(values) - 1))]
    if spread > 0 and high > middle + FAR * spread:
        high = middle + spread
    return low, high


def _paths(curve: Curve, begin: float, end: float, low: float, high: float) -> Iterator[str]:
    """Lines: a new one where steps are counted anew."""
    part: list[str] = []
    before = -math.inf
    for step, value in curve.points:
        if step < before and part:
            yield "M" + "L".join(part)
            part = []
        before = step
        x = WIDTH * (step - begin) / (end - begin) if end > begin else WIDTH / 2
        # Halves: the span between two large numbers may be more than a float holds.
        span = high / 2 - low / 2
        share = min(1.0, (value / 2 - low / 2) / span) if span > 0 else 0.5
        part.append(f"{x:.1f} {PAD + (1 - share) * (HEIGHT - 2 * PAD):.1f}")
    if part:
        yield "M" + "L".join(part if len(part) > 1 else part * 2)
