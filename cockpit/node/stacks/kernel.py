"""What the kernel says about a process: state, what its main thread waits for, CPU time, children.

Nothing here disturbs the process or needs its help; what may not be read is left empty.
"""

from __future__ import annotations

import os
import re
import struct
from typing import TYPE_CHECKING, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from cockpit.node import procfs
from cockpit.node.stacks import idle

if TYPE_CHECKING:
    from cockpit.base.stacks.dump import Child, Process

CHILDREN = 200
"""Processes below one rank that are reported."""

CHILDREN_READ = 64
"""Of these, as many whose CPU time is read."""

THREADS = 100
"""Threads of one rank whose switches are read."""

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")

_WAITS: Dict[str, Dict[int, str]] = {
    "x86_64": {
        **{0: "read", 1: "write", 2: "open", 4: "stat", 5: "fstat", 6: "lstat", 7: "poll", 16: "ioctl"},
        **{17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev", 23: "select", 34: "pause"},
        **{35: "nanosleep", 42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg"},
        **{47: "recvmsg", 56: "clone", 58: "vfork", 61: "wait4", 72: "fcntl", 73: "flock", 74: "fsync"},
        **{75: "fdatasync", 128: "rt_sigtimedwait", 130: "rt_sigsuspend", 202: "futex"},
        **{230: "clock_nanosleep", 232: "epoll_wait", 247: "waitid", 257: "openat", 262: "newfstatat"},
        **{270: "pselect6", 271: "ppoll", 281: "epoll_pwait", 288: "accept4", 299: "recvmmsg", 332: "statx"},
        **{435: "clone3", 441: "epoll_pwait2", 449: "futex_waitv", 426: "io_uring_enter"},
    },
    "aarch64": {
        **{22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 32: "flock", 56: "openat", 63: "read", 64: "write"},
        **{65: "readv", 66: "writev", 67: "pread64", 68: "pwrite64", 72: "pselect6", 73: "ppoll"},
        **{79: "newfstatat", 80: "fstat", 82: "fsync", 83: "fdatasync", 95: "waitid", 98: "futex"},
        **{101: "nanosleep", 115: "clock_nanosleep", 133: "rt_sigsuspend", 137: "rt_sigtimedwait"},
        **{202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg"},
        **{220: "clone", 242: "accept4", 243: "recvmmsg", 260: "wait4", 291: "statx", 426: "io_uring_enter"},
        **{435: "clone3", 441: "epoll_pwait2", 449: "futex_waitv"},
    },
}
"""System calls in which a process may wait, by their number, for each machine."""

_RESTART = {"x86_64": 219, "aarch64": 128}
"""The call that continues a wait with a time limit after an interruption, by py-spy for example."""

_ON_FD = frozenset((
    "read", "write", "pread64", "pwrite64", "readv", "writev", "ioctl", "fcntl", "flock", "fsync",
    "fdatasync", "fstat", "connect", "accept", "accept4", "sendto", "recvfrom", "sendmsg", "recvmsg",
    "recvmmsg",
))  # fmt: skip
"""Calls whose first argument is a file descriptor."""

_EPOLL = frozenset(("epoll_wait", "epoll_pwait", "epoll_pwait2"))

AWAITED = 8
"""Descriptors of one wait that are looked at."""

_PATH_AT = {"open": 0, "stat": 0, "lstat": 0, "openat": 1, "newfstatat": 1, "statx": 1}
"""Calls with a path, and which argument it is."""


_PYTHON_FILES = re.compile(r"/libpython[0-9.]|/lib-dynload/|\.cpython-[0-9]|\.abi3\.so")
"""Files that only Python maps: its library, its own modules, and extensions."""

_FORKED = 0x40  # PF_FORKNOEXEC of the kernel: it still runs the program of the process that forked it


class ProcessFacts(NamedTuple):
    """:class:`Process`, with what else decides how a process can be looked at.

    :param process: the part that is sent
    :param tracer: the process that traces it (a debugger, another py-spy); 0 for none
    :param uid: its real user
    :param ns_pid: its pid in its own pid namespace
    """

    process: Process
    tracer: int
    uid: int
    ns_pid: int


def look(pid: int, ticks: int) -> Optional[ProcessFacts]:
    """Look at this very process; None when it is not there any more."""
    from cockpit.base.stacks.dump import Process  # what only looks for ranks does without

    fields = _fields(pid)
    if fields is None or int(fields[19]) != ticks:
        return None
    found = status(str(pid))
    state = fields[0]
    wchan = "" if state == "R" else _text(pid, "wchan").strip()
    call, target = _call(pid, state, wchan)
    process = Process(
        pid=pid,
        ticks=ticks,
        state=state,
        wchan="" if wchan == "0" else wchan,
        call=call,
        target=target,
        cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND,
        main_cpu_s=_cpu_s(pid, pid),
        switches=_number(found.get("voluntary_ctxt_switches", "")),
        idle_s=idle.seconds(pid, pid),
        io_bytes=_io_bytes(pid, pid),
    )
    return ProcessFacts(
        process,
        tracer=_number(found.get("TracerPid", "")),
        uid=_number(found.get("Uid", "")),
        ns_pid=_number(found.get("NSpid", "").rpartition("\t")[2]) or pid,
    )


def thread(pid: int, tid: int, ticks: int) -> Optional[Process]:
    """The same of one thread of a process, as if it were the main one; None: it is not there."""
    from cockpit.base.stacks.dump import Process

    fields = _fields(pid, "task/%d/stat" % tid)
    if fields is None:
        return None
    state = fields[0]
    wchan = "" if state == "R" else _text(pid, "task/%d/wchan" % tid).strip()
    call, target = _call(pid, state, wchan, "task/%d/syscall" % tid)
    cpu_s = _cpu_s(pid, tid)
    wchan = "" if wchan == "0" else wchan
    switched = switches(pid, tid)
    return Process(
        pid, ticks, state, wchan, call, target, cpu_s, cpu_s, switched,
        idle_s=idle.seconds(pid, tid), io_bytes=_io_bytes(pid, tid),
    )  # fmt: skip


def switches(pid: int, tid: int) -> int:
    """How often a thread has gone to sleep by itself so far; -1: it does not say."""
    text = status("%d/task/%d" % (pid, tid)).get("voluntary_ctxt_switches", "")
    return _number(text) if text else -1


def runs(pid: int, tid: int) -> bool:
    """Whether a thread runs, or waits for a CPU."""
    fields = _fields(pid, "task/%d/stat" % tid)
    return fields is not None and fields[0] == "R"


def thread_switches(pid: int) -> Dict[int, int]:
    """How often each thread of a process has gone to sleep by itself so far, of the first :data:`THREADS`."""
    return {tid: switches(pid, tid) for tid in procfs.numbers(pid, "task")[:THREADS]}


def _io_bytes(pid: int, tid: int) -> int:
    """What a thread has read and written so far; 0 where the kernel does not count that."""
    return _moved(_text(pid, "task/%d/io" % tid))


def _moved(text: str) -> int:
    told = dict(line.split(": ") for line in text.splitlines() if ": " in line)
    return _number(told.get("rchar", "")) + _number(told.get("wchar", ""))


def status(pid: str) -> Dict[str, str]:
    """The fields of ``/proc/PID/status``; of our own process for ``self``."""
    pairs = (line.partition(":") for line in _text(pid, "status").splitlines())
    return {key: value.strip() for key, _, value in pairs}


def state(pid: int, ticks: int) -> str:
    """The letter of proc(5) for this very process; empty when it is not there any more."""
    found = procfs.stat(pid)
    return found.state if found is not None and found.ticks == ticks else ""


def tracer(pid: int) -> int:
    """The process that traces this one; 0 for none."""
    return _number(status(str(pid)).get("TracerPid", ""))


def waits_hard(pid: int) -> List[int]:
    """The threads of a process that are in an uninterruptible wait: nobody can make those stop."""
    states = {tid: _fields(pid, "task/%d/stat" % tid) for tid in procfs.numbers(pid, "task")}
    return [tid for tid, fields in states.items() if fields is not None and fields[0] == "D"]


def children(pid: int) -> Tuple[Child, ...]:
    """The processes below this one, children before grandchildren; never more than :data:`CHILDREN`."""
    from cockpit.base.stacks.dump import Child

    found: List[Child] = []
    parents = [pid]
    for parent in parents:
        for number in _children(parent):
            if len(found) == CHILDREN:
                return tuple(found)
            child = procfs.stat(number)
            if child is not None:
                found.append(Child(number, child.name, child.state))
                parents.append(number)
    return tuple(found)


def work(children: Sequence[Child]) -> Tuple[float, int]:
    """CPU seconds that processes have used, with those they have waited for, and bytes they have moved.

    Of the first :data:`CHILDREN_READ`: nobody needs to know more than whether some of them are at work.
    """
    ticks = moved = 0
    for child in children[:CHILDREN_READ]:
        fields = _fields(child.pid)
        if fields is not None:
            ticks += sum(map(int, fields[11:15]))
            moved += _moved(_text(child.pid, "io"))
    return ticks / _TICKS_A_SECOND, moved


def program(pid: int) -> str:
    """The file name of the program a process runs; its short name if that may not be read."""
    return os.path.basename(procfs.link("/proc/%d/exe" % pid)) or name(pid)


def name(pid: int) -> str:
    """The short name of a process; empty when it is not there."""
    found = procfs.stat(pid)
    return found.name if found else ""


def folder(pid: int) -> str:
    """The working folder of a process; empty if it may not be read."""
    return procfs.link("/proc/%d/cwd" % pid)


def has_other_files(pid: int) -> bool:
    """Whether a process sees other files under the same paths than we do (a container)."""
    theirs = procfs.link("/proc/%d/ns/mnt" % pid)
    return bool(theirs) and theirs != procfs.link("/proc/self/ns/mnt")


def is_python(pid: int) -> bool:
    """Whether a process is a Python interpreter, judged by its program or the libraries it has loaded."""
    return "python" in program(pid) or _PYTHON_FILES.search(_text(pid, "maps")) is not None


def has_torch(pid: int) -> bool:
    """Whether a process has loaded torch."""
    return "libtorch" in _text(pid, "maps")


def waits_for_child(pid: int) -> bool:
    """Whether the main thread of a process waits for a child to end."""
    found = procfs.stat(pid)
    return found is not None and _call(pid, found.state, "")[0] in ("wait4", "waitid")


def forked(pid: int) -> bool:
    """Whether a process runs its parent's program and environment, as data loaders do."""
    fields = procfs.contents("/proc/%d/stat" % pid).rpartition(b")")[2].split()
    return len(fields) > 6 and bool(int(fields[6]) & _FORKED)


def _call(pid: int, letter: str, wchan: str, file: str = "syscall") -> Tuple[str, str]:
    """The system call in which the main thread is, and what it is about.

    :param file: where the kernel says it, of another thread
    """
    words = _text(pid, file).split()
    if len(words) < 7 or not words[0].isdigit():
        return "", ""
    machine = os.uname().machine
    number = int(words[0])
    if number == _RESTART.get(machine):
        call = _restarted(wchan)
    else:
        call = _WAITS.get(machine, {}).get(number, "syscall %d" % number)
    arguments = [int(word, 16) for word in words[1:7]]
    if call in _EPOLL:
        return call, _files(pid, _epolled(pid, arguments[0]))
    if call in _ON_FD:
        return call, _file(pid, arguments[0])
    # A thread in an uninterruptible wait may hold the lock of its memory: a reader would wait with it.
    if letter != "S":
        return call, ""
    if call in ("poll", "ppoll"):
        return call, _polled(pid, arguments[0], arguments[1])
    if call in ("select", "pselect6"):
        read = _selected(pid, arguments[0], arguments[1])
        return call, _files(pid, read or _selected(pid, arguments[0], arguments[2]))
    if call in _PATH_AT:
        return call, _path(pid, arguments[_PATH_AT[call]])
    if call == "wait4" or call == "waitid":
        awaited = arguments[0] if call == "wait4" else arguments[1]
        return call, "process %d (%s)" % (awaited, name(awaited)) if 0 < awaited < 1 << 31 else ""
    return call, ""


def _restarted(wchan: str) -> str:
    """The call that restart_syscall continues: only these three kinds ever use it."""
    if "futex" in wchan:
        return "futex"
    return "poll" if "poll" in wchan else "clock_nanosleep"


def _file(pid: int, number: int) -> str:
    """What is behind a file descriptor: a path, ``pipe``, ``socket``."""
    from cockpit.base.stacks.dump import LISTENING

    if number >= 1 << 31:
        return ""
    target = procfs.link("/proc/%d/fd/%d" % (pid, number))
    kind, colon, _ = target.partition(":[")
    if colon and not target.startswith("/"):
        if kind == "socket" and _listens(pid, target[8:-1]):
            return LISTENING
        return kind.replace("anon_inode", "")
    return target.replace("anon_inode:", "")


def _listens(pid: int, inode: str) -> bool:
    """Whether a socket waits for others to connect."""
    for name in ("tcp", "tcp6"):
        for line in _text(pid, "net/%s" % name).splitlines()[1:]:
            words = line.split()
            if len(words) > 9 and words[3] == _LISTEN and words[9] == inode:
                return True
    # Of sockets in the file system, the flag says that they accept connections.
    lines = (line.split() for line in _text(pid, "net/unix").splitlines()[1:])
    return any(len(words) > 6 and words[6] == inode and words[3] == _ACCEPTS for words in lines)


_LISTEN = "0A"
_ACCEPTS = "00010000"


def _polled(pid: int, address: int, count: int) -> str:
    """What a poll waits for; one entry of struct pollfd is 8 bytes."""
    data = _memory(pid, address, 8 * min(count, AWAITED))
    return _files(pid, (struct.unpack_from("=i", data, place)[0] for place in range(0, len(data) - 7, 8)))


def _selected(pid: int, count: int, address: int) -> List[int]:
    """The descriptors that are set in a fd_set."""
    data = _memory(pid, address, (min(count, 1024) + 7) // 8)
    return [number for number in range(8 * len(data)) if data[number // 8] >> number % 8 & 1]


def _epolled(pid: int, number: int) -> List[int]:
    """The descriptors that an epoll waits for."""
    lines = _text(pid, "fdinfo/%d" % number).splitlines() if number < 1 << 31 else []
    return [_number(line.partition(":")[2].strip()) for line in lines if line.startswith("tfd:")]


def _files(pid: int, numbers: Iterable[int]) -> str:
    """What is behind some file descriptors, each once."""
    files = [_file(pid, number) for number in list(numbers)[:AWAITED] if number >= 0]
    return ", ".join(sorted(set(filter(None, files))))


def _path(pid: int, address: int) -> str:
    data = _memory(pid, address, min(256, 4096 - address % 4096))
    text, end, _ = data.partition(b"\0")
    return os.fsdecode(text) if end else ""


def _memory(pid: int, address: int, size: int) -> bytes:
    if not size or not address:
        return b""
    try:
        number = os.open("/proc/%d/mem" % pid, os.O_RDONLY)
        try:
            return os.pread(number, size, address)
        finally:
            os.close(number)
    except (OSError, OverflowError):
        return b""


def _children(pid: int) -> List[int]:
    """The direct children, of whichever thread."""
    told = (_text(pid, "task/%d/children" % thread) for thread in procfs.numbers(pid, "task"))
    return [int(child) for text in told for child in text.split()]


def _cpu_s(pid: int, tid: int) -> float:
    # In nanoseconds; the fields of stat only count ticks of 10 ms.
    nanoseconds = _text(pid, "task/%d/schedstat" % tid).split()
    if nanoseconds and nanoseconds[0].isdigit():
        return int(nanoseconds[0]) / 1e9
    fields = _fields(pid, "task/%d/stat" % tid)
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND if fields else 0.0


def _fields(pid: int, file: str = "stat") -> Optional[List[str]]:
    """The fields of a stat file from the state on."""
    # The name before them may contain spaces and parentheses.
    fields = _text(pid, file).rpartition(")")[2].split()
    return fields if len(fields) >= 20 else None


def _number(text: str) -> int:
    found = re.match(r"\d+", text)
    return int(found.group()) if found else 0


def _text(pid: object, file: str) -> str:
    return procfs.contents("/proc/%s/%s" % (pid, file)).decode("utf-8", "replace")
