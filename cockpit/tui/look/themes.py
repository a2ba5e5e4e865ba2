"""Colours of states and signs: themes from TOML files, shipped and one's own, read again when changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from textual.app import App
from textual.color import Color
from textual.theme import BUILTIN_THEMES, Theme

from cockpit import config, paths
from cockpit.errors import CockpitError, near_or_all

if TYPE_CHECKING:
    from cockpit.checked import Table

SHIPPED = paths.shipped_themes()
"""Folder of the themes that come with cockpit."""

DEFAULT = "dark"
"""The theme to use if no other can be."""

SEE = "see: cockpit help themes"

TABLES = {
    name: colours.split()
    for name, colours in {
        "base": "primary secondary accent success warning error foreground background surface panel",
        "rank": "waiting starting running done failed killed lost stale",
        "link": "ok stale gone",
        "log": "error warning time rank",
        "pace": "none usual plus15 plus30 plus50 double",
        "phase": "input forward backward update wait other",
        "profile": "data compute communication wait",
        "ui": "key dim frame notice stall",
    }.items()
}
"""Tables of a theme file and the colours in each (docs/themes.md)."""

FLAGS = ("dark", "ansi")
"""The keys of a theme file outside its tables, true or false."""

FOLLOWS = {
    "rank-starting": "accent",
    "rank-running": "success",
    "rank-done": "success",
    "rank-failed": "error",
    "rank-killed": "warning",
    "rank-lost": "warning",
    "link-stale": "warning",
    "link-gone": "error",
    "log-error": "error",
    "log-warning": "warning",
    "log-rank": "secondary",
    "key": "accent",
    "rank-waiting": "dim",
    "rank-stale": "dim",
    "link-ok": "dim",
    "log-time": "dim",
}
"""The colour of a variable that a theme leaves out."""

BLENDS = {
    "surface": ("background", 0.0, "foreground"),
    "panel": ("background", 0.08, "foreground"),
    "dim": ("background", 0.65, "foreground"),
    "frame": ("background", 0.25, "foreground"),
    "notice": ("background", 0.25, "error"),
    "stall": ("background", 0.18, "warning"),
}
"""How to mix a colour that a theme leaves out: the first one, and a part of the second."""

SCROLLBARS = {
    "scrollbar": "frame",
    "scrollbar-hover": "dim",
    "scrollbar-active": "key",
    "scrollbar-background": "background",
    "scrollbar-background-hover": "background",
    "scrollbar-background-active": "background",
    "scrollbar-corner-color": "background",
}
"""Textual's variables for scrollbars, in quiet colours: each is one of the theme's own."""


SELECTED = 0.3
"""How much of the primary colour is behind text selected with the mouse."""


def defaults() -> dict[str, str]:
    """Every variable of ours with a colour: what an app needs before it has read a theme."""
    return dict(read(SHIPPED / f"{DEFAULT}.toml").variables)


def read(path: Path) -> Theme:
    """The theme of a file, named as the file is, with every colour that it leaves out filled in.

    :raises CockpitError: it cannot be read, or all that is wrong in it
    """
    # Tests have checked the shipped ones, and every start reads them all.
    data = config.read(path, SEE, None if path.parent == SHIPPED else _table)
    dark, ansi = data.get("dark", True), data.get("ansi", False)
    shipped = config.read(SHIPPED / f"{'ansi' if ansi else 'dark' if dark else 'light'}.toml", SEE)
    if not ansi:
        _blend(data, shipped["base"])
    base = {**shipped["base"], **data.get("base", {})}
    own = _variables(data)
    rest = _variables(shipped)
    if ansi:
        # Textual's own style sheets need these if a theme uses the terminal's colours. It leaves the
        # cursor of a list without focus undrawn.
        rest |= BUILTIN_THEMES["ansi-dark" if dark else "ansi-light"].variables
        rest["block-cursor-blurred-background"] = "ansi_bright_black"
    for name, follows in FOLLOWS.items():
        rest[name] = base.get(follows) or own.get(follows) or rest[follows]
    variables = {**rest, **own}
    variables |= {name: base.get(follows) or variables[follows] for name, follows in SCROLLBARS.items()}
    variables |= _selection(base, ansi)
    return Theme(name=path.stem, dark=dark, ansi=ansi, variables=variables, **base)


def _selection(base: dict[str, str], ansi: bool) -> dict[str, str]:
    """Textual's variables for selected text, which otherwise has the colour of its background."""
    if ansi:
        behind, text = base["secondary"], "ansi_black"
    else:
        mixed = Color.parse(base["background"]).blend(Color.parse(base["primary"]), SELECTED)
        behind, text = mixed.hex, base["foreground"]
    return {"screen-selection-background": behind, "screen-selection-foreground": text}


