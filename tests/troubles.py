"""Messages of the program and what they say to do, read from its source: ``docs/troubleshooting.md``."""

from __future__ import annotations

import ast
import functools
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

HOLE = "…"
"""What stands for a value that is known only when the message is printed."""

_PLACE = re.compile(r"\{\w*\}|%(?:\d*[sd]|\.\d+f)")
_VALUE = re.compile(rf"{HOLE}|\b(?:DIR|HOST|NAME|NODES?|PROGRAM|STATE|USER|[HKMNW])\b")
"""What on the page stands for any value."""

NO_MESSAGES = {"?", "kill -9"}
"""What is quoted in the left columns and is not said by the program."""

FILLED = {
    "by_hand": "ssh NODE",
    "by_hand or 'ssh ' + quote(where)": "ssh NODE",
    "self._by_hand": "ssh NODE",
    "{ssh}": "ssh NODE",
    "self.by_hand('true')": "ssh NODE true",
    "failure.command('true')": "ssh NODE true",
    "{try}": "ssh NODE true",
    "{file}": "~/.ssh/config",
    "self._by_hand.replace('ssh', 'ssh -fNM', 1)": "ssh -fNM NODE",
    "target.copy_id()": "ssh-copy-id NODE",
    "join(target.file[1:]) or '~/.ssh/config'": "~/.ssh/config",
    "file": "",
    "quote(found['host'])": "NODE",
    "join(remove)": "ssh-keygen -R NODE",
    "quote(nodes_text(others))": "NODES",
    "jobs[0]": "JOBID",
    "job": "JOBID",
    "package": "PACKAGE",
    "python": "PYTHON",
    "job.program[0]": "SCRIPT",
    "job.cwd": "DIR",
}
"""Values as a person reads them, by the expression that they come from; of all others :data:`HOLE`."""


def texts(node: ast.expr) -> list[str]:
    """What an expression may print; nothing: it is no text."""
    match node:
        case ast.Constant(value=str(text)):
            return [_PLACE.sub(lambda found: FILLED.get(found[0], HOLE), text.strip("\n"))]
        case ast.JoinedStr(values=parts):
            return ["".join(words) for words in itertools.product(*(texts(part) for part in parts))]
        case ast.FormattedValue(value=value):
            filled = FILLED.get(ast.unparse(value), HOLE)
            return (texts(value) if isinstance(value, ast.IfExp) else []) or [filled]
        case ast.IfExp(body=one, orelse=other):
            return texts(one) + texts(other)
        case ast.BinOp(left=left, op=ast.Mod()):
            return texts(left)
        case ast.Call(func=ast.Attribute(attr="join"), args=[ast.List(elts=[first, *_])]):
            return texts(first)
    return []


def _hints(function: ast.AST) -> Iterator[tuple[int, list[str]]]:
    """Where a function says what to do; the steps of a finding as a launch prints them."""
    steps = []
    for node in ast.walk(function):
        match node:
            case (
                ast.keyword(arg="hint", value=value) | ast.Assign(targets=[ast.Name(id="hint")], value=value)
            ):
                if (found := texts(value)) and all(found):
                    yield node.lineno, found
            case ast.Tuple(elts=[ast.Name(id="what"), other, *_]):
                yield node.lineno, texts(other)
            case ast.Call(func=ast.Name(id="Step"), args=words):
                steps.append(": ".join(text for word in reversed(words) for text in texts(word)))
    if steps:
        yield sys.maxsize, [", or ".join(steps)]


def _hinted(scope: ast.AST) -> Iterator[tuple[str, list[str]]]:
    """The texts in a function, each with the next hint; one passed on with ``hint``: with the last one."""
    if not (hints := sorted(_hints(scope))):
        return
    passed = {
        id(part)
        for call in ast.walk(scope)
        if isinstance(call, ast.Call)
        and any(
            isinstance(word, ast.Name) and word.id == "hint"
            for word in (*call.args, *(word.value for word in call.keywords))
        )
        for part in ast.walk(call)
    }
    for node in ast.walk(scope):
        if isinstance(node, ast.expr):
            before = [hint for line, hint in hints if line <= node.lineno] if id(node) in passed else []
            after = [hint for line, hint in hints if line >= node.lineno]
            for text in texts(node):
                yield text, [*before[-1:], *after, []][0]


@functools.cache
def said() -> dict[str, list[str]]:
    """Every text of the program, and what its line says to do: the text beside it, else a hint."""
    beside: dict[str, list[str]] = {}
    hinted: dict[str, list[str]] = {}
    for path in sorted(ROOT.glob("cockpit/**/*.py")):
        for scope in ast.walk(ast.parse(path.read_text())):
            match scope:
                case ast.Tuple(elts=elements) | ast.Call(args=elements):
                    for one, other in itertools.pairwise(elements):
                        for text in texts(one):
                            beside.setdefault(text, []).extend(texts(other))
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                    for text, hint in _hinted(scope):
                        hinted.setdefault(text, []).extend(hint)
                case ast.expr():
                    for text in texts(scope):
                        hinted.setdefault(text, [])
    return {text: list(dict.fromkeys(beside.get(text) or hints)) for text, hints in hinted.items()}


@functools.cache
def spoken(message: str) -> dict[str, list[str]]:
    """The texts of the program that a message on the page stands for, with what they say to do."""
    parts = [f"{HOLE}*".join(map(re.escape, part)) + f"{HOLE}*" for part in _VALUE.split(message)]
    exact = re.compile(f"{HOLE}+".join(parts))
    loose = re.compile(".*".join(parts))
    found = {text: hints for text, hints in said().items() if loose.search(text)}
    return {text: hints for text, hints in found.items() if exact.fullmatch(text)} or found


def messages(cell: str) -> list[str]:
    """The messages in a cell of a left column."""
    return [text for text in re.findall(r"`([^`]*)`", cell) if text not in NO_MESSAGES]


def advised(page: str, between: str = "; ") -> str:
    """The page with what the program itself says to do in front of its right column, after an arrow.

    :param between: stands between that and what the page itself says
    """

    def row(found: re.Match[str]) -> str:
        left, rest, own = found[1], found[2], re.sub(rf"^→ `[^`]*`(?:{between}|$)", "", found[3])
        hints = dict.fromkeys(
            hint for message in messages(left) for found in spoken(message).values() for hint in found
        )
        ours = " · ".join(filter(None, hints)).replace("`", "'").replace("|", r"\|")
        return f"| {left} | {rest} | {between.join(filter(None, (ours and f'→ `{ours}`', own)))} |"

    return re.sub(r"^\| (.*?) \| (.*?) \| (.*) \|$", row, page, flags=re.MULTILINE)
