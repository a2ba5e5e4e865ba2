"""A filter finds what is shown, and what it passes over unseen does not match."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from cockpit.core.expressions import LACKS, Expression
from cockpit.core.logs.excerpt import excerpt
from cockpit.core.logs.patterns import Pattern, needed_texts
from cockpit.errors import CockpitError

ATOMS = r"""
a b k s i ab loss rank ERROR é ß ı İ ſ █ . ^ $ \d \w \s \S \. \\ \| \[ [ab] [^a] []x] [a\]b] { } {} x{
(a) (a|b) (?:loss|rank) (?:a[)]b) (a(b)?) (?=a) (?!a) (?<=a) (?<!a) \bloss\b \x61 \u0061 \141 < U+ x1b
"""
atoms = st.sampled_from([*ATOMS.split(), " ", "step 5", "a  b"])
counts = st.sampled_from(
    ["", "", "", "*", "+", "?", "*?", "+?", "{2}", "{0}", "{,2}", "{1,2}", "{0,1}?", "{,}"]
)
regexes = st.lists(
    st.one_of(st.tuples(atoms, counts).map("".join), st.just("|")), min_size=1, max_size=5
).map("".join)
lines = st.lists(
    st.sampled_from(
        [
            b"a",
            b"b",
            b"k",
            b"S",
            b"loss",
            b"Loss",
            b"rank",
            b"ERROR",
            b"x",
            b"5",
            b" ",
            b".",
            b"\\",
            b"|",
            b"{",
            b"}",
            b"\t",
            b"\r",
            b"\x1b",
            b"\x1b[31m",
            b"\x1b[0m",
            b"\x1b[999m",
            b"\x0c",
            b"\xff",
            "é█ſıİKß\u202e\u0301".encode(),
        ]
    ),
    max_size=8,
).map(b"".join)


@given(regexes, st.lists(lines, max_size=4))
@settings(max_examples=300)
@example("(?i)A", [b"a"])
@example("(?#[)a", [b"a"])
@example("lo", [b"l\x1b[31mo"])
@example("a  b", [b"a\tb"])
@example("x1b", [b"\x1b"])
@example("^a$", [b"b\ra\r"])
def test_what_is_passed_over_does_not_match(regex: str, block: list[bytes]) -> None:
    try:
        pattern = Pattern(regex)
    except CockpitError as error:
        if not error.what.endswith(LACKS):
            with pytest.raises((re.error, ValueError, OverflowError)):
                re.compile(regex, re.ASCII)
        return
    if any(pattern.matches(excerpt(line)[0]) for line in block):
        assert pattern.may_match(b"\n".join(block) + b"\n")


SAME = [atom for atom in ATOMS.split() if "(?=" not in atom and "(?!" not in atom and "(?<" not in atom]


@given(
    st.lists(
        st.one_of(st.tuples(st.sampled_from([*SAME, " "]), counts).map("".join), st.just("|")),
        min_size=1,
        max_size=5,
    ).map("".join),
    st.text("abksi lossrankERROR.\\|{}[x5é█", max_size=12),
)
@settings(max_examples=300)
@example(r"a{,2}b\Z", "aab")
@example(r"^\u0061$", "a")
@example(r"\N{LATIN SMALL LETTER A}", "a")
def test_it_finds_what_python_finds(regex: str, text: str) -> None:
    # Possessive counts: Python has them from 3.11 on, RE2 does not.
    assume(not re.search(r"[*+?}]\+", regex))
    try:
        python = re.compile(regex, re.ASCII)
    except (re.error, OverflowError):
        return
    found = Expression(regex)
    assert found.search(text) == (python.search(text) is not None)
    if not re.search(r"[|?*+{]", regex):
        assert list(found.spans(text)) == [one.span() for one in python.finditer(text) if one.group()]


@pytest.mark.parametrize(
    "regex",
    [
        "(a+)+$",
        r"(\w+\s?)+:",
        "(.*)*loss=$",
        "(a|a)*$",
        "(a|aa)+$",
        "([a-z]+)*=",
        ".*.*.*.*.*=z",
        "(?:(?:a*)*)*b",
        "^(([a-z])+.)+[A-Z]([a-z])+$",
        "(a?){900}a{900}",
    ],
)
def test_no_expression_takes_long(regex: str) -> None:
    pattern = Pattern(regex)
    for line in (b"a" * 8192, b"a" * 8191 + b"!", b"aa " * 2730, b"epoch 12 step 4711 of the run " * 270):
        pattern.matches(line)
        pattern.may_match(line + b"\n")
        pattern.spans(line.decode())


@pytest.mark.parametrize("regex", ["(?=a)b", "(?<!a)b", r"(a)\1", "(?P<x>a)(?P=x)", "[[:alpha:]]"])
def test_what_could_take_for_ever_or_means_something_else_is_refused(regex: str) -> None:
    with pytest.raises(CockpitError, match=r"are not supported"):
        Pattern(regex)


@pytest.mark.parametrize(
    ("regex", "needed"),
    [
        ("loss", ["loss"]),
        ("loss|error", ["loss", "error"]),
        ("step 4001/.*rank", ["step 4001/"]),
        (r"loss: \d+", ["loss: "]),
        (r"a\.b", ["a.b"]),
        ("colou?r", ["colo"]),
        ("x{2}yz", ["yz"]),
        (r"(?:CUDA|NCCL) (error|(?P<what>warning))s?", ["error", "warning"]),
        ("(loss|x)?y", ["y"]),
        ("(a)?(?=loss)(?<!no )(?(1)c|d)y", ["y"]),
        ("(a|)|b", None),
        (r"\d+", None),
        ("a|", None),
        ("(?i)loss", None),
    ],
)
def test_texts_that_must_be_there(regex: str, needed: list[str] | None) -> None:
    assert needed_texts(regex) == needed


def test_small_letters_find_capitals_and_capitals_only_themselves() -> None:
    assert Pattern("error").matches(b"an ERROR")
    assert not Pattern("Error").matches(b"an ERROR")
    assert Pattern(r"\Serror").matches(b"anERROR")
    assert Pattern("(?P<Name>error)").matches(b"ERROR") is False  # a name's capitals count: harmless


def test_an_exclamation_mark_inverts() -> None:
    pattern = Pattern("!loss")
    assert pattern.matches(b"hello")
    assert not pattern.matches(b"the Loss")
    assert pattern.may_match(b"anything")
    assert pattern.spans("loss") == []


def test_it_looks_at_what_is_shown() -> None:
    pattern = Pattern("loss 0")
    assert pattern.matches(b"\x1b[1mlo\x1b[31mss\x1b[0m 0")
    assert not Pattern("31m").matches(b"\x1b[31mloss")
    assert pattern.spans("a loss 0, a LOSS 0") == [(2, 8), (12, 18)]
    assert Pattern("x*").spans("axx") == [(1, 3)]


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("ab(", r"/ab\(/: missing \), unterminated subpattern at character 3"),
        ("!ab(", r"/!ab\(/: missing \), unterminated subpattern at character 4"),
        ("*", "nothing to repeat at character 1"),
        ("(?u)a", "not a regular expression: ASCII and UNICODE flags are incompatible"),
        ("(" * 400 + ")" * 400, "not a regular expression: .*recursion"),
        ("a{99999999999}", "not a regular expression: the repetition number is too large"),
    ],
)
def test_what_is_no_expression_is_refused_with_the_place(typed: str, message: str) -> None:
    with pytest.raises(CockpitError, match=message):
        Pattern(typed)


def test_nested_sets_print_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    assert Pattern("[[a]").matches(b"[")
    assert not recwarn.list
