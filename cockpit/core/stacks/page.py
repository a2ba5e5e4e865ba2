"""A snapshot as one self-contained HTML page: to send to somebody, or to keep beside a report."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from html import escape

from cockpit.base.stacks.dump import Dump, Frame, Thread
from cockpit.base.stacks.kinds import WAITING
from cockpit.core.finding import Finding
from cockpit.core.html_page import html_page
from cockpit.core.inferred import MARK
from cockpit.core.masks import count, mask_of, ranks_of
from cockpit.core.ranks import mask_text
from cockpit.core.stacks import last_calls
from cockpit.core.stacks.classes import RankClass, classes
from cockpit.core.stacks.snapshot import Snapshot
from cockpit.core.stacks.text import titled_threads, tree_masks
from cockpit.core.stacks.tree import StackTree
from cockpit.core.stacks.tree_lines import TreeRow, rows

STYLE = """
:root { color-scheme: light dark; --dim: #5f6675; --line: #d5d9e2; --odd: #b3261e; --waits: #1a5fb4; }
@media (prefers-color-scheme: dark) {
  :root { --dim: #98a0b3; --line: #3a3f4b; --odd: #ff8a80; --waits: #8ab4f8; }
}
body { font: 15px/1.5 system-ui, sans-serif; max-width: 120ch; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.15em; } h2 { font-size: 1em; margin: 2em 0 .4em; }
pre, code, td { font: 13px/1.5 ui-monospace, monospace; }
pre { overflow-x: auto; margin: .3em 0 .8em; }
details { border-top: 1px solid var(--line); padding: .3em 0; }
summary { cursor: pointer; }
section { border-left: .3em solid var(--line); padding-left: 1em; }
section.names { border-color: var(--odd); } section p { margin: .3em 0; }
.headline { font-size: 1.15em; font-weight: 600; }
.dim { color: var(--dim); } .odd { color: var(--odd); font-weight: 600; } .waits { color: var(--waits); }
.every, #every:checked ~ .folded { display: none; } #every:checked ~ .every { display: block; }
table { border-collapse: collapse; } td, th { text-align: left; padding: 0 1.2em 0 0; vertical-align: top; }
"""


def as_page(snapshot: Snapshot, verdict: Finding) -> str:
    """The whole page: verdict, classes with every thread of one rank each, tree, and a table of ranks.

    Nothing is loaded from anywhere and nothing in it runs, whatever a node has sent.
    """
    title = f"stacks of {snapshot.title}, {snapshot.name}"
    return html_page(title, STYLE, _body(title, snapshot, verdict))


def _body(title: str, snapshot: Snapshot, verdict: Finding) -> Iterator[str]:
    yield f"<h1>{escape(title)}</h1>"
    yield f'<p class="dim">{escape(_facts(snapshot))}</p>'
    yield from _verdict(verdict)
    for note in snapshot.notes():
        yield f"<p>{escape(note)}</p>"
    found = classes(snapshot)
    if found:
        yield "<h2>Classes: ranks that are at the same place</h2>"
        for one in found:
            yield from _class(snapshot, one, verdict.ranks)
    yield from _tree(snapshot, verdict.ranks)
    yield from _ranks(snapshot, found, verdict.ranks)
    if snapshot.calls:
        told = "\n".join(last_calls.lines(snapshot.calls)).strip("\n")
        yield f"<h2>Last calls of ranks without a stack</h2><pre>{escape(told)}</pre>"


def _facts(snapshot: Snapshot) -> str:
    if not snapshot.samples:
        return "no sample"
    newest = snapshot.samples[-1]
    at = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(newest.at))
    answered = f"{count(newest.answered):,} of {len(snapshot.ranks):,} ranks answered"
    return f"{answered} · {len(snapshot.samples)} sample{'s' * (len(snapshot.samples) != 1)}, newest {at}"


def _verdict(verdict: Finding) -> Iterator[str]:
    names = ' class="names"' if verdict.ranks else ""
    yield f'<section{names}><p class="headline">{escape(verdict.what)}</p>'
    if verdict.where:
        yield f"<p>at <code>{escape(verdict.where)}</code></p>"
    if verdict.detail:
        yield f"<p>{escape(verdict.detail)}</p>"
    yield f"<ul>{''.join(f'<li>{escape(fact)}</li>' for fact in verdict.evidence)}</ul>"
    yield f'<p class="dim">{escape(verdict.sureness)}</p></section>'


def _class(snapshot: Snapshot, one: RankClass, odd: int) -> Iterator[str]:
    style = _style(one.ranks, odd, one.doing.kind)
    number = f"{count(one.ranks):,} ranks" if count(one.ranks) > 1 else "rank"
    first = " open" if odd and one.ranks & ~odd == 0 else ""
    mark = MARK if one.ranks & snapshot.inferred else ""
    whose = f"<span{style}>{number} {mark}{mask_text(one.ranks)}</span>"
    yield f"<details{first}><summary>{whose}: {escape(one.facts)}</summary>"
    if one.source:
        yield f"<pre>{escape(one.source)}</pre>"
    for title, thread in titled_threads(snapshot, one):
        yield from _thread(title, thread)
    yield "</details>"


def _thread(title: str, thread: Thread) -> Iterator[str]:
    yield f'<div class="dim">{escape(title)}</div><pre>'
    for number, frame in enumerate(thread.frames):
        yield _frame(frame)
        for name, value in (thread.locals[number] if number < len(thread.locals) else {}).items():
            yield f'    <span class="dim">{escape(f"{name} = {value}")}</span>'
    yield "</pre>"


def _tree(snapshot: Snapshot, odd: int) -> Iterator[str]:
    tree = snapshot.samples[-1].tree() if snapshot.samples else StackTree()
    if not tree.ranks:
        return
    yield '<h2>Tree of all stacks</h2><input type="checkbox" id="every">'
    yield '<label for="every"> library frames too</label>'
    yield from _rows("folded", rows(tree, odd=odd), odd, snapshot.inferred)
    yield from _rows("every", rows(tree, odd=odd, library=True), odd, snapshot.inferred)


def _rows(which: str, found: list[TreeRow], odd: int, inferred: int) -> Iterator[str]:
    shown = tree_masks(found, inferred)
    room = max(map(len, shown.values()))
    yield f'<pre class="{which}">'
    for row in found:
        text = f"… {escape(row.note)}" if row.frame is None else _frame(row.frame)
        if row.missing:
            text += f"  <b>{count(row.here):,} here, {count(row.missing):,} missing</b>"
        mask = f'<span class="dim" title="{mask_text(row.ranks)}">{shown[row.ranks]:<{room}}</span>'
        yield f"{mask}  {escape(row.guides)}<span{_style(row.ranks, odd, row.kind)}>{text}</span>"
    yield "</pre>"


def _ranks(snapshot: Snapshot, found: list[RankClass], odd: int) -> Iterator[str]:
    newest = snapshot.samples[-1].dumps if snapshot.samples else {}
    missing = snapshot.missing()
    class_of = {rank: one for one in found for rank in ranks_of(one.ranks)}
    yield f"<h2>Ranks</h2><details{' open' * (len(snapshot.ranks) <= 16)}><summary>all ranks</summary><table>"
    yield "<tr><th>rank</th><th>node</th><th>pid</th><th>does</th><th>notes</th></tr>"
    for rank, place in sorted(snapshot.ranks.items()):
        one = class_of.get(rank)
        does = missing.get(rank) or (one.doing.text if one is not None else "")
        style = _style(mask_of([rank]), odd, "")
        cells = (place.node, place.pid_text, does, " · ".join(_notes(newest.get(rank))))
        mark = MARK if place.inferred else ""
        yield f"<tr><td><span{style}>{mark}{rank}</span></td>{_cells(cells)}</tr>"
    yield "</table></details>"


def _cells(cells: Iterable[object]) -> str:
    return "".join(f"<td>{escape(str(cell))}</td>" for cell in cells)


def _notes(dump: Dump | None) -> Iterator[str]:
    if dump is None:
        return
    if dump.way not in ("", "plain"):
        yield dump.way
    yield from dump.notes
    if dump.hint:
        yield dump.hint


def _style(ranks: int, odd: int, kind: str) -> str:
    if odd and ranks & ~odd == 0:
        return ' class="odd"'
    return ' class="waits"' if kind in WAITING else ""


def _frame(frame: Frame) -> str:
    return f'{escape(frame.name)}  <span class="dim">{escape(frame.place)}</span>'
