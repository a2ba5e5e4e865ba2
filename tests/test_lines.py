"""What counts as a line of program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lines import lines, main, of_packages

MODULE = '''"""Of a module.

More of it.
"""

import os  # what for


LIMIT = 3
"""What it is."""


def one(
    value: str,
) -> str:
    """Of a function."""
    # A comment.

    text = """kept
    text"""
    f"no use {value}"
    return text + os.sep
'''


def test_docstrings_comments_and_blanks_do_not_count() -> None:
    assert lines(MODULE) == 8
    assert lines("") == 0
    assert lines("...\n") == 1


def test_packages_and_their_sum(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "top/inner").mkdir(parents=True)
    (tmp_path / "top/a.py").write_text(MODULE)
    (tmp_path / "top/inner/b.py").write_text("x = 1\n" * 1000)
    assert of_packages(tmp_path / "top") == {"top": 8, "top/inner": 1000}
    main(str(tmp_path / "top"))
    assert capsys.readouterr().out == "    8  top\n1,000  top/inner\n1,008  in total\n"
