"""``cockpit config``: the settings in effect, their schema, and a first file of them."""

from __future__ import annotations

import json

from cockpit import config, config_file, paths
from cockpit.cli.output import complain, out, out_json, table
from cockpit.cli.parsing import Parser, add_flag
from cockpit.errors import CockpitError, Exit, near_or_all


def parser() -> Parser:
    """Its options."""
    made = Parser(
        "config",
        "Print the settings in effect: your own, and what a cockpit.toml in this folder changes.",
        "examples:\n"
        "  cockpit config --init\n"
        "  cockpit config --schema > cockpit.schema.json    for an editor that completes TOML",
    )
    group = made.add_mutually_exclusive_group()
    add_flag(
        group, "--init", "create your settings file, with every setting as a comment; never overwrites one"
    )
    add_flag(group, "--schema", "print the JSON schema of a settings file")
    add_flag(group, "--json", "one JSON object: the settings in effect, by name")
    return made


def main(words: list[str]) -> int:
    """Print or write settings."""
    args = parser().parse_args(words)
    if args.schema:
        from cockpit.tui.commands import EVERY

        out_json(config_file.schema({command.id: command.title for command in EVERY}))
    elif args.init:
        config_file.begin(paths.config())
        out(str(paths.config()))
    else:
        settings = config.load()
        _check(settings)
        found = dict(config_file.in_effect(settings))
        if args.json:
            out_json({name: json.loads(value) for name, value in found.items()})
        else:
            table([(name, value, config_file.ABOUT.get(name, "")) for name, value in found.items()])
    return Exit.OK


def _check(found: config.Config) -> None:
    """Say what the app would say of a theme.

    :raises CockpitError: it would refuse the keys
    """
    if found.keys:
        from cockpit.tui.commands import keymap

        keymap(found.keys, found.where)
    if found.theme != config.Settings.theme:
        names = paths.theme_names()
        if found.theme not in names:
            what = f"no theme {found.theme!r}"
            complain(
                CockpitError(what, where=config_file.place("theme"), hint=near_or_all(found.theme, names))
            )
