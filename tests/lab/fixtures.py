"""Fixtures with real nodes, for every test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests.lab.cockpits import Cockpits
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


@pytest.fixture
def make_lab() -> Iterator[Callable[[int], Lab]]:
    """Makes labs of any size that end with the test, for tests that break nodes."""
    need_lab()
    with contextlib.ExitStack() as stack:
        yield lambda nodes: stack.enter_context(Lab(nodes=nodes))
