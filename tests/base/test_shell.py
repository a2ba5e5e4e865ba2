"""Text that becomes shell: read back by real shells, byte for byte, and never run."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cockpit.base.shell import comment, fill, join, quote, quote_posix, verbatim
from cockpit.core.text import RemoteText

ROOT = Path(__file__).parents[2]
# A command line takes every byte but NUL.
BYTES = st.binary(max_size=20).map(lambda data: data.replace(b"\0", b"").decode("utf-8", "surrogateescape"))
NASTY = st.text(st.sampled_from("ab $'\"\\\n\t!`#~*?{};&|<>()=é€\x1b\x7f\r%\u202e\u0301\u115f"), max_size=20)
TEXT = BYTES | NASTY | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=10)


def printed(shell: str, script: str) -> bytes:
    """What a shell prints that reads a script on stdin."""
    data = script.encode("utf-8", "surrogateescape")
    return subprocess.run([shell], input=data, capture_output=True, check=True).stdout


@settings(max_examples=60)
@given(st.lists(TEXT, min_size=1, max_size=20))
def test_bash_reads_back_every_byte(words: list[str]) -> None:
    expected = b"".join(word.encode("utf-8", "surrogateescape") + b"\0" for word in words)
    assert printed("bash", "printf '%s\\0' " + join(words)) == expected
    script = "".join(fill("A={}\nprintf '%s\\0' {} >&1\n", word, word) for word in words)
    assert printed("bash", script) == expected


@settings(max_examples=60)
@given(st.lists(TEXT, min_size=1, max_size=20))
def test_sh_reads_back_every_byte(words: list[str]) -> None:
    expected = b"".join(word.encode("utf-8", "surrogateescape") + b"\0" for word in words)
    assert printed("sh", "printf '%s\\0' " + " ".join(map(quote_posix, words))) == expected


@given(st.text() | st.text(st.characters(exclude_categories=())))
def test_what_is_quoted_is_shown_as_it_is(text: str) -> None:
    """So that a printed plan can be pasted, and a hint typed: the sanitiser changes nothing of it."""
    for shell in (quote(text), comment(text)):
        assert RemoteText.of(shell).shown() == shell
        assert "!" not in shell
    for line in verbatim(text).split("\n"):
        assert RemoteText.of(line).shown() == line


@settings(max_examples=60)
@given(TEXT)
def test_a_comment_runs_nothing(text: str) -> None:
    for canary in ("\necho canary", "\recho canary", "$(echo canary >&2)", "`echo canary`"):
        assert printed("bash", comment(text + canary + text) + "\nprintf end") == b"end"


@settings(max_examples=30)
@given(TEXT)
def test_a_setup_means_the_same(text: str) -> None:
    script = "A=" + quote_posix(text) + '\nprintf %s "$A"\n'
    assert printed("bash", verbatim(script)) == text.encode("utf-8", "surrogateescape")


def test_numbers_are_numbers() -> None:
    assert fill("{} {number:d}", "a b", number=7) == "'a b' 7"
    for wrong in (True, 1.5, None, b"x"):
        with pytest.raises(TypeError):
            fill("{}", wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="format code"):
        fill("$(({number:d} + 1))", number="1; touch x #")


def quotes(node: ast.AST) -> bool:
    """Whether something is quoted for a shell here."""
    match node:
        case ast.Attribute(value=ast.Name(id="shlex"), attr=attribute):
            return attribute != "split"
        case ast.ImportFrom(module="shlex" | "pipes", names=names):
            return [alias.name for alias in names] != ["split"]
        case ast.Constant(value=str(text)):
            return "'\\''" in text
    return False


def quotings(tree: ast.AST) -> list[int]:
    """Lines in which something is quoted for a shell."""
    return [getattr(node, "lineno", 0) for node in ast.walk(tree) if quotes(node)]


def test_there_is_no_other_place_that_quotes() -> None:
    for path in ROOT.glob("cockpit/**/*.py"):
        text = path.read_text()
        # Of others no tree need be made: what is looked for is not written without one of these.
        if path != ROOT / "cockpit/base/shell.py" and re.search(r"shlex|pipes|\\", text):
            assert quotings(ast.parse(text)) == [], f"{path}: use cockpit.base.shell"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("shlex.quote(x)", [1]),
        ("from shlex import quote", [1]),
        ("\nx.replace('q', \"'\\\\''\")", [2]),
        ("shlex.split(x)", []),
        ("from shlex import split", []),
    ],
)
def test_another_place_that_quotes_is_seen(code: str, found: list[int]) -> None:
    assert quotings(ast.parse(code)) == found
