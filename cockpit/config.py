"""A person's settings, their defaults and quotas: TOML, overridden by the working directory's file."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cockpit import paths
from cockpit.errors import CockpitError, ManyErrors, near_or_all

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LOCAL = "cockpit.toml"
"""The settings of one project, in the working directory."""

SEE = "see docs/config.md"

_PLACE = re.compile(r"(?P<what>.*) \(at line (?P<line>\d+), column \d+\)", re.DOTALL)
"""What tomllib says about a syntax error."""


@dataclass(frozen=True)
class Quotas:
    """How much of this machine's disk nodes' data may take; docs/config.md explains each quota.

    A node keeps what does not fit here: nothing is lost, its logs resume where they paused.

    :param spool_bytes: of the logs of one node of one run. The default holds eight ranks that print 1,000
        lines of 100 bytes a second each for 22 hours
    :param spool_files: of one node of one run
    :param record_bytes: of what one node's supervisor records of one run: events and sizes
    :param report_files: reports of a profiler that are fetched from one node
    :param free_bytes: kept free on the file system of the runs, but never more than ``free_percent`` of it
    :param free_percent: 0 to 100
    """

    spool_bytes: int = 64 << 30
    spool_files: int = 4096
    record_bytes: int = 1 << 30
    report_files: int = 1000
    free_bytes: int = 256 << 20
    free_percent: float = 1.0


@dataclass(frozen=True)
class Config:
    """Settings; docs/config.md explains each."""

    theme: str = "dark"
    ascii: bool | str = "auto"
    read_only: bool = False
    timestamps: bool = True
    wrap: bool = False
    quotas: Quotas = field(default_factory=Quotas)
    keys: Mapping[str, str] = field(default_factory=dict)
    where: str = ""
    """The file, or files, that ``keys`` came from."""


_Kind = tuple[Callable[[Any], bool], str]
"""Whether a value fits, and what fits."""

_FLAG: _Kind = (lambda value: isinstance(value, bool), "true or false")
_WHOLE: _Kind = (lambda value: type(value) is int and 0 <= value < 1 << 62, "a whole number from 0 on")
_PERCENT: _Kind = (lambda value: type(value) in (int, float) and 0 <= value <= 100, "a number from 0 to 100")
_KEYS: _Kind = (lambda value: isinstance(value, str), 'a text like "x,ctrl+x"')

_KINDS: dict[str, _Kind] = {
    "theme": (lambda value: isinstance(value, str), "the name of a theme"),
    "ascii": (lambda value: isinstance(value, bool) or value == "auto", 'true, false or "auto"'),
    **dict.fromkeys(("read_only", "timestamps", "wrap"), _FLAG),
    **{name: (lambda value: isinstance(value, dict), f"a table: [{name}]") for name in ("quotas", "keys")},
}
_QUOTAS = {**dict.fromkeys(Quotas.__dataclass_fields__, _WHOLE), "free_percent": _PERCENT}


def load() -> Config:
    """The settings in effect: the person's own, overridden by this folder's, and both by COCKPIT_READ_ONLY.

    :raises CockpitError: every key that is wrong, with its file and what it may be
    """
    merged: dict[str, Any] = {}
    keys: dict[str, str] = {}
    quotas: dict[str, Any] = {}
    files: list[str] = []
    wrong: list[CockpitError] = []
    for path in (paths.config(), Path(LOCAL)):
        try:
            found = _read(path)
        except CockpitError as error:
            wrong += error.errors if isinstance(error, ManyErrors) else [error]
            continue
        if changed := found.pop("keys", {}):
            keys |= changed
            files.append(str(path))
        quotas |= found.pop("quotas", {})
        merged |= found
    if wrong:
        raise wrong[0] if len(wrong) == 1 else ManyErrors(wrong)
    if os.environ.get("COCKPIT_READ_ONLY", "0") not in ("", "0"):
        merged["read_only"] = True
    return Config(**merged, quotas=Quotas(**quotas), keys=keys, where=" and ".join(files))


def _read(path: Path) -> dict[str, Any]:
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise CockpitError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError as error:
        raise CockpitError(f"is not UTF-8: {error.reason}", where=f"{path}, byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise _not_toml(path, str(error)) from None
    errors = list(_wrong(str(path), data, _KINDS))
    if errors:
        raise ManyErrors(errors)
    return data


def _not_toml(path: Path, said: str) -> CockpitError:
    place = _PLACE.fullmatch(said)
    what, line = (place["what"], f":{place['line']}") if place else (said, "")
    return CockpitError(f"is not TOML: {what[:1].lower()}{what[1:]}", where=f"{path}{line}", hint=SEE)


def _wrong(
    where: str, table: Mapping[str, Any], kinds: Mapping[str, _Kind], above: str = ""
) -> Iterator[CockpitError]:
    for name, value in table.items():
        key = f"key {above + name!r}"
        if name not in kinds:
            yield CockpitError(f"{key}: unknown", where=where, hint=near_or_all(name, kinds))
        elif not kinds[name][0](value):
            what = f"{key}: must be {kinds[name][1]}, not {_shown(value)}"
            yield CockpitError(what, where=where, hint=SEE)
        elif isinstance(value, dict):
            below = _QUOTAS if name == "quotas" else dict.fromkeys(value, _KEYS)
            yield from _wrong(where, value, below, f"{name}.")


def _shown(value: object) -> str:
    """A value as in TOML, enough of it for a person to find it."""
    if isinstance(value, bool):
        return str(value).lower()
    return "a table" if isinstance(value, dict) else repr(value)
