"""What cockpit says of a run by itself: of an end once it is recorded, of a standstill once it lasts."""

from __future__ import annotations

import functools
import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE_S

HANG_AFTER_S = 6
"""Seconds without a step after which it is to look: far less than anybody would take."""
LOOK_S, FIRST_LOOK_S = 40, 85
"""Longest wait for what it says then, on a busy machine; longer before any step."""
SPARED_S = 15
"""So long those who are not to be accused are watched."""
WHY = "This cockpit does not watch for standstills by itself yet: `cockpit run` has no `--hang-after`."
NOTHING = {
    "id": "quiet",
    "what": "no output",
    "ranks": "",
    "where": "",
    "certainty": "unsure",
    "severity": "info",
    "stuck": "",
}


@functools.cache
def watches(cockpit: tuple[str, ...]) -> bool:
    """Whether this cockpit looks by itself."""
    words = [*cockpit, "run", "--help-all"]
    return b"--hang-after" in subprocess.run(words, capture_output=True, check=False).stdout


def of_end(cockpit: Sequence[str], run: str, env: Mapping[str, str]) -> dict[str, Any] | None:
    """What is said of the first failure."""
    words = [*cockpit, "ps", run, "--json"]
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, env=env, timeout=PATIENCE_S, check=False
    )
    try:
        findings: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    except (ValueError, KeyError):
        return None
    return next((one for one in findings if one["id"] == "failed"), None)


def of_hang(run: Path, first: bool) -> tuple[dict[str, Any], float | None]:
    """What is said of a standstill, and how long after the last step; waits for it.

    :param run: the folder of the run
    :param first: whether it made no step before
    """
    end = time.monotonic() + HANG_AFTER_S + (FIRST_LOOK_S if first else LOOK_S)
    while not (stalled := [told for told in _told(run) if told["state"] == "stalled" and told["found"]]):
        if time.monotonic() > end:
            # Ranks that move are no standstill, though what they do may be told.
            quiet = [told for told in _told(run) if told["state"] == "quiet" and told["found"]]
            return ({**NOTHING, **quiet[-1]["found"]} if quiet else NOTHING), None
        time.sleep(0.2)
    last = stalled[-1]
    return {**NOTHING, **last["found"], "stuck": last["stuck"]}, round(
        stalled[0]["t"] - stalled[0]["since"], 1
    )


def of_spared(run: Path) -> dict[str, Any]:
    """What is said of those who are not to be accused; waits as long as a hang would take to be told."""
    time.sleep(SPARED_S)
    stalled = [told for told in _told(run) if told["state"] == "stalled"]
    if not stalled:
        return NOTHING
    surest = max(stalled, key=lambda told: ("", "waiting", "likely", "sure").index(told["stuck"]))
    found = {**NOTHING, **(surest["found"] or {}), "stuck": surest["stuck"]}
    # A bell for nothing, whoever is named.
    return {**found, "ranks": found["ranks"] or [0], "severity": "error"}


def _told(run: Path) -> list[dict[str, Any]]:
    lines = (run / "journal.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines if '"watch"' in line and line.endswith("}")]
    return [event for event in events if event["e"] == "watch"]
