"""What users read is written as in git, ssh and kubectl: phrases that read as translated do not come back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.lab import REPO

PHRASES = {
    "unasked": "automatically",
    "in place of": "instead of",
    "goes on": "continues",
    "go on": "continue",
    "look at": "check, inspect",
    "looks at": "checks, inspects",
    "looked at": "checked, inspected",
    "one a": "one per",
    "taken for": "mistaken for, seen as",
    "has come": "arrived, is here",
}
"""Each with what an engineer writes."""

_FOUND = re.compile(rf"\b(?:{'|'.join(PHRASES)})\b", re.IGNORECASE)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a module that a user may see: not its docstrings, and not the scripts in it."""
    tree = ast.parse(path.read_text())
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in docs:
            continue
        if not node.value.startswith("#!"):
            yield node.lineno, node.value


FOLDERS = sorted(path.name for path in (REPO / "cockpit").iterdir() if path.is_dir())


@pytest.mark.parametrize("folder", FOLDERS)
def test_messages(folder: str) -> None:
    found = [
        f"{path.relative_to(REPO)}:{line}: {said[0]!r}: rather {PHRASES[said[0].lower()]!r}"
        for path in (REPO / "cockpit" / folder).rglob("*.py")
        for line, text in texts(path)
        if (said := _FOUND.search(text))
    ]
    assert not found, "\n".join(found)


PAGES = sorted([REPO / "README.md", REPO / "CHANGELOG.md", *(REPO / "docs").glob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages(page: Path) -> None:
    text = " ".join(page.read_text().split())
    found = [
        f"…{text[max(0, one.start() - 40) : one.end() + 40]}…: rather {PHRASES[one[0].lower()]!r}"
        for one in _FOUND.finditer(text)
    ]
    assert not found, "\n".join(found)


def test_a_phrase_is_found() -> None:
    """Here, for one: these are no docstrings."""
    assert {"unasked", "one a"} <= {text for _, text in texts(Path(__file__))}
