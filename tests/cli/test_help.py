"""Help that one can take in: the options used most, all of them, and pages of the documentation."""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path

import pytest

from cockpit.cli import output, topics
from cockpit.cli.main import VERBS, main
from cockpit.cli.page_text import fitted, linked
from cockpit.cli.parsing import wrapped
from cockpit.errors import Exit

MANY = ("run", "ps", "plan", "doctor", "attach", "stacks", "clean", "profile", "demo")
"""Verbs with more options than one can take in."""


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with contextlib.suppress(SystemExit):
        assert main(list(words)) == Exit.OK
    return capsys.readouterr().out


def options(text: str) -> set[str]:
    lines = (line.split() for line in text.splitlines() if line.startswith("  -"))
    return {word.rstrip(",") for words in lines for word in words if word.startswith("--")}


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_has_a_dozen_options_at_most_and_its_whole_help_all(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    brief, whole = (options(shown(capsys, verb, word)) for word in ("--help", "--help-all"))
    more = {"--help", "--help-all"}
    assert len(brief - more) <= 12
    if verb in MANY:
        assert len(whole) > 14
        assert brief < whole
        assert "--help-all" in brief
    else:
        assert brief == whole
    assert options(shown(capsys, "help", verb)) == brief


@pytest.mark.parametrize("verb", VERBS)
def test_an_example_has_options_that_the_same_help_shows(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(capsys, verb, "--help")
    listed = {
        word.rstrip(",") for line in text.splitlines() if line.startswith("  -") for word in line.split()
    }
    examples = re.findall(rf"^  cockpit {verb}( .+)$", text.partition("examples:")[2], re.MULTILINE)
    typed = [
        re.split(r" -- |   ", line)[0].split() for line in examples
    ]  # what it is for is far to the right
    used = {word for words in typed for word in words if word.startswith("-")}
    assert used - listed - {"-", "--"} == set()


@pytest.mark.parametrize("verb", VERBS)
def test_help_fits_a_terminal(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for word in ("--help", "--help-all"):
        assert max(map(len, shown(capsys, verb, word).splitlines())) <= 80


def test_an_example_is_not_wrapped_but_what_it_is_for_is() -> None:
    assert wrapped("  cockpit run hostfile -- a.py", 20) == "  cockpit run hostfile -- a.py"
    assert wrapped("  cockpit ps      a few words to wrap of it", 40) == (
        "  cockpit ps      a few words to wrap of\n                  it"
    )
    assert wrapped("one two\nthree four five six seven", 20) == "one two\nthree four five six\nseven"
    assert (
        wrapped("one two three four five\nsix seven.\neight", 20)
        == "one two three four\nfive six seven.\neight"
    )


def test_a_verb_wins_over_the_page_of_its_name_and_says_how_to_open_that(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = shown(capsys, "help", "stacks")
    assert text.startswith("usage: cockpit stacks")
    assert text.endswith("\nMore: cockpit help stacks.md\n")
    assert shown(capsys, "help", "stacks.md").startswith("# Stacks: which rank hangs\n")
    assert "More:" not in shown(capsys, "help", "ps")


@pytest.mark.parametrize(
    ("words", "said"),
    [("topcs", "did you mean: cockpit help topics"), ("the", "see: cockpit help topics")],
)
def test_a_word_that_no_page_is_about(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", words]) == Exit.USAGE
    assert capsys.readouterr().err == f"cockpit: no verb or page {words!r}; {said}\n"


def test_help_of_help_is_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "help", "--help") == shown(capsys, "help", "-h") == shown(capsys, "--help")


def test_each_page_is_a_topic_and_reads_well_in_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (topics, output):  # whatever the locale is
        monkeypatch.setattr(module, "shows_unicode", lambda stream=None: True)
    listed = shown(capsys, "help", "topics")
    for name, page in topics.names().items():
        assert f"\n{name} " in listed
        text = shown(capsys, "help", f"{name}.md")
        assert text.startswith(f"# {topics.title(page.read_text())}")
        assert "](" not in text.replace("`](`", ""), name


PAGE = """\
# A page

![a picture](picture.svg)

Words that were broken for a line of more columns than
there are: [stacks](stacks.md#a-part), [keys](keys.md).

- one
  of two

```console
$ cockpit run hostfile --launcher command -- ./a-long-line
```

| key | value | what |
|---|---|---|
| `a \\| b` | 1 | a few words on what it is |

| x | y |
|---|---|
| 1 | 22 |
"""


def test_a_page_in_a_locale_without_its_letters(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "shows_unicode", lambda: False)
    assert main(["help", "failures"]) == 0
    assert capsys.readouterr().out.isascii()


def test_a_page_fits_the_terminal_and_names_the_pages_it_links_to() -> None:
    assert list(fitted(linked(PAGE, ["stacks", "keys"], ["stacks"]), 30)) == [
        "# A page",
        "",
        "Words that were broken for a",
        "line of more columns than",
        "there are: stacks (cockpit",
        "help stacks.md), keys (cockpit",
        "help keys).",
        "",
        "- one of two",
        "",
        "```console",
        "$ cockpit run hostfile --launcher command -- ./a-long-line",
        "```",
        "",
        "`a | b`",
        "    value: 1",
        "    what: a few words on what",
        "    it is",
        "",
        "x  y",
        "-  --",
        "1  22",
    ]


def test_every_page_fits_but_for_its_code() -> None:
    pages = topics.names()
    for page in pages.values():
        text = re.sub(r"(?ms)^ *```.*?```", "", linked(page.read_text(), pages, VERBS))
        long = [line for line in fitted(text, 80) if len(line) > 80]
        assert not [line for line in long if " " in line.strip()], page


def test_a_page_is_printed_if_there_is_no_such_pager(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGER", "nosuchpager -R")
    monkeypatch.delenv("MANPAGER", raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["help", "themes"]) == Exit.OK
    told = capsys.readouterr()
    assert told.out.startswith("# Themes\n")
    assert told.err.startswith("cockpit: no such pager: nosuchpager")


def test_what_is_neither_a_verb_nor_a_page_has_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "exit-code"]) == Exit.OK
    printed = capsys.readouterr()
    assert "SECTION WITH 'exit-code'" in printed.out
    assert printed.err == "cockpit: did you mean: cockpit help exit-codes\n"
    assert main(["help", "atach"]) == Exit.USAGE
    assert capsys.readouterr().err == "cockpit: no verb or page 'atach'; did you mean: cockpit help attach\n"
    assert main(["help", "qqqqqq"]) == Exit.USAGE
    assert capsys.readouterr().err.endswith("see: cockpit help topics\n")


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("password", "clusters         Passwords and one-time codes"),
        ("SLURM without sshd", "clusters         "),
        ("my rank hangs", "stacks"),
        ("hang", "stacks"),
        ("hangs", "stacks"),
        ("reports", "profiling"),
        ("collect reports", "profiling"),
        ("recorder", "stacks"),
        ("infiniband", "doctor"),
    ],
)
def test_help_about_something_says_where_it_is_described(
    capsys: pytest.CaptureFixture[str], words: str, page: str
) -> None:
    listed = shown(capsys, "help", *words.split()).splitlines()
    assert 1 < len(listed) <= 1 + topics.SHOWN
    assert any(line.startswith(f"cockpit help {page}") for line in listed[1:7]), listed
    for line in listed[1:]:
        name = line.removeprefix("cockpit help ").split()[0]
        assert name in topics.names()


def test_a_comment_in_code_is_no_section(tmp_path: Path) -> None:
    page = tmp_path / "plan.md"
    page.write_text("# Plan\n\n```bash\n# node 0 of 2\nlaunch it\n```\n\n## After\n\nLaunched.\n")
    assert topics.mentions(["launch"], {"plan": page}) == [("plan", "After"), ("plan", "Plan")]
