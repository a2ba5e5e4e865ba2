"""A flame graph of all ranks as one self-contained page: it loads nothing, and nothing in it runs."""

from __future__ import annotations

import colorsys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from cockpit.core.html_page import html_page
from cockpit.core.profile.folded import Differs, Node, Samples, ranks_text, tree

LEAST = 0.002
"""Part of the whole below which a frame has no block: it could not be seen."""
ROOM = 60
"""Levels that are drawn."""

STYLE = """
:root { color-scheme: light dark; --dim: #5f6675; --odd: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --dim: #98a0b3; --odd: #ff8a80; } }
body { font: 15px/1.5 system-ui, sans-serif; margin: 1.5em; }
h1 { font-size: 1.15em; } h2 { font-size: 1em; } p, td { margin: .3em 0; }
.dim { color: var(--dim); } .odd { color: var(--odd); font-weight: 600; }
td, th { text-align: left; padding: 0 1.2em 0 0; font: 13px/1.5 ui-monospace, monospace; }
.graph div { display: flex; flex-direction: column; min-width: 0; overflow: hidden; }
.graph span { font: 12px/18px ui-monospace, monospace; color: #111; white-space: nowrap; overflow: hidden;
  text-overflow: ellipsis; padding: 0 3px; border: solid #fff; border-width: 0 1px 1px 0; height: 18px; }
.graph .row { flex-direction: row; }
"""


def flame_page(
    of: Mapping[int, Samples], title: str, facts: str, differ: Mapping[int, Sequence[Differs]]
) -> str:
    """The page.

    :param facts: one line about where this is from
    :param differ: of ranks that are named, the frames in which they differ from the others
    """
    root = tree(of)
    root.frame = "all ranks" if len(of) > 1 else "the rank"
    return html_page(title, STYLE, _body(root, len(of), title, facts, differ))


def _body(
    root: Node, ranks: int, title: str, facts: str, differ: Mapping[int, Sequence[Differs]]
) -> Iterator[str]:
    yield f'<h1>{escape(title)}</h1><p class="dim">{escape(facts)}</p>'
    for rank, frames in differ.items():
        yield f'<h2>Where <span class="odd">rank {rank}</span> spends more time than the others</h2><table>'
        yield "<tr><th>rank</th><th>others</th><th>more</th><th>in</th></tr>"
        for one in frames:
            share, others, more = (f"{100 * part:.0f} %" for part in (one.share, one.others, one.more))
            yield f"<tr><td>{share}</td><td>{others}</td><td>+{more}</td><td>{escape(one.frame)}</td></tr>"
        yield "</table>"
    yield '<h2>Main threads, callers above</h2><div class="graph">'
    if root.share:
        yield from _block(root, root.share, ranks, 0)
    else:
        yield "<p>no samples</p>"
    yield "</div>"


def _block(node: Node, above: float, ranks: int, depth: int) -> Iterator[str]:
    width = 100 * node.share / above
    part = 100 * node.share / max(1, ranks)
    told = f"{node.frame}: {part:.1f} % of the time of all; ranks {ranks_text(node)}"
    yield f'<div style="width:{width:.3f}%">'
    yield f'<span title="{escape(told)}" style="background:{_color(node.frame)}">{escape(node.frame)}</span>'
    called = [each for each in node.children.values() if each.share >= LEAST * max(1, ranks)]
    if called and depth < ROOM:
        yield '<div class="row">'
        for each in sorted(called, key=lambda each: -each.share):
            yield from _block(each, node.share, ranks, depth + 1)
        yield "</div>"
    yield "</div>"


def _color(frame: str) -> str:
    """A warm color, the same for a function wherever it is."""
    number = zlib.crc32(frame.partition(" (")[0].encode("utf-8", "surrogatepass"))
    red, green, blue = colorsys.hls_to_rgb((number % 60) / 360, 0.68 + number // 60 % 10 / 100, 0.75)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"
