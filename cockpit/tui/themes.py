"""Colour themes from TOML files: the shipped ones, and a person's own, read again when a file changes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from textual.app import App
from textual.color import Color, ColorParseError
from textual.theme import Theme

import cockpit
from cockpit import paths

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_HERE = Path(cockpit.__file__).parent
SHIPPED = next(
    # An installed cockpit carries its themes inside; a checkout has them in its top folder.
    (folder for folder in (_HERE / "themes", _HERE.parent / "themes") if folder.is_dir()),
    _HERE / "themes",
)
"""Folder of the themes that come with cockpit."""

TABLES = {
    "base": (
        "primary",
        "secondary",
        "accent",
        "success",
        "warning",
        "error",
        "foreground",
        "background",
        "surface",
        "panel",
        "boost",
    ),
    "rank": ("waiting", "starting", "running", "done", "failed", "killed", "lost", "stale"),
    "link": ("ok", "stale", "gone"),
    "log": ("error", "warning", "time", "rank"),
    "ui": ("key", "dim", "frame", "notice"),
}
"""Tables of a theme file and the colours in each (docs/themes.md)."""


class ThemeError(ValueError):
    """A theme file is wrong; the text says in what."""


def defaults() -> dict[str, str]:
    """Every variable of ours with a colour, for themes that leave some out."""
    return dict(read(SHIPPED / "dark.toml").variables)


def read(path: Path) -> Theme:
    """The theme of a file.

    :raises ThemeError: everything that is wrong with it, in one sentence
    """
    try:
        data = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ThemeError(f"cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ThemeError(f"is not TOML: {error}") from None
    problems = _problems(data)
    if problems:
        raise ThemeError("; ".join(problems))
    base: dict[str, Any] = dict(data["base"])
    variables = {
        name if table == "ui" else f"{table}-{name}": str(colour)
        for table in TABLES
        if table != "base"
        for name, colour in data.get(table, {}).items()
    }
    return Theme(
        name=path.stem,
        dark=bool(data.get("dark", True)),
        ansi=bool(data.get("ansi", False)),
        variables=variables,
        **base,
    )


def _problems(data: dict[str, Any]) -> list[str]:
    found = [f"unknown: {name!r}" for name in data if name not in (*TABLES, "name", "dark", "ansi")]
    for table, names in TABLES.items():
        colours = data.get(table, {})
        if not isinstance(colours, dict):
            found.append(f"[{table}] must be a table")
            continue
        for name, colour in colours.items():
            if name not in names:
                found.append(f"[{table}] unknown: {name!r}")
                continue
            try:
                Color.parse(str(colour))
            except ColorParseError:
                found.append(f"[{table}] {name}: {colour!r} is no colour")
    if isinstance(data.get("base", {}), dict) and "primary" not in data.get("base", {}):
        found.append("[base] primary is missing")
    return found


class Themes:
    """Keeps an app's themes as the files are."""

    def __init__(self) -> None:
        self._seen: dict[Path, int] = {}
        self.names: set[str] = set()
        """Names of the themes that were read."""

    def refresh(self, app: App[Any]) -> list[str]:
        """Register themes whose files are new or have changed; apply a changed one that is in use.

        :return: one sentence a file that is wrong, once for each change of it
        """
        problems = []
        for path in self._files():
            try:
                stamp = path.stat().st_mtime_ns
            except OSError:
                continue  # it went between two looks
            if self._seen.get(path) == stamp:
                continue
            self._seen[path] = stamp
            try:
                theme = read(path)
            except ThemeError as error:
                problems.append(f"{path}: {error}; see docs/themes.md")
                continue
            app.register_theme(theme)
            self.names.add(theme.name)
            if app.theme == theme.name:
                app.mutate_reactive(App.theme)
        return problems

    def _files(self) -> list[Path]:
        """Shipped ones first, so that a person's own of the same name wins."""
        return [*sorted(SHIPPED.glob("*.toml")), *sorted(paths.themes().glob("*.toml"))]
