"""A person's settings, their defaults and quotas: TOML, overridden by the working directory's file."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cockpit import paths
from cockpit.base import owners
from cockpit.base.regular import open_regular, read_all
from cockpit.errors import CockpitError, ManyErrors
from cockpit.lang import Language, language

if TYPE_CHECKING:
    from cockpit.checked import (
        Command,
        Flag,
        FlagOrAuto,
        Group,
        Keys,
        Lang,
        Name,
        OnHang,
        Percent,
        Seconds,
        SecondsOrNever,
        Table,
        Units,
        Whole,
    )

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LOCAL = "cockpit.toml"
"""The settings of one project, in the working directory."""

_TABLES = ("quotas", "notices", "watch", "evidence", "keys")

SEE = "see: cockpit help config.md"


@dataclass(frozen=True)
class Quotas:
    """How much of this machine's disk nodes' data may take; docs/config.md explains each quota.

    A node keeps what does not fit here: nothing is lost, its logs resume where they paused.

    :param spool_bytes: of the logs of one node of one run. The default holds eight ranks that print 1,000
        lines of 100 bytes a second each for 22 hours
    :param spool_files: of one node of one run
    :param record_bytes: of the events that one node's supervisor records of one run
    :param report_files: reports of a profiler that are fetched from one node
    :param profiles: collections of one run that are kept here, the newest ones
    :param free_bytes: kept free on the file system of the runs, but never more than ``free_percent`` of it
    :param free_percent: 0 to 100
    """

    spool_bytes: Whole = 64 << 30
    spool_files: Whole = 4096
    record_bytes: Whole = 1 << 30
    report_files: Whole = 1000
    profiles: Whole = 20
    free_bytes: Whole = 256 << 20
    free_percent: Percent = 1.0


@dataclass(frozen=True)
class Notices:
    """What is said while a run goes on; docs/config.md explains each. A name is that of its rule."""

    memory: Flag = True
    loss: Flag = True
    throughput: Flag = True
    disk: Flag = True
    checkpoint: Flag = True
    time_limit: Flag = True
    gpu: Flag = True
    slow: Flag = True
    reach: Flag = True
    members: Flag = True
    nccl: Flag = True

    @property
    def off(self) -> frozenset[str]:
        """The rules that are switched off."""
        return frozenset(each.name for each in fields(self) if not getattr(self, each.name))


@dataclass(frozen=True)
class Watch:
    """What is done when no step is made; docs/watch.md explains it.

    :param look: whether cockpit looks at ranks by itself
    :param hang_after: seconds without a step
    :param on_hang: ``note``, or ``stop``
    :param stop_after: with ``stop``, seconds without a step and without movement; 0: only proof stops a run
    """

    look: Flag = True
    hang_after: Seconds = 30.0
    on_hang: OnHang = "note"
    stop_after: SecondsOrNever = 0.0


@dataclass(frozen=True)
class Evidence:
    """What supervisors keep of ranks, whether or not anybody watches; docs/evidence.md explains it.

    :param keep: whether they keep anything
    :param after: seconds without a step, where steps are known
    :param idle: seconds without output and with idle processors, where they are not
    """

    keep: Flag = True
    after: Seconds = 30.0
    idle: Seconds = 120.0


@dataclass(frozen=True)
class Settings:
    """What may be in a file of settings; docs/config.md explains each."""

    theme: Name = "dark"
    ascii: FlagOrAuto = "auto"
    read_only: Flag = False
    timestamps: Flag = True
    wrap: Flag = False
    follow: Flag = True
    fold: Flag = True
    units: Units = "binary"
    lang: Lang = ""
    probe: FlagOrAuto = "auto"
    bell: Flag = True
    report: Flag = False
    git_diff: Flag = False
    notify: Command = ""
    trusted_group: Group = ""
    notices: Notices = field(default_factory=Notices)
    watch: Watch = field(default_factory=Watch)
    evidence: Evidence = field(default_factory=Evidence)
    quotas: Quotas = field(default_factory=Quotas)
    keys: Mapping[str, Keys] = field(default_factory=dict)


@dataclass(frozen=True)
class Config(Settings):
    """The settings in effect."""

    where: str = ""
    """The file, or files, that ``keys`` came from."""

    @property
    def language(self) -> Language:
        """The language to explain in."""
        return language(self.lang, os.environ)


_MADE: Mapping[str, Callable[..., Any]] = {
    "quotas": Quotas,
    "notices": Notices,
    "watch": Watch,
    "evidence": Evidence,
}

SIZE_LIMIT = 64 << 10
"""Bytes of a file of settings, or of a theme."""

DEPTH_LIMIT = 16
"""Brackets within each other, and parts of the keys on a line, in such a file: more keep a parser busy for
minutes."""

SOONEST_S, LATEST_S = 1.0, 600.0
"""A project may know how long its steps take; what begins at once, or never, is not a matter of that."""


def _on(own: Any, wanted: Any) -> bool:
    return bool(wanted)


def _never(own: Any, wanted: Any) -> bool:
    return False


def _off(own: Any, wanted: Any) -> bool:
    return not wanted


def _less(own: Any, wanted: Any) -> bool:
    return bool(wanted <= own)


def _more(own: Any, wanted: Any) -> bool:
    return bool(wanted >= own)


def _in_time(own: Any, wanted: Any) -> bool:
    return bool(SOONEST_S <= wanted <= max(own, LATEST_S))


_TIGHTENS: Mapping[str, Callable[[Any, Any], bool]] = {
    "read_only": _on,
    "bell": _never,
    "git_diff": _off,  # what it keeps may be no business of whoever gets the report
    **{f"notices.{each.name}": _on for each in fields(Notices)},
    "watch.look": _on,
    "watch.hang_after": _in_time,
    "evidence.keep": _on,
    "evidence.after": _in_time,
    "evidence.idle": _in_time,
    **{f"quotas.{each.name}": _less for each in fields(Quotas)},
    "quotas.record_bytes": _never,  # without room for its record nobody would hear of a failure
    "quotas.free_bytes": _more,
    "quotas.free_percent": _more,
}
"""Whether what a project wants in place of one's own setting tightens it; the rest is a matter of taste."""


