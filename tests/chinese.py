"""Keeps the Chinese pages in step with the English ones; ``make docs-zh``, once they have been revised.

Below each heading of a Chinese page are hashes of the English pieces that its section translates: paragraphs,
items, rows of tables. An English piece that has changed since makes its translation stale.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PAGES = {
    "README.zh.md": "README.md",
    "docs/zh/first-run.md": "docs/tour.md",
    "docs/zh/troubleshooting.md": "docs/troubleshooting.md",
    "docs/zh/explain.md": "docs/explain.md",
}
"""The English page of each Chinese one."""

_PIECE = re.compile(
    r"(?m)(?P<code>^```.*\n(?:.*\n)*?```$)|(?P<row>^\|.*$)|(?P<heading>^#+ .*$)"
    r"|(?P<aside>^<!-- en: .* -->$|^\[(?:中文|English)\]\(\S+\)$)|(?P<item>^(?:-|\d+\.) .*(?:\n +\S.*)*)"
    r"|(?P<text>^\S.*(?:\n(?!\||#|```|- |\d+\. |<!--)\S.*)*)"
)


@dataclass(frozen=True)
class Piece:
    """A heading, paragraph, item, row or block of code, and the heading that it is under."""

    kind: str
    text: str
    under: str

    @property
    def shape(self) -> tuple[str, str, int]:
        """What it has in common with its translation: level, number of an item, columns of a row."""
        first = self.text.split()[0] if self.kind in ("heading", "item") else ""
        return self.kind, first, len(re.split(r"(?<!\\)\|", self.text)) if self.kind == "row" else 0

    @property
    def hash(self) -> str:
        """Stays the same if lines are only broken elsewhere."""
        return hashlib.sha256(" ".join(self.text.split()).encode()).hexdigest()[:6]

    def spans(self) -> set[str]:
        """Commands, keys and messages: what is never translated."""
        return {self.text} if self.kind == "code" else set(re.findall(r"`[^`]*`", self.text))

    def links(self, page: str) -> list[str]:
        """Where its links and pictures lead, from the top; to an English page instead of its translation."""
        found = []
        for name, anchor in re.findall(r"\]\(([^)#\s]*)(#?[^)\s]*)\)", self.text):
            path = os.path.normpath(Path(page).parent / name) if name and ":" not in name else name
            found.append(PAGES.get(path) or f"{path}{anchor}")
        return sorted(found)


def pieces(text: str) -> list[Piece]:
    """A page in its parts, without links to the other language and hashes."""
    found, under = [], ""
    for match in _PIECE.finditer(text):
        under = match[0].lstrip("# ") if match.lastgroup == "heading" else under
        found.append(Piece(match.lastgroup or "", match[0], under))
    return [piece for piece in found if piece.kind != "aside"]


def differences(page: str, chinese: str, english: str) -> Iterator[str]:
    """What is in one page and not in the other."""
    end = Piece("end", "", "the end")
    for mine, theirs in zip([*pieces(chinese), end], [*pieces(english), end], strict=False):
        at = f"{page}: {mine.under}: {mine.text[:60]!r}"
        if mine.shape != theirs.shape:
            yield f"{at}: stands where the English page has, under {theirs.under!r}: {theirs.text[:60]!r}"
            return
        if only := mine.spans() ^ theirs.spans():
            yield f"{at}: only one of both pages has {', '.join(sorted(only))}"
        if mine.links(page) != theirs.links(PAGES[page]):
            yield f"{at}: leads to {mine.links(page)}, the English page to {theirs.links(PAGES[page])}"


def stale(page: str, chinese: str, english: str) -> Iterator[str]:
    """English pieces that are not those that were translated."""
    known = " ".join(re.findall(r"^<!-- en: (.*) -->$", chinese, re.MULTILINE)).split()
    found = [piece for piece in pieces(english) if piece.hash not in known]
    yield from (f"{page}: stale: under {piece.under!r}: {piece.text[:60]!r}" for piece in found)
    if not found and chinese != accepted(chinese, english):
        yield f"{page}: stale: the English page has the same pieces in another order, or fewer"


def accepted(chinese: str, english: str) -> str:
    """The Chinese page with the hashes of the English one as it is now."""
    hashes = "".join(f"{'|' * (each.kind == 'heading')} {each.hash}" for each in pieces(english))
    rest = iter(hashes.split("|")[1:])

    def marked(found: re.Match[str]) -> str:
        return f"{found[0]}\n<!-- en:{next(rest)} -->" if found.lastgroup == "heading" else found[0]

    return _PIECE.sub(marked, re.sub(r"^<!-- en: .* -->\n", "", chinese, flags=re.MULTILINE))


def main() -> None:
    """Say what is not in step; with ``--accept``, take stale translations as revised."""
    for page, other in PAGES.items():
        chinese, english = (ROOT / page).read_text(), (ROOT / other).read_text()
        if wrong := list(differences(page, chinese, english)):
            sys.exit("\n".join(wrong))
        print("".join(f"{line}\n" for line in stale(page, chinese, english)), end="")
        if "--accept" in sys.argv:
            (ROOT / page).write_text(accepted(chinese, english))


if __name__ == "__main__":
    main()
