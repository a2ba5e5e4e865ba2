"""What a verb prints as JSON is what its schema in ``docs/json`` says."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jsonschema

from tests.json_schemas import FOLDER

PRINTED_IN = {
    "ps.py": "ps",
    "run_details.py": "ps-run",
    "nccl_details.py": "ps-nccl",
    "stacks.py": "stacks",
    "snapshots.py": "stacks-list",
    "doctor.py": "doctor",
    "plan.py": "plan",
    "collect.py": "collect",
    "profiled.py": "profile",
    "stopped.py": "stop",
    "report.py": "report",
    "compare.py": "compare",
    "compared_profiles.py": "compare-profiles",
    "replay.py": "replay",
    "explain.py": "explain",
    "explained_rules.py": "explain-rules",
    "clean.py": "clean",
    "where.py": "where",
    "config.py": "config",
}
"""The schema of what each module of the command line prints."""


@cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    """The one of a file."""
    return jsonschema.Draft202012Validator(json.loads((FOLDER / f"{name}.json").read_text()))


def fits(name: str, told: Any) -> None:
    """Check it.

    :raises AssertionError: where it does not fit, and why
    """
    wrong = [f"{each.json_path}: {each.message[:300]}" for each in validator(name).iter_errors(told)]
    assert wrong == [], name
