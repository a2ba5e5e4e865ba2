"""Which of NVIDIA's own commands is printed: only what the nsys here has, asked in an empty folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cockpit.engine.profile.reports import recipe_of


@pytest.mark.parametrize(
    ("says", "recipe"),
    [
        ("echo ' profile'; echo ' recipe'", "nsys recipe nccl_sum --input '/my reports'"),
        ("echo ' profile'", ""),
        ("echo broken >&2; exit 1", ""),
    ],
)
def test_a_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, recipe: str) -> None:
    nsys = tmp_path / "nsys"
    nsys.write_text(f'#!/bin/sh\n[ "$1" = --help ] && [ -z "$(ls -A)" ] || exit 9\n{says}\n')
    nsys.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert recipe_of(Path("/my reports")) == recipe


def test_no_recipe_without_reports_or_nsys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert recipe_of(tmp_path) == ""
    assert recipe_of(None) == ""
