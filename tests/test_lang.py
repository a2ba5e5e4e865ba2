"""Which language failures are explained in: the setting, else the locale."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from cockpit import lang
from cockpit.lang import language


@pytest.mark.parametrize(
    ("setting", "environ", "found"),
    [
        ("", {}, "en"),
        ("", {"LANG": "zh_CN.UTF-8"}, "zh"),
        ("", {"LANG": "zh_TW"}, "zh"),
        ("", {"LANG": "en_US.UTF-8"}, "en"),
        ("", {"LANG": "C.UTF-8"}, "en"),
        ("", {"LC_MESSAGES": "zh_CN.UTF-8", "LANG": "en_US.UTF-8"}, "zh"),
        ("", {"LC_ALL": "C", "LC_MESSAGES": "zh_CN.UTF-8", "LANG": "zh_CN.UTF-8"}, "en"),
        ("", {"LC_ALL": "", "LC_MESSAGES": "", "LANG": "zh_CN.UTF-8"}, "zh"),
        ("", {"LC_CTYPE": "zh_CN.UTF-8"}, "en"),
        ("en", {"LC_ALL": "zh_CN.UTF-8"}, "en"),
        ("zh", {"LC_ALL": "en_US.UTF-8"}, "zh"),
        ("zh", {}, "zh"),
    ],
)
def test_the_setting_decides_and_then_the_locale(setting: str, environ: dict[str, str], found: str) -> None:
    assert language(setting, environ) == found


ASK = ("word", "said", "_said", "Phrase")


def strings(tree: ast.AST) -> set[str]:
    found = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {value for value in found if isinstance(value, str)}


@pytest.mark.slow
def test_what_is_said_around_findings_is_said_in_chinese_too() -> None:
    """Nothing that is asked for is missing, nobody asks in vain, and all values have places."""
    root = Path(lang.__file__).parent
    asked: set[str] = set()
    everywhere: set[str] = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())) if path.name != "lang.py" else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                everywhere.add(node.value)
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ASK:
                asked |= {text for each in node.args[:2] for text in strings(each) if "{}" in text}
    assert asked
    assert asked <= lang._CHINESE.keys()
    assert lang._CHINESE.keys() - everywhere == set()
    for english, chinese in lang._CHINESE.items():
        assert english.count("{}") == chinese.count("{}"), english
