"""Consoles that real launchers have printed: who failed first, and why."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from cockpit.core.ranks import ranks_text
from cockpit.engine.explain.reading import explained
from cockpit.engine.explain.sources import items

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent / "real"
CONSOLES: dict[str, dict[str, Any]] = tomllib.loads((HERE / "consoles.toml").read_text())


@pytest.mark.parametrize("name", CONSOLES)
def test_the_first_failure_of_a_real_console(name: str) -> None:
    wanted = CONSOLES[name]
    report = explained(items([str(HERE / f"{name}.log")]))
    told = {
        "launchers": sorted(report.launchers),
        "first": report.what,
        "rule": "" if report.row is None else report.row.id,
        "followed": ranks_text(report.waited),
    }
    assert told == {key: wanted[key] for key in told}
    assert wanted["cause"] in ("" if report.cause is None else report.cause.what)
    assert bool(wanted["cause"]) == (report.cause is not None)


def test_each_console_is_one_of_these() -> None:
    assert {path.stem for path in HERE.glob("*.log")} == set(CONSOLES)
