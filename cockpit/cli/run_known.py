"""What is known of a run beside its model: how its ranks move on, and what is wrong with it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from cockpit.core.finding import Finding
from cockpit.core.logs.sources import Output
from cockpit.core.logs.trackers import Tracker
from cockpit.core.nccl_tests.findings import Result
from cockpit.core.pace.log_steps import resumed
from cockpit.core.pace.pace import Pace, RankPace
from cockpit.core.pace.signs import Sign
from cockpit.core.run.model import LIVE, Rank, RunModel
from cockpit.engine.logs.spooled import SpooledLogs
from cockpit.engine.logs.step_log import pages
from cockpit.engine.nccl import NcclReader, notable_of
from cockpit.engine.nccl_results import results
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.eta import Left, left
from cockpit.engine.run.front import said_here
from cockpit.engine.stacks.evidence import Shown


@dataclass(frozen=True)
class Beside:
    """What is known of a run beside its model and its pace.

    :param pages: of trackers, such as W&B, found in its logs, with the rank whose log names them
    :param ahead: what is left of it; None: not known
    :param kept: what its nodes kept while nobody watched
    :param nccl: what is wrong by what NCCL says
    :param tests: what programs of nccl-tests measured
    """

    pages: Sequence[tuple[Output, Tracker]]
    ahead: Left | None
    kept: Sequence[Shown]
    nccl: Sequence[Finding]
    tests: Sequence[Result]

    @classmethod
    def read(cls, folder: RunFolder, model: RunModel, pace: Pace, kept: Sequence[Shown]) -> Beside:
        """Read its logs for the rest."""
        heard = NcclReader(folder)
        heard.read()
        tests = results(folder, model, heard)
        with closing(SpooledLogs(folder)) as logs:
            ahead = left(folder, model, logs, pace, time.time())
            return cls(pages(logs), ahead, kept, notable_of(heard), tests)


def sign_of(rank: Rank, pace: RankPace) -> Sign | None:
    """The sign of progress of a rank that lives, where its steps are not known."""
    return pace.sign if rank.state in LIVE else None


def source_of(rank: Rank, pace: RankPace) -> str | None:
    """Who told the rank's last step: what counts in its probe; ``log``; ``kept``: the run's folder here.

    Of a step that was kept, ranks that were not slow in it are taken to have done as the median rank.
    """
    if pace.step is None:
        return None
    if pace.estimated:
        return "log"
    progress = rank.sample and rank.sample.progress
    return progress.source if progress else "kept"


def step_said(folder: RunFolder, model: RunModel, pace: Pace) -> int | None:
    """The last step that logs here tell, if ranks count from the start of the program and it is further.

    Else it may be what was here long ago.
    """
    found = said_here(folder, model) if pace.relative else None
    return found[0] if found is not None and resumed(pace, found[0]) else None
