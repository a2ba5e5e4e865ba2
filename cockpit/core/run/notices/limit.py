"""The time limit of the SLURM job that a run is in."""

from __future__ import annotations

from collections.abc import Iterator

from cockpit.base.events import NoticeStep
from cockpit.core.pace.pace import Pace
from cockpit.core.run.notices.rule import About, Condition, Rule
from cockpit.core.run.states import Run
from cockpit.core.time_text import clock

NEAR_S = 900.0
"""Seconds before it that are told."""


class TimeLimit(Rule):
    """Is told what SLURM says; this process asks for it seldom."""

    id = "time_limit"
    source = "squeue(1), TIME_LEFT"

    def __init__(self, about: About) -> None:
        super().__init__(about)
        self._due: float | None = None
        self._since: float | None = None
        self._known = False

    def told(self, at: float, left_s: float | None) -> None:
        """So much time is left to the job.

        :param left_s: None: it has no limit, or SLURM does not say
        """
        self._due, self._known = None if left_s is None else at + left_s, True

    def interrupted(self) -> None:
        """See :class:`Rule`."""
        self._due, self._known = None, False

    def look(self, at: float, run: Run, pace: Pace) -> Iterator[Condition]:
        """See :class:`Rule`."""
        if self._due is None or self._due - at > NEAR_S:
            self._since = None
            return
        self._since = at if self._since is None else self._since
        what = f"SLURM ends job {self.about.job}, at its time limit,"
        job = self.about.job
        steps = (
            NoticeStep(f"squeue --jobs={job} --Format=TimeLimit,TimeLeft", "what SLURM says of it"),
            NoticeStep(
                f"scontrol update JobId={job} TimeLimit=+60", "an operator of the cluster can raise it"
            ),
        )
        evidence = (f"squeue says that it ends at {clock(self._due, at)}; save a checkpoint before then",)
        yield Condition(job, what, self._since, self._due, evidence, "sure", steps=steps)

    def ended(self, of: str) -> str:
        """See :class:`Rule`."""
        return f"the time limit of job {of} is no longer near" if self._known else ""
