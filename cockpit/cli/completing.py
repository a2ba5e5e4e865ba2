"""What may come next on a command line of cockpit: verbs, options, their values, runs, nodes, ranks."""

from __future__ import annotations

import argparse
import importlib
import os
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain

from cockpit import paths
from cockpit.errors import CockpitError

Candidate = tuple[str, str]
"""A word, and what it is for; empty: that is plain."""

_RUNS = 50
"""Newest runs that are offered, or whose nodes are."""

_LONGEST = 70
"""Characters of what a word is for."""

_RANKS = ("rank", "ranks", "profile_ranks")
_NODES = ("node", "nodelist", "include", "exclude")
"""Options that take sets, by what of."""


def candidates(words: Sequence[str], verbs: Mapping[str, str]) -> Iterator[Candidate]:
    """What may be the last of these words, which has been begun; nothing: a file, or anything.

    :param words: those after ``cockpit``; bash has the ``=`` of ``--option=value`` as a word of its own
    :param verbs: each with its one-line help
    """
    *before, begun = words or [""]
    begun = "" if begun == "=" else begun
    before = [word for word in before if word != "="]
    found: Iterable[Candidate]
    if not before and begun.startswith("-"):
        found = [("--help", "the verbs"), ("--version", "which cockpit this is")]
    elif not before:
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

    yield topics.TOPICS, "all pages"
    yield from topics.titles()


def _of_verb(verb: str, before: Sequence[str], begun: str) -> Iterable[Candidate]:
    parser: argparse.ArgumentParser = importlib.import_module(f"cockpit.cli.verbs.{verb}").parser()
    options = {name: one for one in parser._actions for name in one.option_strings}
    given = _given(before, options)
    name, joined, value = begun.partition("=")
    if joined and name in options:
        return ((f"{name}={word}", text) for word, text in _values(options[name], given, value))
    last = options.get(before[-1]) if before else None
    if last is not None and last.nargs != 0 and (last.nargs != "?" or not begun.startswith("-")):
        return _values(last, given, begun)
    if begun.startswith("-"):
        shown = ((name, one) for name, one in options.items() if one.help != argparse.SUPPRESS)
        return ((name, _brief(one.help or "")) for name, one in shown if name.startswith("--"))
    return _positional(parser, given, begun)


def _given(before: Sequence[str], options: Mapping[str, argparse.Action]) -> list[str]:
    """The words that are neither options nor their values."""
    given: list[str] = []
    takes = False
    for word in before:
        if word.startswith("-") and word != "-":
            option = options.get(word)
            takes = option is not None and option.nargs != 0
        else:
            given += [] if takes else [word]
            takes = False
    return given


def _positional(parser: argparse.ArgumentParser, given: Sequence[str], begun: str) -> Iterable[Candidate]:
    """What may come after the words given."""
    all_of_them = [one for one in parser._actions if not one.option_strings]
    place = len(given)
    if all_of_them and all_of_them[-1].nargs == "*":
        place = min(place, len(all_of_them) - 1)
    if place >= len(all_of_them):
        return ()
    one = all_of_them[place]
    if one.choices is not None:
        return ((str(choice), "") for choice in one.choices)
    shape = _shape(one)
    words = [(word, "") for word in shape if word.islower()]
    # RUN [N] follows such a word of the one before, and only once.
    follows = place == len(given) and given[-1:] != [] and given[-1] in _shape(all_of_them[0])
    runs = "RUN" in shape or (follows and shape[0].startswith("RUN "))
    return chain(words, _runs(begun) if runs else ())


def _shape(positional: argparse.Action) -> list[str]:
    """What it may be; words of its own are in small letters."""
    return [part.strip() for part in str(positional.metavar).split("|")]


def _brief(text: str) -> str:
    return textwrap.shorten(text.partition(";")[0].partition(" (")[0], _LONGEST, placeholder=" …")


def _values(option: argparse.Action, given: Sequence[str], begun: str) -> Iterable[Candidate]:
    """What an option may be given."""
    if option.choices is not None:
        return ((str(choice), "") for choice in option.choices)
    if option.dest == "theme":
        return ((name, "") for name in paths.theme_names())
    if option.dest in _RANKS:
        ranks = ((str(rank), node) for node, ranks in _nodes(given).items() for rank in ranks)
        return _in_set(ranks, begun)
    if option.dest in _NODES:
        return _in_set(_nodes_of(option.dest, given), begun)
    return ()


def _in_set(found: Iterable[Candidate], begun: str) -> Iterator[Candidate]:
    """Each as the next one of a list with commas, without those that are in it."""
    had, comma, _ = begun.rpartition(",")
    return ((f"{had}{comma}{word}", text) for word, text in found if word not in had.split(","))


def _runs(begun: str) -> Iterator[Candidate]:
    """Runs by name; by its last word one that alone has it, if that was begun."""
    from cockpit.engine.records.folder import list_runs

    yield "last", "the newest run"
    folders = list_runs()
    words = Counter(folder.name.rpartition("-")[2] for folder in folders)
    for folder in folders[-_RUNS:][::-1]:
        program: Sequence[str] = ()
        with suppress(CockpitError):
            program = folder.manifest.program
        yield folder.name, " ".join(program)[:60]
        word = folder.name.rpartition("-")[2]
        if begun and word != folder.name and words[word] == 1:
            yield word, folder.name


def _nodes_of(option: str, given: Sequence[str]) -> Iterator[Candidate]:
    """Nodes of a hostfile that is named, else of a run; for an option of any job, of all newest runs."""
    from cockpit.engine.records.folder import list_runs
    from cockpit.plans.nodes import hostfile

    for word in filter(os.path.isfile, given):
        with suppress(CockpitError):
            yield from ((host.name, word) for host in hostfile.read(word))
            return
    folders = [] if option == "node" else list_runs()[-_RUNS:]
    found = dict(_nodes(given))
    for folder in folders[::-1]:
        with suppress(CockpitError):
            found = {node.name: node.ranks for node in folder.manifest.nodes} | found
    yield from ((node, f"{len(ranks)} ranks") for node, ranks in found.items())


def _nodes(given: Sequence[str]) -> Mapping[str, Sequence[int]]:
    """The nodes and ranks of the run that is named already; else of the last one."""
    from cockpit.engine.records.folder import RunFolder

    for word in [*given, "last"]:
        try:
            return {node.name: node.ranks for node in RunFolder.find(word).manifest.nodes}
        except CockpitError:
            continue
    return {}
