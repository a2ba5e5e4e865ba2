"""What is wrong with a rank, in words ("rank 3 is stopped …"): the sentence, and what to type next."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from cockpit.base.shell import quote
from cockpit.base.stacks.dump import Dump
from cockpit.base.stacks.kinds import Doing, doing
from cockpit.core.stacks.evidence import DEAD, Case, Part, bad_child, place_text

FILE_LOCKS = frozenset({"flock", "fcntl"})
"""System calls that may wait for the lock of a file."""

AWAIT_CHILD = frozenset({"wait4", "waitid", "vfork"})
"""System calls that wait for a process below."""

MORE = "{sample}, or --samples 3: what moves"
"""The step that shows what moves."""

STEPS = ("{native}, or --native: what the library waits for", MORE)
"""The step if all wait and nothing says for whom."""

_BOTH = re.compile(r"\{(\w+)\}, or (--[^:]+): (.+)")
"""A step that is a command of the app, and options in a shell."""


class Story(NamedTuple):
    """What is reported about a suspect.

    :param kind: kind of the verdict on it, see :data:`cockpit.core.stacks.verdict.KINDS`
    :param detail: what it does, a sentence
    :param next: what to type or press next
    """

    kind: str
    detail: str
    next: tuple[str, ...]


def story(case: Case, part: Part, dump: Dump) -> Story:
    """What a suspect does.

    :param part: the ranks that are where it is
    :param dump: its newest one
    """
    act, process = part.found.doing, dump.process
    node, _ = case.process_of(dump.rank)
    at = f"{node}: " if node else ""
    if act.kind == "loader" or (process is not None and process.call in AWAIT_CHILD):
        return _of_children(act, dump, at)
    if process is not None and process.state == "D":
        about = f" of {process.target}" if process.target else ""
        detail = f"It is in {process.call or 'a system call'}{about} and cannot be interrupted"
        return Story("io", f"{detail}: a disk or a network file system.", (f"{at}dmesg -T | tail",))
    if act.kind == "build":
        detail = "It waits for the lock of a build. A build that was killed leaves its lock behind."
        steps = (
            f"{at}pgrep -a ninja: is a build running?",
            f"{at}if not: rm ~/.cache/torch_extensions/*/*/lock, or that below TORCH_EXTENSIONS_DIR",
        )
        return Story("build", detail, steps)
    if case.looks > 1 and not part.frozen:
        # What the kernel says is true for one moment only, unless it says so each time.
        dumps = case.dumps(dump.rank)
        always = len({doing(each.frames, each.process, each.source).text for each in dumps}) == 1
        seen = f", and {_does(act)} each time it is looked at" if always and act.kind != "runs" else ""
        return Story("absent", f"It moves{seen}: it is late, or in a loop.", (MORE, native_step(dump.rank)))
    kind = act.kind if act.kind in ("io", "lock") else "absent"
    detail = f"It {_does(act)}." if act.text else ""
    step = threads_step(dump.rank) if kind == "lock" else native_step(dump.rank)
    if process is not None and process.call in FILE_LOCKS and act.what.startswith("/"):
        step = f"{at}fuser -v {quote(act.what)}: who has it open"
    return Story(kind, detail, (step,) if case.looks > 1 else (MORE,))


def _of_children(act: Doing, dump: Dump, at: str) -> Story:
    """The same for a suspect that waits for a process below it."""
    kind = act.kind if act.kind == "loader" else "io"
    child = bad_child(dump)
    if child is not None and child.state in DEAD:
        detail = f"It {_does(act)}, and its process {child.pid} ({child.name}) is dead."
        return Story(kind, detail, (f"{at}dmesg -T | grep -i oom",))
    if child is not None:
        detail = f"It {_does(act)}, and its process {child.pid} ({child.name}) is stopped."
        return Story(kind, detail, (f"{at}kill -CONT {child.pid}",))
    below = dump.process.children if dump.process is not None else ()
    if dump.process is not None and not below:
        return Story(kind, f"It {_does(act)}, and has none below it.", (threads_step(dump.rank),))
    for child in below:
        does = doing(child.threads[0].frames if child.threads else ())
        # A worker that waits for work is not what it waits for.
        if does.frame is not None and does.kind != "loader":
            detail = (
                f"It {_does(act)}; its process {child.pid} ({child.name}) is at {place_text(does.frame)}."
            )
            return Story(kind, detail, (MORE,))
    return Story(
        kind,
        f"It {_does(act)}.",
        (f"{{children}}, or --children --ranks {dump.rank}: what its processes do",),
    )


def _does(act: Doing) -> str:
    return f"is {act.text}" if act.text.startswith("in ") else act.text


def threads_step(rank: int) -> str:
    """The step that shows its other threads."""
    return f"{{open}}, or --threads all --ranks {rank}: its other threads"


def native_step(rank: int) -> str:
    """The step that shows its C frames."""
    return f"{{native}}, or --native --ranks {rank}: its C frames"


def in_app(step: str, keys: Mapping[str, str]) -> str:
    """A step as the app shows it: the key alone, if it is a command.

    :param keys: the key in force for each command, by its name
    """
    found = _BOTH.fullmatch(step)
    return f"{keys.get(found[1], found[1])}: {found[3]}" if found is not None else step


def in_shell(step: str, command: str) -> str:
    """A step as shown in a shell.

    :param command: what was typed; empty if nobody can be asked any more, and then a step that would ask
        is empty too
    """
    found = _BOTH.fullmatch(step)
    if found is None:
        return step
    return f"{command} {found[2]}  ({found[3]})" if command else ""
