"""What is known about a training at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace


@dataclass(frozen=True)
class Reading:
    """Numbers of training; None: unknown.

    :param step: of the run or, if only that is known, of the epoch
    :param total: how many steps there will be
    :param epoch: which may be a fraction
    :param loss: of training; may be NaN or infinite
    :param lr: learning rate
    :param samples_s: samples per second
    :param tokens_s: tokens per second
    :param step_s: seconds per step
    :param eta_s: seconds left until ``total`` is reached
    """

    step: int | None = None
    total: int | None = None
    epoch: float | None = None
    loss: float | None = None
    lr: float | None = None
    samples_s: float | None = None
    tokens_s: float | None = None
    step_s: float | None = None
    eta_s: float | None = None

    def said(self) -> dict[str, float]:
        """The fields that are known."""
        return {name: value for name in FIELDS if (value := getattr(self, name)) is not None}

    def over(self, older: Reading) -> Reading:
        """These numbers, and the older ones where these are unknown."""
        merged = replace(older, **self.said())  # type: ignore[arg-type]  # step and total stay whole
        if merged.step is not None and merged.total is not None and merged.step > merged.total:
            return replace(merged, total=self.total)
        return merged


FIELDS = tuple(each.name for each in fields(Reading))
"""The fields of a reading."""


def reading_of(said: Mapping[str, float]) -> Reading:
    """A reading of fields by name."""
    whole = {name: int(value) if name in ("step", "total") else value for name, value in said.items()}
    return Reading(**whole)  # type: ignore[arg-type]  # step and total are whole
