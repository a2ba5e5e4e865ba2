"""The file of settings: its schema, a first one with every setting in it, and a change to one that there is.

Only who asks for one of these imports this.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from cockpit import config, paths
from cockpit.config import Settings
from cockpit.errors import CockpitError, os_error
from cockpit.private import private_dir

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ABOUT = {
    "theme": "colours: dark, light, high-contrast, colour-blind, ansi, or a theme of your own",
    "ascii": "draw the screen in plain ASCII; auto: where the locale is not UTF-8",
    "read_only": "the app does nothing that changes a run",
    "timestamps": "log lines begin with the time",
    "wrap": "long log lines are wrapped instead of cut",
    "follow": "a log follows its newest lines",
    "fold": "identical log lines of many ranks are one line",
    "units": "sizes in GiB (binary) or in GB (decimal)",
    "lang": "language that failures are explained in: en, zh; empty: that of the locale",
    "probe": "load the probe into ranks (--probe); auto: with the versions of torch it was tested with",
    "bell": "ring the terminal when a run fails, stalls or ends",
    "git_diff": "save the diff of tracked files at launch (--git-diff)",
    "report": "write a report into a run's folder here when it has ended",
    "notify": "command that is run when a run fails, stalls or ends; only in your own settings",
    "trusted_group": "group that may write to the folders of cockpit's files; only in your own settings",
    "notices": "warnings while a run is running",
    "notices.memory": "memory of a node, a cgroup or a GPU is approaching its limit",
    "notices.loss": "the loss is NaN or infinite, or has jumped",
    "notices.throughput": "throughput is below what is usual in this run",
    "notices.disk": "a disk that the run writes to is nearly full",
    "notices.checkpoint": "a checkpoint is overdue, or slower than before",
    "notices.time_limit": "the time limit of the SLURM job is near",
    "notices.gpu": "the driver of a GPU reports an Xid, a memory error, or throttled clocks",
    "notices.slow": "a rank has become slow, or no longer is",
    "notices.reach": "a node is not reachable for 5 minutes",
    "notices.members": "a program waits for more ranks than were started",
    "notices.nccl": "NCCL uses a slow transport, or an interface that reaches no other node",
    "watch": "what cockpit does when steps stop",
    "watch.look": "inspect ranks automatically",
    "watch.hang_after": "seconds without a step before ranks are inspected",
    "watch.on_hang": "once a run is proven to be stuck: report it, or stop it; only in your own settings",
    "watch.stop_after": "with on_hang = stop: stop a run after this many seconds without a step; 0: never",
    "evidence": "what nodes save when ranks stall or fail, whether or not anybody watches",
    "evidence.keep": "save evidence when ranks stall or fail",
    "evidence.after": "seconds without a step, where steps are known",
    "evidence.idle": "seconds without output and with idle processors, where they are not",
    "quotas": "how much of this machine's disk runs may use",
    "quotas.spool_bytes": "bytes of logs per node and run",
    "quotas.spool_files": "files per node and run",
    "quotas.record_bytes": "bytes of events per node and run",
    "quotas.report_files": "profiler reports fetched from one node at once",
    "quotas.profiles": "profiles of one run that are kept here",
    "quotas.free_bytes": "bytes to leave free on the file system of the runs",
    "quotas.free_percent": "on a small file system, leave no more than this percentage free",
    "keys": 'a command and its keys, separated by commas: filter = "/,ctrl+f"',
}
"""What each setting is for, in one line."""

VERSION = 1
"""Of the schema: raised when a setting goes or gets another meaning; new ones do not raise it."""


def schema(commands: Mapping[str, str]) -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a file of settings, with defaults and descriptions.

    :param commands: what each command does that may have keys of one's own
    """
    made = config.settings_table().model_json_schema()
    tables = made.pop("$defs")

    def described(above: str, properties: Mapping[str, Any], usual: Any) -> dict[str, Any]:
        found = {}
        for name, one in properties.items():
            key, value = f"{above}{name}", getattr(usual, name)
            plain = {part: each for part, each in one.items() if part not in ("default", "title", "$ref")}
            if reference := one.get("$ref"):
                inner = tables[reference.rpartition("/")[2]]
                plain["type"] = "object"
                plain["additionalProperties"] = False
                plain["properties"] = described(f"{key}.", inner["properties"], value)
            elif not isinstance(value, Mapping):
                plain["default"] = value
            found[name] = {"description": ABOUT[key], **plain}
        return found

    top = described("", made["properties"], Settings())
    keys = {name: {"description": text, "type": "string"} for name, text in commands.items()}
    top["keys"].update(properties=keys, additionalProperties=False)

    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"cockpit/settings/{VERSION}",
        "title": "Settings of cockpit",
        "description": "config.toml, and a project's cockpit.toml",
        "type": "object",
        "additionalProperties": False,
        "properties": top,
    }


