"""What holds for tests of transports."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def sockets_of_ssh() -> Iterator[Path]:
    """A folder for a person's own ControlPath: ssh has room for 107 bytes, whatever TMPDIR is."""
    with tempfile.TemporaryDirectory(prefix="ssh-", dir="/tmp") as name:
        yield Path(name)
