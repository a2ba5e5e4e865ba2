"""What the docs say is there: keys, links, commands and their options, targets of make."""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
from pathlib import Path

import pytest

from cockpit.errors import Exit
from tests import troubles
from tests.tables import DRAWN, PACKAGES, ROOT, TROUBLES, renewed

PAGES = sorted(
    [*ROOT.glob("README*.md"), ROOT / "CHANGELOG.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/zh/*.md")]
)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(path: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)


def leads(page: Path, name: str, heading: str) -> bool:
    """Whether a link on a page leads to a file, and to a heading of it."""
    target = page.parent / name if name else page
    if not target.exists() or not heading:
        return target.exists()
    titles = re.findall(r"^#+ (.*)$", prose(target), re.MULTILINE)
    return heading in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def typed(path: Path) -> list[list[str]]:
    """What a page tells people to type to cockpit: words, without those of the training script."""
    code = [*re.findall(r"^\$ (cockpit .*)$", path.read_text(), re.MULTILINE)]
    code += re.findall(r"`(cockpit [a-z][^`]*)`", prose(path))
    return [re.split(r" -- | \| ", line)[0].split() for line in code]


@functools.cache
def help_of(verb: str, cockpit: tuple[str, ...]) -> str:
    done = subprocess.run(
        [*cockpit, verb, "--help-all"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout if done.returncode == 0 else ""


def test_exit_codes_are_those_there_are() -> None:
    told = re.findall(r"^\| (\d+) \| .* \|$", (ROOT / "docs/exit-codes.md").read_text(), re.MULTILINE)
    assert [int(code) for code in told] == list(Exit)


def test_the_index_has_every_page() -> None:
    index = (ROOT / "docs/README.md").read_text()
    pages = {path.name for path in ROOT.glob("docs/*.md")} - {"README.md"}
    pages |= {f"zh/{path.name}" for path in ROOT.glob("docs/zh/*.md")}
    assert {name for name in pages if f"]({name})" not in index} == set()


def test_pictures_are_small() -> None:
    pictures = [
        page.parent / name for page in PAGES for name in re.findall(r"!\[.*?\]\((.*?)\)", prose(page))
    ]
    assert ROOT / "docs/screenshots/demo.gif" in pictures
    too_large = [path for path in pictures if not 0 < path.stat().st_size <= 3_000_000]
    assert too_large == []


def test_stills_are_dark_and_light_and_name_no_folder_of_their_maker() -> None:
    stills = {path.stem for path in ROOT.glob("docs/screenshots/*.svg")}
    dark = {name for name in stills if not name.endswith("-light")}
    assert stills - dark == {f"{name}-light" for name in dark} != set()
    texts = (path.read_text() for path in ROOT.glob("docs/screenshots/*.svg"))
    assert [text for text in texts if str(ROOT) in text or "/root/" in text] == []


def test_the_cast_is_one() -> None:
    """Its times rise to 20 s, it shows the demo's command first, and no path of its maker's is in it."""
    header, *events = map(json.loads, (ROOT / "docs/screenshots/demo.cast").read_text().splitlines())
    assert (header["version"], header["width"], header["height"]) == (2, 140, 40)
    times = [at for at, _, _ in events]
    assert times == sorted(times)
    assert times[-1] <= 20
    shown = "".join(text for _, kind, text in events if kind == "o")
    assert shown.startswith(f"$ {header['title']}\r\n")
    assert [text for _, kind, text in events if kind == "m"] == ["starts", "healthy", "stalls", "its stack"]
    assert re.findall(r"/(?:root|home)\b.{20}", shown) == []


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_the_readme_is_three_screens(name: str) -> None:
    text = (ROOT / name).read_bytes()
    assert len(text) <= 14_000
    assert text.count(b"\n") <= 200


@pytest.mark.parametrize("name", DRAWN)
def test_keys_are_those_of_the_app(name: str) -> None:
    text = (ROOT / name).read_text()
    assert text == renewed(text, [table() for table in DRAWN[name]]), "type: make docs"


@pytest.mark.slow
@pytest.mark.parametrize("name", TROUBLES)
def test_messages_of_the_troubleshooting_page_are_those_of_the_program(name: str) -> None:
    text = (ROOT / name).read_text()
    told = [
        message
        for cell in re.findall(r"^\| (.*?) \|", text, re.MULTILINE)
        for message in troubles.messages(cell)
    ]
    assert len(told) > 50
    assert [message for message in told if not troubles.spoken(message)] == []
    assert text == troubles.advised(text, TROUBLES[name]), "type: make docs"


@pytest.mark.slow
def test_a_message_that_nobody_prints_is_found() -> None:
    assert troubles.spoken("connection refused: no sshd at all") == {}
    row = "| `name unknown` | neither knows it | {} |"
    hint = "→ `correct the hostfile, /etc/hosts or ~/.ssh/config`; or else"
    assert troubles.advised(row.format("→ `an old hint`; or else")) == row.format(hint)
    assert troubles.advised(row.format("or else")) == row.format(hint)


@pytest.mark.parametrize("text", ["", "<!-- until here -->\n<!-- drawn by `make docs` -->\n"])
def test_a_page_without_the_part_is_not_touched(text: str) -> None:
    with pytest.raises(ValueError, match="not 1 parts"):
        renewed(text, [""])


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    links = [link for link in re.findall(r"\]\(([^)]*)\)", prose(path)) if "://" not in link]
    assert [link for link in links if not leads(path, *link.partition("#")[::2])] == []


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_commands_and_their_options_are_there(path: Path, quick_cockpit: tuple[str, ...]) -> None:
    for _, verb, *words in typed(path):
        if verb.startswith("-") or verb == "help":
            continue
        assert help_of(verb, quick_cockpit), f"cockpit {verb}"
        for word in words:
            option = re.match(r"--[a-z0-9-]+|-[a-zA-Z]\b", word)
            assert option is None or re.search(rf"{option[0]}\b", help_of(verb, quick_cockpit)), (
                f"cockpit {verb} {word}"
            )


def test_the_map_shows_every_package() -> None:
    found = {str(path.parent.relative_to(ROOT / "cockpit")) for path in ROOT.glob("cockpit/*/**/__init__.py")}
    assert set(PACKAGES) == found
    assert len(PACKAGES) == len(found)


QUOTES = '"""'


def test_every_file_says_what_it_is_for_and_every_package_what_it_is_not_for() -> None:
    for path in sorted(ROOT.glob("cockpit/**/*.py")):
        begun, _, rest = path.read_text().partition(QUOTES)  # only that is parsed: it takes a hundredth
        doc = ast.get_docstring(ast.parse(begun + QUOTES + rest.partition(QUOTES)[0] + QUOTES))
        assert doc, name_of(path)
        first, _, rest = doc.partition("\n")
        assert first.endswith("."), f"{name_of(path)}: {first}"
        if path.name == "__init__.py" and path.parent.name != "cockpit":
            assert rest.strip(), f"{name_of(path)} does not say what is elsewhere"


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_files_and_folders_of_the_code_are_where_a_page_says(path: Path) -> None:
    layers = "|".join(name for name in PACKAGES if "/" not in name)
    named = re.findall(rf"`((?:cockpit/)?(?:{layers})/[a-z_/]+(?:\.py)?)`", prose(path))
    inside = [name.removeprefix("cockpit/") for name in named]
    missing = [
        name
        for name in inside
        if not (ROOT / "cockpit" / name).exists()
        and not (ROOT / "cockpit" / f"{name}.py").exists()
        and not (ROOT / "tests" / f"{name}.py").exists()
    ]
    assert missing == []


def test_targets_of_make_are_there() -> None:
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = {name for path in PAGES for name in re.findall(r"[`$] ?make ([a-z0-9-]+)", path.read_text())}
    assert named <= set(targets)


def test_every_claim_of_proof_names_tests_that_exist() -> None:
    rows = re.findall(r"^\|.*\|([^|]*)\|$", (ROOT / "docs/proven.md").read_text(), re.MULTILINE)
    names = {name for row in rows for name in re.findall(r"`([a-z_/]+)`", row)}
    assert {name for name in names if not (ROOT / "tests" / f"{name}.py").is_file()} == set()


def test_every_test_that_the_security_page_names_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", (ROOT / "docs/security.md").read_text())
    assert len(named) > 30
    for path, name in named:
        assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE), (
            f"{path}::{name}"
        )
