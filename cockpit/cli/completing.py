"""What may come next on a command line of cockpit: verbs, options, their values, runs, nodes, ranks."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from cockpit.errors import CockpitError

Candidate = tuple[str, str]
"""A word, and what it is for; empty: that is plain."""

_RUNS = 50
"""Newest runs that are offered."""


def candidates(words: Sequence[str], verbs: Mapping[str, str]) -> Iterator[Candidate]:
    """What may be the last of these words, which has been begun; nothing: a file, or anything.

    :param words: those after ``cockpit``
    :param verbs: each with its one-line help
    """
    *before, begun = words or [""]
    found: Iterable[Candidate]
    if not before:
        found = [*verbs.items(), ("help", "the help of a verb, or a page of the documentation")]
    elif before[0] == "help" and len(before) == 1:
        found = [*verbs.items(), *_topics()]
    elif before[0] in verbs and "--" not in before:
        found = _of_verb(before[0], before[1:], begun)
    else:
        found = ()
    return (one for one in found if one[0].startswith(begun))


def _topics() -> Iterator[Candidate]:
    from cockpit.cli import topics

    yield "topics", "all pages"
    yield from ((name, "a page") for name in topics.names())


def _of_verb(verb: str, before: Sequence[str], begun: str) -> Iterable[Candidate]:
    parser: argparse.ArgumentParser = importlib.import_module(f"cockpit.cli.verbs.{verb}").parser()
    options = {name: one for one in parser._actions for name in one.option_strings}
    last = options.get(before[-1]) if before else None
    if last is not None and last.nargs != 0 and (last.nargs != "?" or not begun.startswith("-")):
        return _values(last, before)
    if begun.startswith("-"):
        shown = ((name, one) for name, one in options.items() if one.help != argparse.SUPPRESS)
        return ((name, _brief(one.help or "")) for name, one in shown if name.startswith("--"))
    positional = next((one for one in parser._actions if not one.option_strings), None)
    if positional is None:
        return ()
    if positional.choices is not None:
        return ((str(choice), "") for choice in positional.choices)
    shape = [part.strip() for part in str(positional.metavar).split("|")]
    words = ((word, "") for word in shape if word.islower())
    return chain(words, _runs() if "RUN" in shape else ())


def _brief(text: str) -> str:
    return text.partition(";")[0].partition(" (")[0][:70]


def _values(option: argparse.Action, before: Sequence[str]) -> Iterable[Candidate]:
    """What an option may be given."""
    if option.choices is not None:
        return ((str(choice), "") for choice in option.choices)
    if option.dest in ("rank", "ranks"):
        return ((str(rank), node) for node, ranks in _nodes(before).items() for rank in ranks)
    if option.dest == "node":
        return ((node, f"{len(ranks)} ranks") for node, ranks in _nodes(before).items())
    return ()


def _runs() -> Iterator[Candidate]:
    from cockpit.engine.records.folder import list_runs

    yield "last", "the newest run"
    for folder in list_runs()[-_RUNS:][::-1]:
        yield folder.name, " ".join(folder.manifest.program)[:60]


def _nodes(before: Sequence[str]) -> Mapping[str, Sequence[int]]:
    """The nodes and ranks of the run that is named already; else of the last one."""
    from cockpit.engine.records.folder import RunFolder

    for word in [*(word for word in before if not word.startswith("-")), "last"]:
        try:
            return {node.name: node.ranks for node in RunFolder.find(word).manifest.nodes}
        except CockpitError:
            continue
    return {}