def load() -> Config:
    """The settings in effect: the person's own, overridden by this folder's, and both by COCKPIT_READ_ONLY.

    A project's settings may only tighten: what would loosen is left out, see :func:`of_project`.

    :raises CockpitError: every key that is wrong, with its file and what it may be
    """
    return _load()[0]


def of_project() -> str:
    """What this folder's settings change, and what is left out of them, in one sentence; empty: nothing.

    :raises CockpitError: see :func:`load`
    """
    return _load()[1] if os.path.lexists(LOCAL) else ""


def _load() -> tuple[Config, str]:
    wrong: list[CockpitError] = []
    own: dict[str, Any] = {}
    found: dict[str, Any] = {}
    try:
        own = read(paths.config(), SEE, settings_table, mine=True)
    except CockpitError as error:
        wrong.append(error)
    try:
        found = read(Path(LOCAL), SEE, settings_table)
    except CockpitError as error:
        wrong.append(error)
    wrong += _not_here(found, own)
    if wrong:
        raise ManyErrors(wrong)
    files = [str(path) for path, data in ((paths.config(), own), (Path(LOCAL), found)) if data.get("keys")]
    # A folder may take care, not take it away.
    found.pop("notify", None)
    found.pop("trusted_group", None)
    changes, left_out = _tightened(found, own)
    merged = own | found
    for name in _TABLES:
        merged[name] = own.get(name, {}) | found.get(name, {})
    if os.environ.get("COCKPIT_READ_ONLY", "0") not in ("", "0"):
        merged["read_only"] = True
    tables = {name: made(**merged[name]) for name, made in _MADE.items()}
    said = f"{LOCAL} here sets {', '.join(changes)}" if changes else ""
    if left_out:
        said = f"{said}; " if said else f"{LOCAL} here: "
        said += f"ignored, as a project's settings can only tighten yours: {', '.join(left_out)}"
    return Config(**merged | tables, where=" and ".join(files)), said


