"""Names of runs that nobody named."""

from __future__ import annotations

import re

import pytest

from cockpit import paths
from cockpit.engine.records.names import new_name, run_name


@pytest.mark.parametrize(
    ("job", "of_array", "index", "within"),
    [
        ("", "", "", ""),
        ("4711", "", "", "4711-"),
        ("4713", "4711", "2", "4713-"),
        ("4711", "4711", "3", "4711_3-"),
        ("../x y", "", "", ""),
        ("4" * 70, "", "", ""),
    ],
)
def test_in_a_slurm_job_its_number_is_in_the_name(
    job: str, of_array: str, index: str, within: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elements of an array, which start in the same second, do not get the same."""
    for name, value in (("JOB", job), ("ARRAY_JOB", of_array), ("ARRAY_TASK", index)):
        monkeypatch.setenv(f"SLURM_{name}_ID", value)
    name = new_name()
    assert re.fullmatch(rf"[0-9]{{8}}-[0-9]{{6}}-{within}[a-z]+", name)
    assert run_name(name) == name


def test_the_newest_runs_have_other_words() -> None:
    for minute in range(40):
        name = new_name()
        (paths.runs() / f"20261121-12{minute:02}00-{name.rpartition('-')[2]}").mkdir(parents=True)
    words = [each.name.rpartition("-")[2] for each in sorted(paths.runs().iterdir())]
    assert all(len({*words[at : at + 17]}) == 17 for at in range(40 - 17))
