"""What a suspect rank does, as one more sentence of the verdict; and what to type next."""

from __future__ import annotations

from typing import NamedTuple

from cockpit.base.shell import quote
from cockpit.base.stacks.dump import Dump, LockFile
from cockpit.base.stacks.kinds import Doing, at_end, doing, of_dump
from cockpit.core.finding import Step
from cockpit.core.stacks.case import Case
from cockpit.core.stacks.class_facts import DEAD, ClassPart, bad_child
from cockpit.core.stacks.classes import AWAIT_CHILD
from cockpit.core.stacks.words import place_text
from cockpit.core.time_text import rounded_span

FILE_LOCKS = frozenset({"flock", "fcntl"})
"""System calls that may wait for the lock of a file."""

MORE = Step("--samples 3", "what moves", action="sample")
"""The step that shows what moves."""

STEPS = (Step("--native", "what the library waits for", action="native"), MORE)
"""The steps if all wait and nothing says for whom."""


class Story(NamedTuple):
    """What is reported about a suspect.

    :param kind: the verdict on it, see :data:`cockpit.core.stacks.verdict.KINDS`
    :param detail: what it does, a sentence
    :param steps: what to do next
    """

    kind: str
    detail: str
    steps: tuple[Step, ...]


def story(case: Case, part: ClassPart, dump: Dump) -> Story:
    """What a suspect does.

    :param part: the ranks that are where it is
    :param dump: its newest one
    """
    act, process = part.found.doing, dump.main
    node, _ = case.process_of(dump.rank)
    if act.kind == "loader" or (process is not None and process.call in AWAIT_CHILD):
        return _of_children(act, dump, node)
    if process is not None and process.state == "D":
        about = f" on {process.target}" if process.target else ""
        call = f"{process.call}()" if process.call else "a system call"
        detail = f"It is in {call}{about} and cannot be interrupted"
        step = Step("dmesg -T | tail", "", node)
        return Story("io", f"{detail}: a disk or a network file system.", (step,))
    if act.what == "builds":
        detail = "It is building an extension that others wait for."
        return Story("build", detail, (Step("pgrep -a ninja", "is its compiler running?", node),))
    if dump.lock is not None and act.kind in ("build", "lock", "sleep", "user"):
        return _of_lock(act, dump.lock, node)
    if act.kind == "build":
        detail = "It waits for the lock of a build. A build that was killed leaves its lock behind."
        lock = "rm ~/.cache/torch_extensions/*/*/lock, or that below TORCH_EXTENSIONS_DIR"
        steps = (Step("pgrep -a ninja", "is a build running?", node), Step(f"if not: {lock}", "", node))
        return Story("build", detail, steps)
    if case.looks > 1 and not part.frozen:
        # What the kernel says is true for one moment only, unless it says so each time.
        dumps = case.dumps(dump.rank)
        always = len({of_dump(each).text for each in dumps}) == 1
        seen = f", and {_does(act)} each time it is inspected" if always and act.kind != "runs" else ""
        return Story("absent", f"It moves{seen}: it is late, or in a loop.", (MORE, native_step(dump.rank)))
    kind = act.kind if act.kind in ("io", "lock") else "absent"
    detail = f"It {_does(act)}." if act.text else ""
    if dump.deputy is not None and at_end(dump.threads[0].frames):
        detail = f"Its main thread is at its end, and waits for thread {dump.deputy.thread.name}: {act.text}."
    step = threads_step(dump.rank) if kind == "lock" else native_step(dump.rank)
    if process is not None and process.call in FILE_LOCKS and act.what.startswith("/"):
        step = Step(f"fuser -v {quote(act.what)}", "who has it open", node)
    return Story(kind, detail, (step,) if case.looks > 1 else (MORE,))


def lock_is_stale(dump: Dump) -> bool:
    """Whether a rank waits for the lock of a build, which no process of its node has open."""
    act = of_dump(dump)
    return act.kind == "build" and act.what != "builds" and not (dump.lock is not None and dump.lock.holder)


def _of_lock(act: Doing, lock: LockFile, node: str) -> Story:
    """The same for a suspect that polls the file of a lock."""
    kind = "build" if act.kind == "build" else "lock"
    if lock.holder:
        detail = f"It polls the lock {lock.path}, which process {lock.holder} ({lock.name}) has open."
        return Story(kind, detail, (Step(f"ps -fp {lock.holder}", "who has the lock", node),))
    on = f" on {node}" if node else ""
    detail = f"It polls the lock {lock.path}, {rounded_span(lock.age_s)} old, which no process{on} has open:"
    step = Step(f"rm {quote(lock.path)}", "if no other node has it", node)
    return Story(kind, f"{detail} its creator was killed.", (step,))


def _of_children(act: Doing, dump: Dump, node: str) -> Story:
    """The same for a suspect that waits for a process below it."""
    kind = act.kind if act.kind == "loader" else "io"
    child = bad_child(dump)
    if child is not None and child.state in DEAD:
        detail = f"It {_does(act)}, and its process {child.pid} ({child.name}) is dead."
        return Story(kind, detail, (Step("dmesg -T | grep -i oom", "", node),))
    if child is not None:
        detail = f"It {_does(act)}, and its process {child.pid} ({child.name}) is stopped."
        return Story(kind, detail, (Step(f"kill -CONT {child.pid}", "", node),))
    if dump.process is not None and not dump.children:
        return Story(kind, f"It {_does(act)}, and has no child process.", (threads_step(dump.rank),))
    for child in dump.children:
        does = doing(child.threads[0].frames if child.threads else ())
        # A worker that waits for work is not what it waits for.
        if does.frame is not None and does.kind != "loader":
            detail = (
                f"It {_does(act)}; its process {child.pid} ({child.name}) is at {place_text(does.frame)}."
            )
            return Story(kind, detail, (MORE,))
    step = Step(f"--children --ranks {dump.rank}", "what its child processes do", action="children")
    return Story(kind, f"It {_does(act)}.", (step,))


def _does(act: Doing) -> str:
    return f"is {act.text}" if act.text.startswith("in ") else act.text


def threads_step(rank: int) -> Step:
    """The step that shows its other threads."""
    return Step(f"--threads all --ranks {rank}", "its other threads", action="open")


def native_step(rank: int) -> Step:
    """The step that shows its C frames."""
    return Step(f"--native --ranks {rank}", "its C frames", action="native")
