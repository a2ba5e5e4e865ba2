"""The Chinese pages have the headings, code, links and pictures of the English ones, and none is stale."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import chinese
from tests.chinese import PAGES, ROOT, accepted, differences, pieces, stale
from tests.tables import DRAWN

PAGE = "docs/zh/first-run.md"

ENGLISH = """# Tour

Type `make`, as [there](install.md#torch).
It takes long.

![A picture](a.svg)

| key | what |
|---|---|
| `x` | ends \\| it |
| `y` | ends it |

## Then

1. One,
   and more.
2. Two.

```console
$ make   # it
```
"""

CHINESE = """# 导览

[English](../tour.md)

输入 `make`，见[安装](../install.md#torch)。要等很久。

![一张图](../a.svg)

| 键 | 作用 |
|---|---|
| `x` | 结束 \\| 它 |
| `y` | 结束它 |

## 然后

1. 一。
2. 二。

```console
$ make   # it
```
"""


def read(page: str) -> tuple[str, str]:
    return (ROOT / page).read_text(encoding="utf-8"), (ROOT / PAGES[page]).read_text(encoding="utf-8")


def test_every_chinese_page_is_known() -> None:
    found = {*ROOT.glob("*.zh.md"), *ROOT.glob("docs/zh/*.md")}
    assert {str(path.relative_to(ROOT)) for path in found} - DRAWN.keys() == set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_a_chinese_page_has_what_the_english_one_has(page: str) -> None:
    assert list(differences(page, *read(page))) == [], "translate it, then type: make docs-zh"


@pytest.mark.parametrize("page", PAGES)
def test_no_chinese_paragraph_is_stale(page: str) -> None:
    assert list(stale(page, *read(page))) == [], "revise the translation, then type: make docs-zh"


@pytest.mark.parametrize("page", PAGES)
def test_a_chinese_page_leads_to_the_english_one_and_to_chinese_ones(page: str) -> None:
    text = read(page)[0]
    links = [(ROOT / page).parent / name for name in re.findall(r"\]\(([^)#\s]*)", text)]
    translated = [ROOT / name for name in PAGES.values()]
    assert [link.resolve() for link in links if link.resolve() in translated] == [ROOT / PAGES[page]]


@pytest.mark.parametrize("page", PAGES)
def test_chinese_is_set_as_chinese(page: str) -> None:
    """Punctuation of Chinese sentences is full-width, and a space is between Chinese and Latin."""
    text = re.sub(r"^(```.*?^```|<!--.*?-->)$", "", read(page)[0], flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    cjk = "[\u4e00-\u9fff]"
    assert re.findall(rf"{cjk}[,;:.!?()].{{5}}|[,;:!?()]{cjk}.{{5}}", text) == []
    assert re.findall(rf".{{5}}(?:{cjk}[A-Za-z0-9`]|[A-Za-z0-9]{cjk}|`[^`\n]*`{cjk})", text) == []


def test_a_page_and_its_translation_agree() -> None:
    assert list(differences(PAGE, CHINESE, ENGLISH)) == []
    kinds = [piece.kind for piece in pieces(ENGLISH)]
    assert kinds == ["heading", "text", "text", *["row"] * 4, "heading", "item", "item", "code"]
    text = accepted(CHINESE, ENGLISH)
    assert [len(line.split()) - 3 for line in text.split("\n") if line.startswith("<!--")] == [7, 4]
    assert list(stale(PAGE, text, ENGLISH)) == []
    assert accepted(text, ENGLISH) == text


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("## 然后", "### 然后", "'## Then'"),
        ("2. 二。\n", "", "'2. Two.'"),
        ("要等很久。", "要等很久。\n\n很久。", "'很久。'"),
        ("| 结束它 |", "| 结束 | 它 |", r"'| `y` | ends it |'"),
        ("# it\n", "# 它\n", "$ make   # 它"),
        ("输入 `make`", "输入", "`make`"),
        ("../install.md#torch", "../install.md", "docs/install.md#torch"),
        ("(../a.svg)", "(../b.svg)", "docs/b.svg"),
    ],
)
def test_what_only_one_of_both_has_is_named(old: str, new: str, named: str) -> None:
    assert old in CHINESE
    said = list(differences(PAGE, CHINESE.replace(old, new, 1), ENGLISH))
    assert said
    assert named in said[0]


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("It takes long.", "It takes a minute.", "under 'Tour': 'Type `make`"),
        ("| ends it |", "| stops it |", "under 'Tour': '| `y` |"),
        ("## Then", "## Afterwards", "under 'Afterwards': '## Afterwards'"),
        ("2. Two.", "2. Three.", "under 'Then': '2. Three.'"),
    ],
)
def test_a_changed_paragraph_makes_its_translation_stale(old: str, new: str, named: str) -> None:
    (said,) = stale(PAGE, accepted(CHINESE, ENGLISH), ENGLISH.replace(old, new))
    assert said.startswith(f"{PAGE}: stale: {named}")


def test_lines_that_are_broken_elsewhere_make_nothing_stale() -> None:
    text = accepted(CHINESE, ENGLISH)
    assert list(stale(PAGE, text, ENGLISH.replace("install.md#torch).\n", "install.md#torch). "))) == []
    swapped = ENGLISH.replace("1. One,\n   and more.\n2. Two.", "1. Two.\n2. One,\n   and more.")
    assert len(list(stale(PAGE, text, swapped))) == 2  # they have their numbers


def test_other_order_is_stale() -> None:
    rows = ENGLISH.splitlines(keepends=True)
    at = rows.index("| `y` | ends it |\n")
    rows[at - 1], rows[at] = rows[at], rows[at - 1]
    (said,) = stale(PAGE, accepted(CHINESE, ENGLISH), "".join(rows))
    assert "in another order" in said


def test_only_a_page_with_the_same_parts_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chinese, "ROOT", tmp_path)
    monkeypatch.setattr(chinese, "PAGES", {PAGE: "docs/tour.md"})
    monkeypatch.setattr("sys.argv", ["chinese", "--accept"])
    (tmp_path / "docs/zh").mkdir(parents=True)
    (tmp_path / PAGE).write_text(CHINESE)
    (tmp_path / "docs/tour.md").write_text(f"{ENGLISH}\nMore.\n")
    with pytest.raises(SystemExit, match="stands where"):
        chinese.main()
    assert (tmp_path / PAGE).read_text() == CHINESE
    (tmp_path / "docs/tour.md").write_text(ENGLISH)
    chinese.main()
    assert (tmp_path / PAGE).read_text() == accepted(CHINESE, ENGLISH)
