"""Selects the programs that the collected tests look at: the others are not run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import pytest

T = TypeVar("T")


def chosen(programs: Mapping[str, T], request: pytest.FixtureRequest, *also: str) -> dict[str, T]:
    """Those that are the parameter ``name`` of some test of this module.

    :param also: others, which tests name themselves
    """
    names = {*also}
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.path == request.path and hasattr(item, "callspec"):
            names.add(str(item.callspec.params.get("name")))
    return {name: one for name, one in programs.items() if name in names}
