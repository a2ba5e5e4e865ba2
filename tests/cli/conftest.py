"""Whatever a test has the command line print as JSON, in this process, fits its schema."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from cockpit.cli import output
from tests.cli.schemas import PRINTED_IN, fits


@pytest.fixture(autouse=True)
def json_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at each object on its way out."""

    def dumps(value: Any, **how: Any) -> str:
        text = json.dumps(value, **how)
        module = sys._getframe(2).f_code.co_filename.rpartition("/")[2]
        told = json.loads(text)
        if "$schema" not in told:  # a schema is no answer
            fits(PRINTED_IN[module], told)
        return text

    monkeypatch.setattr(output, "json", SimpleNamespace(dumps=dumps))