def _table() -> Table:
    from pydantic import AfterValidator, StrictStr

    from cockpit.checked import Flag, must_be, table

    colour = Annotated[StrictStr, AfterValidator(Color.parse), must_be("a colour")]
    tables = {name: table(dict.fromkeys(names, colour)) for name, names in TABLES.items()}
    return table({**dict.fromkeys(FLAGS, Flag), **tables})


def _variables(data: dict[str, Any]) -> dict[str, str]:
    return {
        name if table == "ui" else f"{table}-{name}": colour
        for table in TABLES
        if table != "base"
        for name, colour in data.get(table, {}).items()
    }


def _blend(data: dict[str, Any], shipped: dict[str, str]) -> None:
    """Fill in the colours mixed from the theme's own, if it has its own background."""
    given = data.setdefault("base", {})
    if "background" not in given:
        return
    base = {**shipped, **given}
    for name, (ground, part, other) in BLENDS.items():
        table = data["base"] if name in TABLES["base"] else data.setdefault("ui", {})
        table.setdefault(name, Color.parse(base[ground]).blend(Color.parse(base[other]), part).hex)


class Themes:
    """Keeps an app's themes in step with their files."""

    def __init__(self) -> None:
        self._seen: dict[Path, int] = {}
        self._source: dict[str, Path] = {}
        self._undrawable: set[str] = set()
        self._wrong: set[str] = set()
        self._missed = ""
        """The theme that was requested but is not available; it is used as soon as it is."""

    @property
    def names(self) -> list[str]:
        """Names of the themes there are, in order."""
        return sorted(self._source)

    def use(self, app: App[Any], name: str) -> str:
        """Draw an app in a theme, or in the default one if there is no theme of that name.

        :return: one sentence if the theme is not available and :meth:`refresh` has not said why
        """
        if name in self._source:
            app.theme = name
            return ""
        app.theme = DEFAULT
        self._missed = name
        if name in self._wrong:
            return ""
        if name in self._undrawable:
            return f"theme {name!r} is the terminal's own colours, and NO_COLOR is set"
        return f"no theme {name!r}, {near_or_all(name, self.names)}"

    def refresh(self, app: App[Any]) -> list[str]:
        """Register themes whose files are new or have changed; apply a changed one that is in use.

        A file that is wrong leaves the theme as it was. Themes of the terminal's own colours are left out
        where NO_COLOR is set: Textual then draws in greys, and has none for those.

        :return: one sentence per wrong file, once for each change of it
        """
        problems = []
        found = paths.theme_files()
        self._forget(app, found)
        for path in found:
            try:
                stamp = path.stat().st_mtime_ns
            except OSError:
                continue  # it disappeared between two looks
            if self._seen.get(path) == stamp:
                continue
            self._seen[path] = stamp
            try:
                theme = read(path)
            except CockpitError as error:
                problems.append(str(error))
                self._wrong.add(path.stem)
                continue
            self._wrong.discard(path.stem)
            if theme.ansi and app.no_color:
                self._undrawable.add(theme.name)
            else:
                self._register(app, theme, path)
        return problems

    def _register(self, app: App[Any], theme: Theme, path: Path) -> None:
        before = self._source.get(theme.name)
        if before is not None and path.parent == SHIPPED and before.parent != SHIPPED:
            return
        self._source[theme.name] = path
        app.register_theme(theme)
        if app.theme == theme.name:
            app.mutate_reactive(App.theme)
        elif app.theme == DEFAULT and self._missed == theme.name:
            app.theme = theme.name

    def _forget(self, app: App[Any], files: list[Path]) -> None:
        """Remove themes whose file is gone; the shipped one of that name comes back."""
        for path in self._seen.keys() - set(files):
            del self._seen[path]
            if self._source.get(path.stem) != path:
                continue
            del self._source[path.stem]
            if self._seen.pop(SHIPPED / path.name, None) is None and app.theme != path.stem:
                app.unregister_theme(path.stem)
