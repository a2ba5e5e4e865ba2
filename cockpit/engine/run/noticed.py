"""What is wrong with a run, by what is known of it: who holds it up, who is slow, what was noticed."""

from __future__ import annotations

import time

from cockpit import config
from cockpit.core.finding import Finding
from cockpit.core.pace.finding import findings as pace_findings
from cockpit.core.pace.pace import Pace
from cockpit.core.rules.explanation import translated
from cockpit.core.run.model import RunModel
from cockpit.core.run.notices.words import SAID, findings


def noticed(run: str, model: RunModel, pace: Pace) -> list[Finding]:
    """What is wrong with a run: who holds it up, who is slow while it runs, what its watch has noticed.

    :param run: its name
    """
    slow = () if model.over else pace_findings(pace, run)
    # The run's folder has work only after a minute or two; until then the notice of whoever watches says it.
    said = SAID if any(pace.of(rank).work is not None for rank in model.ranks) else ()
    lang = config.load().language
    noted = findings(model, run, time.time(), said)
    return [*_stall(model), *slow, *(translated(each, lang) for each in noted)]


def _stall(model: RunModel) -> list[Finding]:
    """Who holds up a run that is stalled."""
    found = model.watch.finding
    return [found] if model.watch.stalled and found is not None and not model.over else []
