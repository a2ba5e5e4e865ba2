"""Counts lines of program: those of ``cockpit/`` that are left without docstrings, comments and blank lines.

``make lines`` prints them for each package, and in total. A string that stands alone is a docstring wherever
it stands: behind an assignment it says what that is.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

SILENT = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)
"""Tokens that are no program."""


def lines(source: str) -> int:
    """How many lines of this Python source are program.

    :raises SyntaxError: it is not Python
    """
    said: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in SILENT:
            said.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant | ast.JoinedStr):
            if isinstance(node.value, ast.Constant) and not isinstance(node.value.value, str):
                continue
            said.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(said)


def of_packages(top: Path) -> Counter[str]:
    """The lines of each package below a folder, by its name within it."""
    found: Counter[str] = Counter()
    for path in sorted(top.rglob("*.py")):
        found[path.parent.relative_to(top.parent).as_posix()] += lines(path.read_text(encoding="utf-8"))
    return found


def main(top: str) -> None:
    """Print them."""
    found = of_packages(Path(top))
    width = len(f"{found.total():,}")
    for name, count in sorted(found.items()):
        print(f"{count:{width},}  {name}")
    print(f"{found.total():{width},}  in total")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "cockpit")
