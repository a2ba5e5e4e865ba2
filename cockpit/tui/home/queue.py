"""Asks SLURM for the user's jobs, where it is, beside the app's own loop."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Iterable
from typing import ClassVar

from textual.screen import Screen

from cockpit import slurm
from cockpit.base import users
from cockpit.core.run.brief import Brief
from cockpit.core.time_text import span_text
from cockpit.errors import CockpitError
from cockpit.slurm import QueuedJob
from cockpit.tui.command_screen import entitle
from cockpit.tui.error_reporting import notice
from cockpit.tui.home.jobs_pane import JobsPane

EVERY_S = 20.0


class Queue:
    """The jobs, and the pane of them.

    :param screen: has the pane, and holds the worker
    """

    NONE: ClassVar[tuple[str, ...]] = ("You have no jobs.", "One that starts shows up here.")

    def __init__(self, screen: Screen[None]) -> None:
        self._screen = screen
        self._jobs: list[QueuedJob] | None = None
        self._trouble: list[str] = []
        self._asked_at = 0.0
        self.runs_of_jobs: dict[str, str] = {}
        """Runs known here that go on, by the job that each is in."""
        self.here = shutil.which("squeue") is not None
        """Whether there is SLURM."""

    def start(self) -> None:
        """Ask, if there is anybody to ask."""
        if self.here:
            self._pane.add_class("-there")
            self._screen.run_worker(self._ask(), group="squeue")

    async def _ask(self) -> None:
        while True:
            try:
                self._jobs = await asyncio.to_thread(slurm.jobs_of, users.name(os.geteuid()))
                self._trouble = []
                self._asked_at = time.time()
            except CockpitError as error:
                self._trouble = ["Your jobs are not known:", *notice(error).splitlines()]
            await asyncio.sleep(EVERY_S)

    @property
    def _pane(self) -> JobsPane:
        return self._screen.query_one(JobsPane)

    def draw(self, runs: Iterable[Brief]) -> None:
        """Show what is known."""
        if not self.here:
            return
        self.runs_of_jobs = {run.job: run.run for run in runs if run.job and not run.over}
        pane = self._pane
        pane.empty = (
            self._trouble or self.NONE if self._trouble or self._jobs is not None else ["asking squeue"]
        )
        pane.show_jobs(self._jobs or (), self.runs_of_jobs)
        many = "" if self._jobs is None else f" {len(self._jobs)}"
        entitle(pane, "3", f"SLURM your jobs{many}")
        if self._asked_at:
            ago = f"{span_text(max(1.0, time.time() - self._asked_at))} ago"
            pane.border_subtitle = f"squeue fails; as of {ago}" if self._trouble else f"squeue, {ago}"

    @property
    def why_none(self) -> str:
        """Why there is no pane; empty: there is."""
        return "" if self.here else "no squeue on PATH: SLURM is not here"

    @property
    def job(self) -> QueuedJob | None:
        """The job under the cursor; if nobody moved it, the first that runs."""
        pane = self._pane
        if pane.touched or self._screen.focused is pane:
            return pane.current
        return next((job for job in pane.items if job.running), None)

    def why_not(self) -> str:
        """Why no job can be watched; empty: one can."""
        if self.why_none:
            return self.why_none
        job = self.job
        if job is None:
            return "no job of yours runs"
        return "" if job.running else f"job {job.job} does not run yet"
