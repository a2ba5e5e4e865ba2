"""Judges what was judged before, by a cockpit all of whose sentences are other ones.

``python -m tests.reworded keep FILE TESTS`` runs tests and keeps what they let rules judge: snapshots and
events of runs. ``plain FILE`` prints what the rules find in it, and no sentence: ids, ranks, certainties,
states, exit codes. ``changed FILE`` prints the same, with each word of each sentence in the sources of rules
written backwards, and in what was kept: who reads a sentence of ours finds something else then.
"""

from __future__ import annotations

import ast
import copy
import importlib.abc
import importlib.machinery
import importlib.util
import json
import pickle
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

MADE_OF = ("cockpit.core.run", "cockpit.core.stacks", "cockpit.core.recorder", "cockpit.core.watch")
MADE_OF_TOO = (
    "cockpit.core.finding",
    "cockpit.core.inferred",
    "cockpit.core.ranks",
    "cockpit.base.stacks.kinds",
)
"""Packages and modules in which rules and their sentences are."""

SENTENCE = re.compile(r"[a-z]{2,}[,;:]? [a-z%{]|[a-z]{3,} $|^ [a-z]{2,}")
WORD = re.compile(r"(?<![%\w])[a-z]{2,}(?!\w)")
_METHODS = frozenset(("compile", "match", "search", "fullmatch", "sub", "split", "partition", "rpartition"))
"""What reads: its arguments stay as they are."""

MOST = 4000


def reworded(text: str) -> str:
    """Other words that mean the same."""
    return WORD.sub(lambda word: word.group()[::-1], text)


class _Rewords(ast.NodeTransformer):
    """Rewords sentences where they are made, and not where they are read."""

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return node if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        read = isinstance(node.func, ast.Attribute) and (
            node.func.attr in _METHODS or node.func.attr.endswith(("swith", "prefix", "suffix"))
        )
        return node if read else self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and SENTENCE.search(node.value):
            return ast.copy_location(ast.Constant(reworded(node.value)), node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        source = Path(self.get_filename(fullname)).read_text(encoding="utf-8")
        tree = ast.fix_missing_locations(_Rewords().visit(ast.parse(source)))
        return compile(tree, self.get_filename(fullname), "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    """Loads those modules with other sentences."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in MADE_OF_TOO and not fullname.startswith(MADE_OF):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
            return spec
        more = {"submodule_search_locations": spec.submodule_search_locations}
        return importlib.util.spec_from_file_location(
            fullname, spec.origin, loader=_Loader(fullname, spec.origin), **more
        )


def keep(file: str, *words: str) -> int:
    """Run tests, and keep what they let rules judge; how many kinds of verdicts there were."""
    import pytest

    from cockpit.core.run.model import RunModel
    from cockpit.core.stacks import verdict as verdicts

    kept: dict[str, list[bytes]] = {"snapshots": [], "runs": []}
    judge, of = verdicts.verdict, RunModel.of

    def judged(snapshot: Any) -> Any:
        if len(kept["snapshots"]) < MOST and len(snapshot.ranks) <= 64:
            kept["snapshots"].append(pickle.dumps(snapshot))
        return judge(snapshot)

    def made(events: Any) -> Any:
        several = list(events)
        if len(kept["runs"]) < MOST:
            kept["runs"].append(pickle.dumps(several))
        return of(several)

    verdicts.verdict = judged
    RunModel.of = made  # type: ignore[method-assign]
    code = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *words])
    Path(file).write_bytes(pickle.dumps(kept))
    return int(code)


def _changed(value: Any, inside: bool = False) -> Any:
    """The same with other sentences: text in which words stand beside each other."""
    if isinstance(value, str):
        return reworded(value) if inside and re.search(r"[a-z]{2,} [a-z]", value) else value
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_changed(each, inside) for each in value)
    return value


def _with_other_sentences(fact: Any) -> Any:
    if not is_dataclass(fact) or isinstance(fact, type):
        return fact
    told = {one.name: getattr(fact, one.name) for one in fields(fact) if one.init}
    said = {name: _changed(told[name], True) for name in ("why", "text", "what", "evidence") if name in told}
    return replace(fact, **said)


def judge(file: str, *, changed: bool) -> Iterator[object]:
    """What the rules find."""
    if changed:
        sys.meta_path.insert(0, _Finder())
    from cockpit.core.run.model import RunModel
    from cockpit.core.stacks.verdict import standstill, verdict, wanted

    kept = pickle.loads(Path(file).read_bytes())
    for data in kept["snapshots"]:
        taken = pickle.loads(data)
        if changed:
            taken = copy.copy(taken)
            taken.ranks = {
                rank: replace(one, why=_changed(one.why, True)) for rank, one in taken.ranks.items()
            }
            taken.twice = {rank: _changed(text, True) for rank, text in taken.twice.items()}
            taken.problems = _changed(taken.problems, True)
        found = verdict(taken)
        yield [
            found.id,
            found.ranks,
            found.certainty,
            found.severity,
            found.nodes,
            found.since,
            len(found.what) > 0,
        ]
        yield [*standstill(taken), sorted(wanted(taken).items())]
    for data in kept["runs"]:
        events = pickle.loads(data)
        if changed:
            events = [replace(one, fact=_with_other_sentences(one.fact)) for one in events]
        model = RunModel.of(events)
        ranks = [(rank.rank, rank.state.value, rank.failed, rank.recorded) for rank in model.ranks.values()]
        nodes = [(node.name, node.link, node.done, bool(node.lost)) for node in model.nodes.values()]
        first = model.first_failure()
        yield [ranks, nodes, model.over, int(model.exit_code()), None if first is None else first.rank]


def main(how: str, file: str, *words: str) -> int:
    """Do one of the three."""
    if how == "keep":
        return keep(file, *words)
    for each in judge(file, changed=how == "changed"):
        print(json.dumps(each))
    if how == "changed":
        # Else nothing was tried.
        from cockpit.core.stacks.words import number_text

        print(number_text(0b11, "is", "are"), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
