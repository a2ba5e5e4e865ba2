"""The language of the texts that explain a failure; everything else that is printed is English."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Language = Literal["en", "zh"]

_LOCALE = ("LC_ALL", "LC_MESSAGES", "LANG")
"""Where the locale of messages is set; the first that is not empty decides, as for every program."""


def language(setting: str, environ: Mapping[str, str]) -> Language:
    """The language to explain in.

    :param setting: ``lang`` of the settings; empty: that of the locale
    """
    named = setting or next(filter(None, map(environ.get, _LOCALE)), "")
    return "zh" if named.lower().startswith("zh") else "en"
