"""A program that a person names, by its pid or its words, and that is no rank: it becomes rank 0 of 1."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Dict, Iterator, List, NamedTuple, Optional, Set

from cockpit.base import users
from cockpit.node import procfs
from cockpit.node.stacks import kernel, launchers
from cockpit.node.stacks.pythons import is_cockpit, only_helps, only_wraps

COMMAND_LIMIT = 100
"""Characters of a command line in a sentence."""

MATCH_S = 2
"""Seconds of CPU that looking for a pattern may take."""

MOST = 100
"""Programs with the words that are meant; more of them are not told."""


class Named(NamedTuple):
    """What is meant.

    :param programs: Python processes
    :param why: why there is none, in a sentence; may be empty
    """

    programs: List[procfs.Stat]
    why: str = ""


def by_pid(pid: int, stats: Dict[int, procfs.Stat], ranks: Set[int]) -> Named:
    """The Python program that this process is, or has started.

    :param stats: all Python processes that may be looked at
    :param ranks: processes that are ranks
    """
    seen = procfs.stat(pid)
    if seen is None or seen.state in "ZX":
        return Named([], "there is no process %d" % pid)
    words = procfs.arguments(pid)
    what = "process %d (%s)" % (pid, launchers.command_line(words, COMMAND_LIMIT, pid) or seen.name)
    owner = os.stat("/proc/%d" % pid).st_uid
    if os.geteuid() not in (0, owner):
        user = users.name(owner)
        return Named([], "%s is of %s: only %s or root may inspect it" % (what, user, user))
    if is_cockpit(words):
        return Named([], "%s is cockpit's own" % what)
    rank = next((one.pid for one in launchers.above(pid) if one.pid in ranks), None)
    if rank is not None:
        return Named([], "%s was started by a rank, process %d" % (what, rank))
    if pid in stats:
        helped = stats.get(seen.parent) if only_helps(pid) else None
        if helped is not None:
            return Named([], "%s only helps process %d" % (what, helped.pid))
        return Named([_through(seen, stats)])
    below = [one for one in procfs.descendants(pid, lambda each: False) if one.pid in stats]
    tops = [one for one in below if one.parent not in stats and not only_helps(one.pid)]
    if len(tops) == 1:
        return Named([_through(tops[0], stats)])
    if tops:
        several = ", ".join(str(one.pid) for one in tops[:10])
        return Named([], "%s has started several Python programs; name one: %s" % (what, several))
    return Named([], "%s is not Python, and has started no Python program" % what)


def by_words(match: str, stats: Dict[int, procfs.Stat], ranks: Set[int]) -> Named:
    """The Python programs with this in their command lines; see :func:`by_pid` for the parameters.

    :raises ValueError: it is no pattern, or takes too long
    """
    lines = {}
    for pid in stats:
        words = procfs.arguments(pid)
        if not is_cockpit(words) and not only_helps(pid):
            lines[pid] = launchers.command_line(words, 2 * 4096, pid)
    hits = {pid: stats[pid] for pid in _matching(match, lines)}
    # What is above such a program, or a rank, is not meant by the words of what it has started.
    tops = [one for one in hits.values() if not any(each.pid in hits for each in launchers.above(one.pid))]
    free = [one for one in tops if one.pid not in ranks and not _has(one.pid, ranks)]
    return Named([_through(one, stats) for one in free[:MOST]])


# Python's expressions can take for ever, and nothing ends one in a thread.
_MATCHER = """
import json, re, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (%d, %d))
match, lines = json.load(sys.stdin)
search = re.compile(match).search
json.dump([bool(search(line)) for line in lines], sys.stdout)
"""


def _matching(match: str, lines: Dict[int, str]) -> List[int]:
    """The processes whose command line has this in it.

    :raises ValueError: it is no pattern, or takes too long
    """
    try:
        re.compile(match)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError("not a regular expression: %s" % error) from None
    command = [sys.executable, "-I", "-S", "-c", _MATCHER % (MATCH_S, MATCH_S)]
    try:
        done = subprocess.run(
            command, input=json.dumps([match, list(lines.values())]).encode(), stdout=-1, stderr=-3,
            timeout=10 * MATCH_S, check=True,
        )  # fmt: skip
        found = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        raise ValueError("matching takes too long: simplify it") from None
    return [pid for pid, hit in zip(lines, found) if hit]


def _has(pid: int, ranks: Set[int]) -> bool:
    """Whether a process is above or below a rank."""
    if any(one.pid in ranks for one in launchers.above(pid)):
        return True
    return any(one.pid == pid for rank in ranks for one in launchers.above(rank))


def _through(program: procfs.Stat, stats: Dict[int, procfs.Stat]) -> procfs.Stat:
    """The program below a wrapper that is Python too; itself if it is none."""
    for _ in range(launchers.LEVELS):
        inner = _oldest(program, stats)
        if inner is None or not only_wraps(program.pid, inner.pid):
            break
        program = inner
    return program


def _oldest(program: procfs.Stat, stats: Dict[int, procfs.Stat]) -> Optional[procfs.Stat]:
    """The Python program that this one has started first, perhaps by a shell."""
    return procfs.oldest(one for one in _below(program) if one.pid in stats and not only_helps(one.pid))


def _below(program: procfs.Stat) -> Iterator[procfs.Stat]:
    below = procfs.descendants(program.pid, lambda pid: False)
    shells = {one.pid for one in below if not kernel.is_python(one.pid)}
    return (one for one in below if one.parent == program.pid or one.parent in shells)
