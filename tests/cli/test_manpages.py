"""The manual pages in ``docs/man``."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from cockpit.cli.main import VERBS
from tests.manpages import FOLDER, pages
from tests.needs import lacking


def test_they_are_those_of_the_program() -> None:
    """``make docs`` writes them."""
    assert {path.name: path.read_text() for path in FOLDER.glob("*.1")} == dict(pages())
    for text in dict(pages()).values():
        assert "\n.nh\n" in text, "options are not to be broken at their dashes"
        assert "\nshow all options" not in text
    assert {f"cockpit-{verb}.1" for verb in VERBS} < {path.name for path in FOLDER.iterdir()}


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.1")))
def test_they_have_no_faults(name: str) -> None:
    if shutil.which("groff") is None:
        lacking("no groff")
    line = ["groff", "-man", "-ww", "-Tutf8", str(FOLDER / name)]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert name.removesuffix(".1").upper() in done.stdout
