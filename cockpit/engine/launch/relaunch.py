"""A run once more: the command that was typed, and what was not kept of its environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from cockpit.base import secret
from cockpit.engine.records.manifest import Manifest
from cockpit.errors import CockpitError
from cockpit.plans.environment import PREFIXES, is_variable
from cockpit.plans.nodes.hostfile import STDIN

AGAIN = "COCKPIT_AGAIN"
"""The variable that says for one launch which run is started once more by it."""

_NAMED = re.compile(r"--name(=|\Z)")


@dataclass(frozen=True)
class Again:
    """What is to be typed.

    :param words: what follows ``cockpit``
    :param cwd: where it was typed
    :param secrets: variables that it needs, whose values were not kept and are not in this shell
    :param env: variables that the ranks had from that shell, and this one has not, or otherwise;
        and :data:`AGAIN`
    :param notes: what is not as it was, in sentences
    """

    words: tuple[str, ...]
    cwd: str
    secrets: tuple[str, ...]
    env: Mapping[str, str]
    notes: tuple[str, ...]


def again(manifest: Manifest, environ: Mapping[str, str]) -> Again:
    """What starts the same once more.

    :param environ: this shell's variables
    :raises CockpitError: it cannot be started so
    """
    if manifest.closed:
        raise CockpitError(f"{manifest.closed}: its command is not trusted", where=manifest.run)
    command = list(manifest.command)
    if command[:2] != ["cockpit", "run"]:
        what = (
            "cockpit did not start it"
            if manifest.foreign
            else "the command that started it is not known here"
        )
        raise CockpitError(what, where=manifest.run, hint="start it by hand")
    words = _without_name(command[1:])
    options = words[: words.index("--")] if "--" in words else words
    if STDIN in options[1:2]:
        what = "its hostfile came over stdin and was not saved"
        raise CockpitError(what, where=manifest.run, hint="write the nodes into a file: cockpit run FILE …")
    for at, word in enumerate(words):
        if secret.GONE in word or secret.is_hidden(word):
            before = words[at - 1] if at else ""
            shown = word if "=" in word else f"{before} {word}"
            what = f"its command contains a secret that was not saved: {shown}"
            raise CockpitError(
                what, where=manifest.run, hint="give it by a variable: --env NAME, and type it again"
            )
    secrets = tuple(name for name in _given(options) if name not in environ)
    env, notes = _env(manifest, environ)
    if secrets:
        notes.insert(0, f"secrets, not saved: {', '.join(secrets)}; cockpit prompts for them")
    return Again(tuple(words), manifest.cwd, secrets, {**env, AGAIN: manifest.run}, tuple(notes))


def _without_name(words: list[str]) -> list[str]:
    """Without the name that the run was given: there is one of that name."""
    end = words.index("--") if "--" in words else len(words)
    kept: list[str] = []
    skip = False
    for at, word in enumerate(words):
        if skip:
            skip = False
        elif at < end and _NAMED.match(word):
            skip = word == "--name"
        else:
            kept.append(word)
    return kept


def _given(options: list[str]) -> list[str]:
    """Variables whose values the command takes from the shell: ``--env NAME``."""
    found = []
    for at, word in enumerate(options):
        name = word.removeprefix("--env=") if word.startswith("--env=") else word
        if (name != word or options[at - 1] == "--env") and is_variable(name):
            found.append(name)
    return list(dict.fromkeys(found))


def _env(manifest: Manifest, environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Variables that the ranks had from that shell, and which of them are others in this one."""
    plan = next(iter(manifest.plans), {})
    known = plan.get("env")
    then = known if isinstance(known, dict) else {}
    env: dict[str, str] = {}
    notes = []
    for name, value in then.items():
        if not (is_variable(name) and isinstance(value, str) and name.startswith(PREFIXES)):
            continue
        if secret.is_hidden(value) or environ.get(name) == value or name == "PYTHONUNBUFFERED":
            continue
        env[name] = value
        was = f"is {environ[name]!r} in this shell" if name in environ else "is not set in this shell"
        notes.append(f"{name} {was}: using {value!r} from the original run")
    more = sorted(name for name in environ if name.startswith(PREFIXES) and name not in then)
    if more and then:
        notes.append(f"new in this shell, passed to the ranks: {', '.join(more)}")
    notes.append("other variables of the original shell were not saved")
    return env, notes
