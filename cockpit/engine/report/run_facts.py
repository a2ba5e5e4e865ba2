"""What ran, by the manifest of a run: command, plan, versions and variables, and where nodes differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cockpit.core.report.model import DRIVER, GIT, INTERPRETER, PACKAGES, Host, Value, What
from cockpit.core.report.sieve import Sieve
from cockpit.core.run.model import Node, RunModel
from cockpit.core.run.states import signal_name
from cockpit.core.text import one_line
from cockpit.core.variables import differs_anyway
from cockpit.engine.launch.code import kept_diff, kept_revision
from cockpit.engine.launch.environments import kept_environments, packages
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest

FACTS = {
    "python_version": "Python",
    "torch": "torch",
    "deepspeed": "deepspeed",
    "accelerate": "accelerate",
    "driver": DRIVER,
    "python": INTERPRETER,
}
"""Facts of a node at the start that are about versions, and how they are called."""
THIS = "this machine"
"""In place of a node."""
WORD = 2000
"""Bytes of one word, or of one value."""
NAMES = 400
"""Variables, and packages."""
LINE, DIFF = 400, 256 << 10
"""Characters of a line of the working tree's diff, and of all of them."""


def what_ran(folder: RunFolder, model: RunModel, sieve: Sieve) -> What:
    """All of it, without secrets."""
    manifest = folder.manifest
    hosts = tuple(
        Host(
            entry.name,
            one_line(entry.host, limit=WORD),
            tuple(entry.ranks),
            _how(model.nodes.get(entry.name)),
        )
        for entry in manifest.nodes
    )
    return What(
        tuple(map(_short, sieve.words(manifest.command))),
        tuple(map(_short, sieve.words(manifest.program))),
        manifest.launcher,
        _short(manifest.cwd),
        hosts,
        len(manifest.world),
        _plan(manifest, sieve),
        (*_code(folder), *_values({entry.name: _versions(entry.facts) for entry in manifest.nodes})),
        _values({_node(plan): _env(plan, sieve) for plan in manifest.plans}),
        _environ(folder, sieve),
        _packages(manifest),
        tuple(_diff(folder, sieve)),
    )


def _environ(folder: RunFolder, sieve: Sieve) -> tuple[Value, ...]:
    """What ranks were started with, as far as it matters."""
    return _values(
        {
            _short(node): {
                _short(name): _short(sieve.variable(name, text))
                for name, text in list(told.items())[:NAMES]
                if not differs_anyway(name)
            }
            for node, told in kept_environments(folder).items()
        }
    )


def _packages(manifest: Manifest) -> tuple[Value, ...]:
    """Packages that nodes have in different versions, where the lists of all of them are known."""
    digests = {entry.name: str(entry.facts.get("installed_hash") or "") for entry in manifest.nodes}
    lists = {digest: dict(map(_package, packages(digest))) for digest in set(digests.values())}
    if len(lists) < 2 or not all(lists.values()):
        return ()
    found = _values({node: lists[digest] for node, digest in digests.items()})
    return tuple(value for value in found if value.differs)[:NAMES]


def _package(name: str) -> tuple[str, str]:
    """Name and version of ``numpy-2.1.0.dist-info``."""
    called, _, version = name.rpartition(".")[0].partition("-")
    return _short(called), _short(version or "without a version")


def _how(node: Node | None) -> str:
    if node is None or not node.over:
        return "" if node is None else f"{node.link}: {node.link_why}" if node.link_why else node.link
    if node.lost:
        return f"lost: {node.lost}"
    if node.launcher_signal:
        return f"ended, its launcher by {signal_name(node.launcher_signal)}"
    return f"ended, its launcher with {node.launcher_code}" if node.launcher_code else "ended"


def _short(word: object) -> str:
    return one_line(str(word), limit=WORD)


def _node(plan: Mapping[str, Any]) -> str:
    return _short(plan.get("node", ""))


def _plan(manifest: Manifest, sieve: Sieve) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    """What was started on each node, alike ones together; a number that alone differs keeps them apart."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for plan in manifest.plans:
        argv = plan.get("argv")
        words = tuple(map(_short, argv)) if isinstance(argv, list) else ()
        alike.setdefault(words, []).append(_node(plan))
    return tuple((sieve.words(words), tuple(nodes)) for words, nodes in alike.items() if words)


def _code(folder: RunFolder) -> list[Value]:
    """The revision of the code; that of this machine, from where it was started."""
    found = kept_revision(folder.path)
    return [] if found is None else [Value(GIT, ((found.text, (THIS,)),))]


def _diff(folder: RunFolder, sieve: Sieve) -> Iterator[str]:
    """What tracked files differed from that revision by, if it was kept."""
    lines, room = sieve.lines(kept_diff(folder.path)), DIFF
    for at, line in enumerate(lines):
        shown = one_line(line, limit=LINE)
        room -= len(shown)
        if room < 0:
            yield f"... cut: {len(lines) - at:,} more lines"
            return
        yield shown


def _versions(facts: Mapping[str, Any]) -> dict[str, str]:
    """Names and versions; whatever else a node has said of itself is left out."""
    found = {called: facts[name] for name, called in FACTS.items() if isinstance(facts.get(name), str)}
    if isinstance(digest := facts.get("installed_hash"), str) and digest:
        found[PACKAGES] = f"{facts.get('installed')} packages, hash {digest}"
    packages = facts.get("packages")
    if isinstance(packages, dict):
        found |= {name: text for name, text in list(packages.items())[:NAMES] if isinstance(text, str)}
    return {_short(name): _short(text) for name, text in found.items() if text}


def _env(plan: Mapping[str, Any], sieve: Sieve) -> dict[str, str]:
    env = plan.get("env")
    pairs = list(env.items())[:NAMES] if isinstance(env, dict) else []
    return {_short(name): _short(sieve.variable(name, str(value))) for name, value in pairs}


def _values(of: Mapping[str, Mapping[str, str]]) -> tuple[Value, ...]:
    """What nodes say of each thing: what differs first, then by name."""
    names = dict.fromkeys(name for told in of.values() for name in told)
    found = [Value(name, _said(name, of)) for name in names]
    return tuple(sorted(found, key=lambda value: not value.differs))


def _said(name: str, of: Mapping[str, Mapping[str, str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    alike: dict[str, list[str]] = {}
    for node, told in of.items():
        alike.setdefault(told.get(name, ""), []).append(node)
    return tuple((text, tuple(nodes)) for text, nodes in sorted(alike.items(), key=lambda one: -len(one[1])))
