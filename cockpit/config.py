"""A person's settings: TOML, in the config folder, overridden by ``cockpit.toml`` where one works."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cockpit import paths
from cockpit.errors import CockpitError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LOCAL = "cockpit.toml"
"""The settings of one project, in the working directory."""


@dataclass(frozen=True)
class Config:
    """Settings; docs/config.md explains each."""

    theme: str = "dark"
    ascii: bool | str = "auto"
    read_only: bool = False
    timestamps: bool = True
    wrap: bool = False
    keys: Mapping[str, str] = field(default_factory=dict)
    where: str = ""
    """The file that ``keys`` came from."""


def _flag(value: object) -> bool:
    return isinstance(value, bool)


def _text(value: object) -> bool:
    return isinstance(value, str)


_KINDS: dict[str, tuple[Callable[[object], bool], str]] = {
    "theme": (_text, "the name of a theme"),
    "ascii": (lambda value: _flag(value) or value == "auto", 'true, false or "auto"'),
    "read_only": (_flag, "true or false"),
    "timestamps": (_flag, "true or false"),
    "wrap": (_flag, "true or false"),
    "keys": (
        lambda value: isinstance(value, dict) and all(isinstance(each, str) for each in value.values()),
        'a table like: stop = "X"',
    ),
}


def load() -> Config:
    """The settings in force: the person's own, this folder's over them, COCKPIT_READ_ONLY over both.

    :raises CockpitError: every key that is wrong, with its file and what it may be
    """
    merged: dict[str, Any] = {}
    for path in (paths.config(), Path(LOCAL)):
        for name, value in _read(path).items():
            merged[name] = {**merged.get("keys", {}), **value} if name == "keys" else value
            if name == "keys":
                merged["where"] = str(path)
    if os.environ.get("COCKPIT_READ_ONLY", "0") not in ("", "0"):
        merged["read_only"] = True
    return Config(**merged)


def _read(path: Path) -> dict[str, Any]:
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise CockpitError(f"cannot be read: {error}", where=str(path)) from None
    except tomllib.TOMLDecodeError as error:
        raise CockpitError(f"is not TOML: {error}", where=str(path), hint="see docs/config.md") from None
    wrong = [problem for name, value in data.items() if (problem := _problem(name, value))]
    if wrong:
        raise CockpitError("; ".join(wrong), where=str(path))
    return data


def _problem(name: str, value: object) -> str:
    if name not in _KINDS:
        near = difflib.get_close_matches(name, _KINDS, 1)
        known = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(_KINDS)}"
        return f"unknown key {name!r}, {known}"
    fits, wanted = _KINDS[name]
    return "" if fits(value) else f"{name} must be {wanted}, not {value!r}"
