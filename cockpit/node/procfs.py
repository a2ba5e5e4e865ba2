"""What /proc says about processes.

A process is its pid together with its start time in clock ticks (an *identity*): pids are reused. This
module is part of every rank wrapper, so it imports nothing that costs memory.
"""

from __future__ import annotations

import errno
import os
import signal
import time

from cockpit.base import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterable, Mapping


_BLIND = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""What keeps files from being opened, which says nothing of them."""


class Stat:
    """Some fields of ``/proc/PID/stat``.

    ``ticks`` is the start time in clock ticks since boot, ``state`` the letter of proc(5), ``cpu_ticks`` the
    CPU time that its threads have used in clock ticks, ``pages`` its resident memory in pages.
    """

    __slots__ = ("cpu_ticks", "name", "pages", "parent", "pid", "state", "threads", "ticks")

    def __init__(self, pid: int, name: str, fields: list[str]) -> None:
        self.pid = pid
        self.name = name
        self.state = fields[0]
        self.parent, self.threads, self.ticks, self.pages = (int(fields[place]) for place in (1, 17, 19, 21))
        self.cpu_ticks = int(fields[11]) + int(fields[12])


def boot_id() -> str:
    """The id of this boot: start times of two boots cannot be compared. Empty if there is none."""
    return contents("/proc/sys/kernel/random/boot_id").decode("ascii", "replace").strip()


def booted() -> float | None:
    """When the first process here began, unix seconds; None: it cannot be seen."""
    first = ticks(1)
    if not first:
        return None
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + first / os.sysconf("SC_CLK_TCK")


def stat(pid: int) -> Stat | None:
    """Look at one process; None when there is none with this pid, or nothing can be looked at now."""
    try:
        return _look(pid)
    except OSError:
        return None


def _look(pid: int) -> Stat | None:
    """See :func:`stat`.

    :raises OSError: nothing can be looked at now
    """
    try:
        text = read("/proc/%d/stat" % pid).decode("utf-8", "replace")
    except OSError as error:
        if error.errno in _BLIND:
            raise
        return None
    # The name may contain spaces and parentheses; nothing after it does.
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    return Stat(pid, head.partition("(")[2], fields) if len(fields) > 21 else None


def ticks(pid: int) -> int:
    """When a process started; 0 when there is none with this pid."""
    found = stat(pid)
    return found.ticks if found else 0


def exists(pid: int, ticks: int) -> bool:
    """Whether this very process is there, even if only as a zombie that nobody waited for."""
    try:
        found = _look(pid)
    except OSError:
        return _answers(pid)
    return found is not None and found.ticks == ticks


def alive(pid: int, ticks: int) -> bool:
    """Whether this very process is there and not a zombie."""
    try:
        return _lives(_look(pid), ticks)
    except OSError:
        return _answers(pid)


def _lives(found: Stat | None, ticks: int) -> bool:
    return found is not None and found.ticks == ticks and found.state not in "ZX"


def _answers(pid: int) -> bool:
    """Whether there is a process of this pid, where it cannot be seen which: none is given up too early."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def send(pid: int, ticks: int, number: int) -> bool:
    """Send a signal to this very process; return whether that was possible.

    With pidfd (Linux 5.3, Python 3.9) nobody else can be hit even if the process ends meanwhile; without,
    the identity is checked right before.
    """
    opener = getattr(os, "pidfd_open", None)
    sender = getattr(signal, "pidfd_send_signal", None)
    handle = -1
    try:
        if opener and sender:
            try:
                handle = opener(pid)
            except ProcessLookupError:
                return False
            except OSError:
                handle = -1  # an older kernel, or a filter that forbids it
        if not _lives(stat(pid), ticks):
            return False
        if sender and handle >= 0:
            sender(handle, number)
        else:
            os.kill(pid, number)
        return True
    except OSError:
        return False
    finally:
        if handle >= 0:
            os.close(handle)


def tagged(run: str, node: str, folder: str = "") -> list[Stat]:
    """Every process, except this one and zombies, whose environment carries the tags of a run's node.

    :param folder: the run folder on the node, which tells runs of one name apart; empty: any
    """
    wanted = {record.ENV_RUN: run, record.ENV_NODE: node}
    if folder:
        wanted[record.ENV_DIR] = folder
    return carrying(wanted)


