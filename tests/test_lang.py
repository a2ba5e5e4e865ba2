"""Which language failures are explained in: the setting, else the locale."""

from __future__ import annotations

import pytest

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
