"""The cluster of ``make k8s``, and what a test makes in it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kube.cluster import cluster
from tests.kube.real.pods import Cockpit, Object
from tests.needs import beyond


@pytest.fixture(autouse=True)
def _up() -> None:
    """Run this test only in a cluster that is up."""
    if cluster.running() is None:
        beyond("its cluster takes a build of Kubernetes; make k8s brings it up and runs this")


@pytest.fixture
def make() -> Iterator[Callable[[dict[str, Any]], Object]]:
    """Makes objects that are deleted with the test."""
    with contextlib.ExitStack() as stack:

        def made(manifest: dict[str, Any]) -> Object:
            found = Object(manifest)
            stack.callback(found.delete)
            found.create()
            return found

        yield made


@pytest.fixture
def user(tmp_path: Path, request: pytest.FixtureRequest) -> Cockpit:
    """The cockpit of one who may exec; with a parameter: by the kubectl of that name."""
    return Cockpit(tmp_path / "dev", kubectl=getattr(request, "param", "kubectl"))