def _tightened(found: dict[str, Any], own: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Take out of a project's settings what loosens one's own; what it changes, and what was taken out."""
    changes: list[str] = []
    left_out: list[str] = []

    def sift(above: str, wanted: dict[str, Any], mine: Mapping[str, Any], usual: Any) -> None:
        for name, value in list(wanted.items()):
            key = f"{above}{name}"
            before = mine.get(name, getattr(usual, name, None))
            if key in _MADE:
                sift(f"{key}.", value, mine.get(name, {}), _MADE[key])
            elif key == "keys":
                changes.extend(
                    f"keys.{each}" for each in value if value[each] != mine.get(name, {}).get(each)
                )
            elif value != before:
                tightens = key not in _TIGHTENS or _TIGHTENS[key](before, value)
                (changes if tightens else left_out).append(f"{key} = {str(value).lower()[:40]}")
                if not tightens:
                    del wanted[name]

    sift("", found, own, Settings)
    return changes, left_out


def trusted_group() -> str:
    """The group whose members may own and change the folders that ours are in; empty: none."""
    try:
        return str(read(paths.config(), SEE, settings_table, mine=True).get("trusted_group", ""))
    except CockpitError:  # said where the settings are loaded
        return ""


def _not_here(found: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[CockpitError]:
    """What a project's settings must not say: a folder that one got from others runs and stops nothing.

    :param own: the person's own settings
    """

    def error(name: str, what: str, option: str) -> CockpitError:
        hint = f"put it into {paths.config()}, or give {option}"
        return CockpitError(f"key {name!r}: {what}", where=LOCAL, hint=hint)

    if found.get("trusted_group"):
        what = "a project's settings cannot say whom you trust"
        yield CockpitError(f"key 'trusted_group': {what}", where=LOCAL, hint=f"put it into {paths.config()}")
    watch, own_watch = found.get("watch", {}), own.get("watch", {})
    if found.get("notify"):
        yield error("notify", "is a command, and a project's settings cannot set one", "--notify")
    for name, option in (("on_hang", "--on-hang stop"), ("stop_after", "--stop-after")):
        if watch.get(name, "note") != "note":
            yield error(name, "a project's settings cannot stop a run", option)
    least = own_watch.get("hang_after", Watch.hang_after)
    if own_watch.get("on_hang") == "stop" and watch.get("hang_after", least) < least:
        what = f"your own settings stop hung runs after {least:g} s, and a project's cannot shorten that"
        yield error("hang_after", what, "--hang-after")


def settings_table() -> Table:
    """What may be in a file of settings."""
    from cockpit.checked import table

    tables = {name: table(made.__annotations__) for name, made in _MADE.items()}
    return table({**Settings.__annotations__, **tables})


def read(
    path: Path, see: str, table: Callable[[], Table] | None = None, *, mine: bool = False
) -> dict[str, Any]:
    """What a TOML file says; nothing if there is none.

    :param see: where it says what may be in it
    :param table: gives what may be in it; none: it is one of ours
    :param mine: whether it may name programs, so that nobody else may have written it
    :raises CockpitError: it cannot be read, or all that is wrong in it
    """
    text = text_of(path, mine=mine)
    try:
        _check_depth(text)
        data: dict[str, Any] = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        said = str(error) if " digits" not in str(error) else "a number has too many digits"
        what, _, place = said.partition(" (at line ")
        line = f":{place.partition(',')[0]}" if place else ""
        raise CockpitError(
            f"is not TOML: {what[0].lower()}{what[1:]}", where=f"{path}{line}", hint=see
        ) from None
    if table is not None and data:
        from cockpit.checked import mistakes

        if wrong := list(mistakes(data, table(), str(path), see)):
            raise ManyErrors(wrong)
    return data


def text_of(path: Path, *, mine: bool) -> str:
    """The text of such a file; empty if there is none.

    :param mine: see :func:`read`
    :raises CockpitError: it cannot be read
    """
    try:
        # A person's own may be a link to where they keep such files.
        with os.fdopen(open_regular(path, os.O_RDONLY, follow=True), "rb") as file:
            others = owners.others_in(str(path), os.fstat(file.fileno())) if mine else ""
            if others:
                what = f"{others}, and could name a program there"
                raise CockpitError(what, hint=f"check it, then: chown and chmod go-w {path}")
            return read_all(file, SIZE_LIMIT).decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise CockpitError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError as error:
        raise CockpitError(f"is not UTF-8: {error.reason}", where=f"{path}, byte {error.start}") from None


_OUTSIDE = re.compile(r"\"{3}|'{3}|[\"'\[\]{}.\n]|#[^\n]*")
_INSIDE = {
    '"': re.compile(r'(?:[^"\\\n]|\\.)*"?'),
    "'": re.compile(r"[^'\n]*'?"),
    '"""': re.compile(r'(?:[^"\\]|\\.|"(?!""))*(?:""")?', re.DOTALL),
    "'''": re.compile(r"(?:[^']|'(?!''))*(?:''')?"),
}


def _check_depth(text: str) -> None:
    """Check, in linear time, that a parser will not take long.

    :raises ValueError: it is nested too deeply, or a key has too many parts; with its line, as tomllib does
    """
    at = depth = dots = 0
    while (found := _OUTSIDE.search(text, at)) is not None:
        piece, at = found[0], found.end()
        if inside := _INSIDE.get(piece):
            string = inside.match(text, at)
            at = string.end() if string else at
        elif piece == "\n":
            dots = 0
        elif piece == ".":
            dots += 1
        elif piece in "[{":
            depth += 1
        elif piece in "]}":
            depth = max(0, depth - 1)
        if max(depth, dots) > DEPTH_LIMIT:
            what = "it is nested too deeply" if depth > dots else "a key has too many parts"
            raise ValueError(f"{what} (at line {text.count(chr(10), 0, at) + 1}, column 1)")
