"""The cluster behind the stub of kubectl."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.kube import kubectl_queries
from tests.kube.stub import Stub


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    """A cluster without pods, which answers the same question as often as it is asked."""
    made = Stub(tmp_path / "kube")
    monkeypatch.setenv("PATH", made.path)
    monkeypatch.setattr(kubectl_queries, "_answers", {})
    monkeypatch.setattr(kubectl_queries, "PERIOD_S", 0.0)
    yield made
    made.close()
