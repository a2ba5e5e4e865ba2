"""What a test needs of the machine: skip with the reason, or fail where everything must be there."""

from __future__ import annotations

import importlib.util
import os
import shutil
from typing import NoReturn

import pytest

BEYOND = "beyond this machine: "
"""So begins the reason of a skip that nothing which could be installed would change."""

PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def lacking(reason: str) -> NoReturn:
    """Skip this test because of ``reason``; with COCKPIT_REQUIRE_ALL=1 fail it."""
    if os.environ.get("COCKPIT_REQUIRE_ALL") == "1":
        pytest.fail(f"COCKPIT_REQUIRE_ALL is set, and {reason}", pytrace=False)
    pytest.skip(reason)


def beyond(reason: str) -> NoReturn:
    """Skip this test even with COCKPIT_REQUIRE_ALL=1: nothing that could be installed changes ``reason``."""
    pytest.skip(BEYOND + reason)


def require(tool: str) -> str:
    """Return the path of a program, or do not run this test."""
    found = shutil.which(tool, path=PATH)
    return found or lacking(f"{tool} is not installed")


def require_module(name: str) -> None:
    """Do not run this test unless that Python module can be imported."""
    if importlib.util.find_spec(name) is None:
        lacking(f"the Python module {name} is not installed")


def require_modules() -> None:
    """Do not run this test unless login shells have a ``module`` command."""
    if not os.path.exists("/etc/profile.d/modules.sh"):
        lacking("environment-modules is not installed")