def carrying(wanted: Mapping[str, str]) -> list[Stat]:
    """Every process, except this one and zombies, whose environment has all these variables.

    That is the environment at exec: what a process changed later is invisible, and processes of others
    cannot be read.
    """
    tags = [os.fsencode("%s=%s" % pair) for pair in wanted.items()]
    found = []
    for pid in pids():
        variables = environment(pid)
        if pid != os.getpid() and all(tag in variables for tag in tags):
            process = stat(pid)
            if process is not None and process.state not in "ZX":
                found.append(process)
    return found


def pids() -> list[int]:
    """Every process there is.

    :raises OSError: no file can be opened now: that is not to say that there are none
    """
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def numbers(pid: int, folder: str) -> list[int]:
    """The open files (``fd``) or threads (``task``) of a process, in order; none if they cannot be seen."""
    try:
        return sorted(map(int, os.listdir("/proc/%d/%s" % (pid, folder))))
    except OSError:
        return []


def owner(pid: int) -> int | None:
    """Whose process it is, a uid; None if it has ended."""
    try:
        return os.stat("/proc/%d" % pid).st_uid
    except OSError:
        return None


def environment(pid: int) -> list[bytes]:
    """The environment that a process was started with, ``NAME=value`` each; empty if it cannot be read."""
    return contents("/proc/%d/environ" % pid).split(b"\0")


def arguments(pid: int) -> list[bytes]:
    """The command line of a process; empty if there is none."""
    return contents("/proc/%d/cmdline" % pid).split(b"\0")[:-1]


def children() -> dict[int, list[Stat]]:
    """Every process by the pid of its parent, zombies too."""
    found: dict[int, list[Stat]] = {}
    for process in map(stat, pids()):
        if process is not None:
            found.setdefault(process.parent, []).append(process)
    return found


def descendants(pid: int, but: Callable[[int], object]) -> list[Stat]:
    """Every process below this one, except zombies, by parent pids.

    Those of a subreaper are all it ever started, however they forked and whatever their environment.

    :param but: whether a process (its pid) is left out, with all that is below it
    """
    below = children()
    found = []
    top = stat(pid)
    level = [top] if top is not None else []
    while level:
        # A process older than its parent has a new parent since we looked: that pid was reused.
        level = [one for above in level for one in below.pop(above.pid, ()) if one.ticks >= above.ticks]
        level = [one for one in level if not but(one.pid)]
        found += level
    return [process for process in found if process.state not in "ZX"]


def oldest(children: Iterable[Stat]) -> Stat | None:
    """The child that was started first: the rank, if they are a wrapper's. What it starts later helps it."""
    return min(children, key=lambda one: (one.ticks, one.pid), default=None)


def memory() -> tuple[int, int] | None:
    """Bytes of memory in use and of all there is; None if that is not known."""
    lines = [line.split() for line in contents("/proc/meminfo").decode("ascii", "replace").splitlines()]
    sizes = {words[0]: int(words[1]) << 10 for words in lines if words[2:] == ["kB"]}
    if "MemTotal:" not in sizes:
        return None
    # Linux before 3.14 does not say what is available.
    free = sum(sizes.get(name, 0) for name in ("MemFree:", "Buffers:", "Cached:"))
    total = sizes["MemTotal:"]
    return max(0, total - sizes.get("MemAvailable:", free)), total


def contents(path: str) -> bytes:
    """All of a file; nothing if it cannot be read."""
    try:
        return read(path)
    except OSError:
        return b""


def nvidia_driver() -> str:
    """The version of the kernel's NVIDIA driver; empty if it is not loaded."""
    import re  # not for every wrapper

    said = contents("/proc/driver/nvidia/version").decode("ascii", "replace")
    found = re.search(r"Kernel Module.*?\s(\d+\.\d[\d.]*)", said)
    return found[1] if found else ""


def number(path: str) -> int | None:
    """The number in a file; None: it holds none, such as a limit of ``max``, or cannot be read."""
    try:
        return int(contents(path))
    except ValueError:
        return None


def read(path: str) -> bytes:
    """All of a file.

    :raises OSError: it cannot be read
    """
    number = os.open(path, os.O_RDONLY)
    try:
        data = b""
        while True:
            more = os.read(number, 1 << 16)
            if not more:
                return data
            data += more
    finally:
        os.close(number)


def link(path: str) -> str:
    """Where a link leads to; empty if that may not be read."""
    try:
        return os.readlink(path)
    except OSError:
        return ""
