"""Fixtures with real nodes, for every test."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.lab.cockpits import EXAMPLES, Cockpits
from tests.lab.lab import Lab
from tests.needs import lacking


def need_lab() -> None:
    """Do not run this test where this machine cannot have a lab."""
    reason = Lab.unavailable()
    if reason is not None:
        lacking(reason)


@pytest.fixture(scope="session")
def lab2() -> Iterator[Lab]:
    """Two nodes for the whole session: a test leaves them as it found them."""
    need_lab()
    with Lab(nodes=2) as lab:
        yield lab


@pytest.fixture
def cockpits(lab2: Lab, request: pytest.FixtureRequest) -> Iterator[Cockpits]:
    """Cockpits for one run on two nodes, named after the test; the run is ended with the test."""
    made = Cockpits(lab2, "".join(c if c.isalnum() else "-" for c in request.node.name)[:50])
    yield made
    if made.folder.exists() and not made.ended():
        made.cockpit("stop", made.name, "--now")


def unused(lab: Lab, stem: str) -> Cockpits:
    """Cockpits for a run that several tests share; the fixture of a file may be made more than once."""
    runs = (Cockpits(lab, f"{stem}-{number}") for number in itertools.count(1))
    return next(each for each in runs if not each.folder.exists())


@pytest.fixture(scope="module")
def live(lab2: Lab) -> Iterator[Cockpits]:
    """A run that trains on and on, unwatched, for all tests of a file that only look at one.

    They neither end it nor touch its record.
    """
    made = unused(lab2, "live")
    program = [str(EXAMPLES / "train_plain.py"), "--steps", "100000"]
    process = made.start("--launcher", "command", "--headless", program=program)
    process.kill()
    process.wait()
    yield made
    made.cockpit("stop", made.name, "--now")


@pytest.fixture
def make_lab() -> Iterator[Callable[[int], Lab]]:
    """Makes labs of any size that end with the test, for tests that break nodes."""
    need_lab()
    with contextlib.ExitStack() as stack:
        yield lambda nodes: stack.enter_context(Lab(nodes=nodes))
