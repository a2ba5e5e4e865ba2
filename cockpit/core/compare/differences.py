"""What of two runs differs: arguments, code, nodes, versions, variables; the most telling first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from cockpit.base.shell import quote
from cockpit.core.compare.command import changes
from cockpit.core.compare.model import Difference, Unrecorded
from cockpit.core.ranks import nodes_text
from cockpit.core.report.model import DRIVER, GIT, INTERPRETER, PACKAGES, RunReport, Value, What
from cockpit.core.report.words import value_text
from cockpit.core.report.working_tree import CHANGED, files_text, unlike
from cockpit.core.text import counted

OWN = re.compile(r"COCKPIT_|MASTER_PORT\Z")
"""Variables that are other ones in each run."""
NAMES = ("--name",)
"""Options of `cockpit run` that are."""
TREE = "working tree"
RUN = "RUN"
"""In place of a run's name, which may be in paths."""

ALWAYS = (GIT, PACKAGES, DRIVER)
"""What is on record of each run, unless its cockpit did not ask for it, or nothing answered."""
COMMIT = re.compile(r"[0-9a-f]{12,64}")


def differences(before: RunReport, after: RunReport) -> tuple[Difference, ...]:
    """All of them, without those that any two runs have."""
    was, now = before.what, after.what
    program = changes(_unnamed(was.program, before.run), _unnamed(now.program, after.run))
    launch = changes(_launch(before), _launch(after), word="hostfile")
    versions = list(_values("version", was.versions, now.versions, before.run, after.run))
    code = [_code(one, now.cwd) for one in versions if one.name == GIT]
    driver = [one._replace(kind="driver") for one in versions if one.name == DRIVER]
    others = [one for one in versions if one.name not in (GIT, DRIVER)]
    found = [
        *(Difference("argument", *one) for one in program),
        *code,
        *_tree(was, now),
        *_told("launcher", "launcher", was.launcher, now.launcher),
        *_told("ranks", "ranks", _ranks(was), _ranks(now)),
        *_told("nodes", "nodes", _nodes(was), _nodes(now)),
        *sorted(others, key=lambda one: one.name in (PACKAGES, INTERPRETER)),
        *driver,
        *_values("variable", *_variables(was, now), before.run, after.run),
        *(Difference("launch", *one) for one in launch if one.name not in NAMES),
        *_told("folder", "folder", was.cwd, now.cwd),
    ]
    return tuple(found)


def unrecorded(before: RunReport, after: RunReport) -> tuple[Unrecorded, ...]:
    """What cannot be compared."""
    found = []
    for name in ALWAYS:
        runs = [
            one.run for one in (before, after) if not any(value.name == name for value in one.what.versions)
        ]
        # A machine without GPUs has no driver: nothing is missing where neither run has one.
        if runs and not (name == DRIVER and len(runs) > 1):
            found.append(Unrecorded(name, tuple(runs)))
    unknown = [one.run for one in (before, after) if not _tree_known(one.what)]
    if len(unknown) == 1 and (before.what.diff or after.what.diff):
        found.append(Unrecorded(f"{TREE} (--git-diff)", tuple(unknown)))
    return tuple(found)


def _unnamed(words: Iterable[str], run: str) -> list[str]:
    return [word.replace(run, RUN) for word in words]


def _launch(report: RunReport) -> list[str]:
    """The options of `cockpit run`, as typed; none: it was not, or others started the job."""
    words = _unnamed(report.what.command, report.run)
    return words[2 : words.index("--")] if "--" in words else []


def _told(kind: str, name: str, before: str, after: str) -> Iterator[Difference]:
    if before != after:
        yield Difference(kind, name, before, after)


def _ranks(what: What) -> str:
    """``16, 8 a node``."""
    each = sorted({len(host.ranks) for host in what.hosts if host.ranks})
    if len(what.hosts) < 2 or not each:
        return f"{what.ranks:,}"
    span = f"{each[0]}" if len(each) == 1 else f"{each[0]} to {each[-1]}"
    return f"{what.ranks:,}, {span} a node"


def _nodes(what: What) -> str:
    names = [host.name for host in what.hosts]
    return nodes_text(names) if len(names) < 2 else f"{nodes_text(names)} ({counted(len(names), 'node')})"


def _code(one: Difference, cwd: str) -> Difference:
    """With what shows the changes, if there are other commits."""
    commits = [COMMIT.match(side or "") for side in (one.before, one.after)]
    texts = [found[0] for found in commits if found is not None]
    see = f"git -C {quote(cwd)} diff {texts[0]} {texts[1]}" if len(set(texts)) == 2 else ""
    return one._replace(kind="code", see=see)


def _variables(was: What, now: What) -> tuple[Sequence[Value], Sequence[Value]]:
    """Those that cockpit set, and those that matter of what ranks were started with, if both have these."""
    if not (was.environ and now.environ):
        return was.env, now.env
    before, after = ({one.name: one for one in (*side.env, *side.environ)} for side in (was, now))
    return tuple(before.values()), tuple(after.values())


def _tree(was: What, now: What) -> Iterator[Difference]:
    """Files that differ from the commit in another way, if that is on record of both."""
    if _tree_known(was) and _tree_known(now):
        before, after = unlike(was.diff, now.diff)
        if before or after:
            yield Difference("code", TREE, files_text(before), files_text(after))


def _tree_known(what: What) -> bool:
    """Whether what differs from the commit is on record: all of it, or that nothing does."""
    told = [text for value in what.versions if value.name == GIT for text, _ in value.said]
    return bool(what.diff) or (bool(told) and not any(CHANGED in text for text in told))


def _values(
    kind: str, before: Sequence[Value], after: Sequence[Value], run_before: str, run_after: str
) -> Iterator[Difference]:
    """What nodes say of versions, or variables, of one name; of what is always recorded only if both are."""
    was = {value.name: _renamed(value, run_before) for value in before}
    now = {value.name: _renamed(value, run_after) for value in after}
    for name in dict.fromkeys([*now, *was]):
        one, other = was.get(name), now.get(name)
        if OWN.match(name) or (name in ALWAYS and (one is None or other is None)) or _alike(one, other):
            continue
        # Of a side of which nothing is on record nothing is known.
        if (one is None and not before) or (other is None and not after):
            continue
        yield Difference(kind, name, _text(one), _text(other))


def _renamed(value: Value, run: str) -> Value:
    return value._replace(said=tuple((text.replace(run, RUN), nodes) for text, nodes in value.said))


def _alike(one: Value | None, other: Value | None) -> bool:
    """Whether nodes say the same; if they are other nodes, whether the same is said."""
    if one is None or other is None:
        return False
    if not one.differs and not other.differs:
        return one.said[0][0] == other.said[0][0]
    was, now = ({node: text for text, nodes in each.said for node in nodes} for each in (one, other))
    return was == now if was.keys() == now.keys() else set(was.values()) == set(now.values())


def _text(value: Value | None) -> str | None:
    return None if value is None else value_text(value)