def commented() -> str:
    """A file with every setting: what it is for and its default, as comments."""
    lines = [
        "# Settings of cockpit; `cockpit help config.md` explains them. All values here are the defaults.",
        "",
    ]
    usual = Settings()
    tables = [each.name for each in fields(usual) if not _plain(getattr(usual, each.name))]
    for each in fields(usual):
        if each.name not in tables:
            lines += [f"# {ABOUT[each.name]}", f"#{each.name} = {_toml(getattr(usual, each.name))}", ""]
    for name in tables:
        lines += [f"# {ABOUT[name]}", f"[{name}]"]
        table = getattr(usual, name)
        for each in fields(table) if is_dataclass(table) else ():
            lines += [
                f"# {ABOUT[f'{name}.{each.name}']}",
                f"#{each.name} = {_toml(getattr(table, each.name))}",
            ]
        lines.append("")
    return "\n".join(lines)


def begin(path: Path) -> None:
    """Write :func:`commented` to a file that does not exist yet.

    :raises CockpitError: it does, or it cannot be written
    """
    try:
        private_dir(path.parent)
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(commented())
    except OSError as error:
        if isinstance(error, FileExistsError) and os.path.lexists(path):
            hint = "edit it; cockpit config --schema prints what may be in it"
            raise CockpitError("exists already", where=str(path), hint=hint) from None
        refused = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
        hint = "another folder for settings: XDG_CONFIG_HOME=DIR" if refused else ""
        raise os_error("cannot be written", path, error, hint=hint) from None


def remember(path: Path, chosen: Mapping[str, Any]) -> None:
    """Set some settings at the top of a file, and leave the rest of it, comments included, as it is.

    :param chosen: values by name, none of them in a table
    :raises CockpitError: the file is wrong or cannot be written, or cannot be changed without changing more
    """
    before = config.read(path, config.SEE, config.settings_table, mine=True)
    text = config.text_of(path, mine=True)
    for name, value in chosen.items():
        text = _with(text, name, f"{name} = {_toml(value)}", name in before)
    with suppress(ValueError):
        if tomllib.loads(text) == {**before, **chosen}:
            _replace(path, text)
            return
    wanted = ", ".join(f"{name} = {_toml(value)}" for name, value in chosen.items())
    raise CockpitError("cannot be changed by a program", where=str(path), hint=f"write into it: {wanted}")


def _with(text: str, name: str, line: str, is_set: bool) -> str:
    """The text with this setting: instead of the one there is, or of its comment, or first."""
    table = re.search(r"^[ \t]*\[", text, re.MULTILINE)
    top, rest = (text[: table.start()], text[table.start() :]) if table else (text, "")
    mark = "" if is_set else "#[ \t]*"
    place = re.compile(rf"^[ \t]*{mark}{re.escape(name)}[ \t]*=[^#\n]*", re.MULTILINE)
    if found := place.search(top):
        tail = top[found.end() :]
        return f"{top[: found.start()]}{line}{'  ' if tail.startswith('#') else ''}{tail}{rest}"
    return f"{line}\n{top}{rest}"


def _replace(path: Path, text: str) -> None:
    """Atomically; a link to where a person keeps such files stays one.

    :raises CockpitError: it cannot be written
    """
    try:
        path = path.resolve() if path.is_symlink() else path
        private_dir(path.parent)
        number, new = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(number, "w", encoding="utf-8") as file:
                file.write(text)
                if path.exists():
                    os.fchmod(number, path.stat().st_mode & 0o777)
            os.replace(new, path)
        except BaseException:
            os.unlink(new)
            raise
    except OSError as error:
        raise CockpitError(f"cannot be written: {error.strerror}", where=str(path)) from None


def _plain(value: Any) -> bool:
    return isinstance(value, (str, int, float))


def _toml(value: Any) -> str:
    # JSON's texts, numbers and words are TOML's too.
    return json.dumps(value, ensure_ascii=False)


def place(name: str) -> str:
    """The file and line that a setting outside of tables comes from; empty: it is a default."""
    for path, mine in ((Path(config.LOCAL), False), (paths.config(), True)):
        for number, line in enumerate(config.text_of(path, mine=mine).splitlines(), 1):
            if re.match(rf"[ \t]*{re.escape(name)}[ \t]*=", line):
                return f"{path}:{number}"
    return ""


def in_effect(found: config.Config) -> Iterator[tuple[str, str]]:
    """Every setting and its value, as in TOML."""
    for each in fields(Settings):
        value = getattr(found, each.name)
        if _plain(value):
            yield each.name, _toml(value)
        elif is_dataclass(value):
            yield from ((f"{each.name}.{one.name}", _toml(getattr(value, one.name))) for one in fields(value))
        else:
            yield from ((f"{each.name}.{name}", _toml(keys)) for name, keys in value.items())
