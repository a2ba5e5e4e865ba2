"""What launchers print of the processes they started: who is where, and how each ended.

Sources of the forms: torch (``distributed/elastic/multiprocessing/errors``, ``api.py``: ``failed (exitcode:
-9) local_rank: 3 (pid: 77)``, the block of ``ChildFailedError``), DeepSpeed (``launcher/launch.py``), srun
and slurmstepd (``srun: error: gpu02: task 3: Killed``), Open MPI and PRRTE (``mpirun noticed that process
rank 3``, ``Process name: [[5,1],3]``), Ray Train (``world_rank=3``) and its exceptions, pdsh and clush
(``pdsh@login: gpu02: ssh exited with exit code 137``), which know nodes only.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cockpit.core.logs.prefixes import message
from cockpit.core.logs.search import Expression, Rows
from cockpit.core.ranks import read_nodes, read_ranks
from cockpit.errors import CockpitError

SIGNS = (
    r"exitcode +: ",
    r"\bRoot Cause \(first observed",
    r"\bexitcode: -?\d",
    r"\bexits with return code = ",
    r"\bnode_rank=\d",
    r"\bglobal_rank_mapping=",
    r"\bsrun: error: ",
    r"\bslurmstepd: error: ",
    r"\bmpirun noticed that process rank\b",
    r"\bprterun noticed that process rank\b",
    r"\bProcess name: \[",
    r"\bExit code: +\d",
    r"\bworld_rank=\d",
    r"\bWorker PID: \d",
    r"\bRayTaskError\(",
    r"\bKilling subprocess \d",
    r"\bclosing signal SIG",
    r"\bpdsh@\w",
    r"\bclush: \w",
)
"""Signs of lines that :class:`LauncherFacts` reads."""

# Of a block of these, one line is sign enough.
_TELLS = Rows([Expression(True, sign) for sign in (*SIGNS, r"\b(?:rank|time|host) +: \S")])

_OOM = (
    r"\boom[-_]kill",
    r"\b[Oo]ut of memory: Killed process\b",
    r"\bOOMKilled\b",
    r": Out Of Memory\b",
    r"\bDetected \d{1,6} oom",
    r"\bkilled due to (?:memory pressure|the node running low on memory)",
    r"\b[Mm]emory cgroup out of memory\b",
    r"\bkilled by SIGKILL by OOM killer\b",
)

LAUNCHERS = {
    "accelerate": (r"\baccelerate/commands/", r"\baccelerate launch\b", r"/bin/accelerate\b"),
    "deepspeed": (r"\[launch\.py:\d", r"\[runner\.py:\d", r"\bdeepspeed/launcher/"),
    "torchrun": (
        *(r"\btorch[./]distributed[./](?:elastic|run|launcher)", r"/bin/torchrun\b", r"\bChildFailedError\b"),
    ),
    "mpirun": (
        *(rf"\b{name} (?:noticed|detected|was)\b" for name in ("mpirun", "mpiexec", "prterun")),
        r"\]<std",
    ),
    "srun": (r"\bsrun: ", r"\bslurmstepd: "),
    "pdsh": (r"\bpdsh@\S{1,64}: ",),
    "clush": (r"\bclush: \w",),
    "ray": (r"\bray::\w", r"\bray\.(?:exceptions|train)\b", r"\(raylet\b", r"Worker pid=\d"),
}
"""Signs of the lines of launchers."""

_NAMES = Rows([Expression(name, sign) for name, signs in LAUNCHERS.items() for sign in signs])
_OOMS = Rows([Expression(True, sign) for sign in _OOM])
_HEARD = Rows(
    [Expression(True, sign) for sign in (*_OOM, *SIGNS, r"\b(?:rank|time|host) +: \S")]
    + [Expression(True, sign) for signs in LAUNCHERS.values() for sign in signs]
)

_FIELD = re.compile(rb"\s{0,8}(time|host|rank|exitcode|error_file|traceback) +: (.{0,200})")
_RANK = re.compile(rb"(\d{1,6}) \(local_rank: (\d{1,6})\)")
_CODE = re.compile(rb"(-?\d{1,3}) \(pid: (\d{1,10})\)")
_FAILED = re.compile(rb"exitcode: (-?\d{1,3})\)? local_rank: (\d{1,6}) \(pid: (\d{1,10})\)")
_RETURN = re.compile(rb"exits with return code = (-?\d{1,3})\b")
_NODE_RANK = re.compile(rb"\bnum_local_procs=(\d{1,4}), node_rank=(\d{1,6})")
_MAPPING = re.compile(rb"'([\w.-]{1,64})': \[([\d, ]{1,4000})\]")
_TASKS = re.compile(
    rb"\bsrun: error: ([\w.,\[\]-]{1,200}): tasks? ([\d,-]{1,400}): (.{1,100}?)(?: \(core dumped\))?\s*\Z"
)
_EXIT = re.compile(rb"Exited with exit code (\d{1,3})")
_NOTICED = re.compile(
    rb"noticed that process rank (\d{1,6}) with PID (\d{1,10}) on node (\S{1,64}) exited on signal (\d{1,2})"
)
_PROCESS = re.compile(rb"Process name: \[(?:\[[^\[\]\n]{1,60}\]|[^\[\]\n]{1,60}),(\d{1,6})\]")
_EXIT_CODE = re.compile(rb"Exit code: +(\d{1,3})\b")
_WORLD = re.compile(rb"ip=([\w.:-]{1,64}), pid=(\d{1,10})\) world_rank=(\d{1,6})")
_TASK = re.compile(rb"RayTaskError\(.{1,300}?\(pid=(\d{1,10})(?:, ip=([\w.:-]{1,64}))?")
_WORKER = re.compile(rb"Worker IP address: ([\w.:-]{1,64}) .{0,80}?Worker PID: (\d{1,10})")

_NODES = re.compile(
    rb"(?:pdsh@\S{1,64}: (\S{1,64}): \S{1,64}|clush: (\S{1,200}):(?: \(\d{1,5}\))?)"
    rb" (?:exited with exit code (\d{1,3})|killed by signal (\d{1,2}))"
)

_BY_WORDS = {
    b"Killed": signal.SIGKILL,
    b"Out Of Memory": signal.SIGKILL,
    b"Segmentation fault": signal.SIGSEGV,
    b"Aborted": signal.SIGABRT,
    b"Bus error": signal.SIGBUS,
    b"Floating point exception": signal.SIGFPE,
    b"Illegal instruction": signal.SIGILL,
    b"Terminated": signal.SIGTERM,
    b"Hangup": signal.SIGHUP,
}
_SIGNALS = {int(one) for one in signal.Signals}


SLURM_MOST = 2000
"""Bytes of a line of srun that are looked at."""
MOST, OOMS = 1 << 14, 64
"""Ends that are kept, and lines of kernels."""


@dataclass(frozen=True)
class End:
    """How a process ended, as its launcher says.

    :param code: negative: the number of a signal
    :param rank: None: only its place on its node is told, or nothing
    :param at: the line that says so
    :param root: the launcher says that it was the first
    """

    code: int
    at: int
    rank: int | None = None
    local: int | None = None
    node: str = ""
    pid: int | None = None
    root: bool = False
    lost: bool = False
    """Nothing says with what it ended."""
    whole: bool = False
    """It is that of a process on its node, whichever one."""

    @property
    def signal(self) -> int | None:
        """The signal that ended it, also as a shell tells it (137)."""
        number = -self.code if self.code < 0 else self.code - 128
        return number if number in _SIGNALS and not self.lost else None


def tells(line: bytes) -> bool:
    """Whether a line is one of a launcher that :class:`LauncherFacts` reads."""
    return bool(_TELLS.found_in(line))


@dataclass
class LauncherFacts:
    """What launchers have said so far."""

    ends: list[End] = field(default_factory=list)
    bases: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of a node, as its lines name it: its number among the nodes, and ranks a node."""
    mapped: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The ranks of each node, as DeepSpeed says."""
    offsets: dict[str, int] = field(default_factory=dict)
    """What to add to a place on a node for its rank, as torchrun says."""
    actors: dict[tuple[str, int], int] = field(default_factory=dict)
    """Ranks by address and pid, as Ray says."""
    raised: list[tuple[int, str, int]] = field(default_factory=list)
    """Lines from which on an exception is that of a worker of Ray, with its address and pid."""
    ooms: list[tuple[int, str]] = field(default_factory=list)
    """Lines that report that the kernel killed for lack of memory, and of which node; the first of them."""
    launchers: dict[str, int] = field(default_factory=dict)
    _block: dict[bytes, bytes] = field(default_factory=dict)
    _root: bool = False
    _named: int | None = None

    def hear(self, line: bytes, at: int, node: str) -> None:
        """Take in a line.

        :param node: whose it is, as its prefix says
        """
        if _HEARD.hint(line) is None:
            return
        for name, _ in _NAMES.found_in(line):
            self.launchers.setdefault(name, at)
        if len(self.ooms) < OOMS and _OOMS.found_in(line):
            self.ooms.append((at, node))
        if len(self.ends) >= MOST or not _TELLS.found_in(line):
            return
        text = message(line)
        self._torch(text, at, node)
        self._deepspeed(text, at, node)
        self._slurm(text, at)
        self._mpi(text, at)
        self._nodes(text, at)
        for found in _WORKER.finditer(text):
            self.ends.append(End(1, at, None, None, found[1].decode(), int(found[2]), lost=True))
        if (task := _TASK.search(text)) and len(self.raised) < MOST:
            self.raised.append((at, (task[2] or b"").decode(), int(task[1])))
        for found in _WORLD.finditer(text):
            if len(self.actors) < MOST:
                self.actors[found[1].decode(), int(found[2])] = int(found[3])

    def _torch(self, text: bytes, at: int, node: str) -> None:
        if b"Root Cause (first observed" in text:
            self._root = True
        if found := _FAILED.search(text):
            self.ends.append(End(int(found[1]), at, None, int(found[2]), node, int(found[3])))
        if not (each := _FIELD.match(text)):
            return
        name, value = each[1], each[2].strip()
        if name in (b"time", b"host"):
            if name == b"time":
                self._block = {}
            self._block[name] = value
        elif name == b"rank":
            self._block[name] = value
        elif name == b"exitcode" and (code := _CODE.match(value)):
            rank = _RANK.match(self._block.get(b"rank", b""))
            host = self._block.get(b"host", b"").decode("utf-8", "replace") or node
            if rank:
                number, local = int(rank[1]), int(rank[2])
                self.offsets[host] = self.offsets[node] = number - local
                self.ends.append(End(int(code[1]), at, number, local, host, int(code[2]), self._root))
            self._block, self._root = {}, False

    def _deepspeed(self, text: bytes, at: int, node: str) -> None:
        if found := _NODE_RANK.search(text):
            self.bases[node] = (int(found[2]), int(found[1]))
        if b"global_rank_mapping=" in text:
            for each in _MAPPING.finditer(text[:65536]):
                if len(self.mapped) < MOST:
                    self.mapped[each[1].decode()] = tuple(map(int, re.findall(rb"\d{1,6}", each[2])))
        if found := _RETURN.search(text):
            # The command beside it is that of the last rank there, whichever one ended.
            self.ends.append(End(int(found[1]), at, node=node, whole=True))

    def _slurm(self, text: bytes, at: int) -> None:
        if not (found := _TASKS.search(text[:SLURM_MOST])):
            return
        exited = _EXIT.search(found[3])
        number = _BY_WORDS.get(found[3])
        code = int(exited[1]) if exited else -number if number else 1
        host = found[1].decode() if b"[" not in found[1] and b"," not in found[1] else ""
        try:
            ranks = sorted(read_ranks(found[2].decode()))[:MOST]
        except CockpitError:
            return
        self.ends += [End(code, at, rank, None, host) for rank in ranks]

    def _mpi(self, text: bytes, at: int) -> None:
        if found := _NOTICED.search(text):
            self.ends.append(
                End(
                    -int(found[4]),
                    at,
                    int(found[1]),
                    None,
                    found[3].decode("utf-8", "replace"),
                    int(found[2]),
                )
            )
        if found := _PROCESS.search(text):
            self._named = int(found[1])
        if (found := _EXIT_CODE.search(text)) and self._named is not None:
            # It names the first alone.
            self.ends.append(End(int(found[1]), at, self._named, root=True))
            self._named = None

    def _nodes(self, text: bytes, at: int) -> None:
        if not (found := _NODES.match(text)):
            return
        code = int(found[3]) if found[3] else -int(found[4])
        nodes = (found[1] or found[2]).decode("utf-8", "replace")
        try:
            names = sorted(read_nodes(nodes))
        except CockpitError:
            return
        self.ends += [End(code, at, node=name, whole=True) for name in names[:MOST]]

    def rank_of(self, node: str, local: int, *, alone: bool) -> int | None:
        """The rank at a place of a node; None: that is not told.

        :param alone: there is no other node, as far as is known
        """
        if ranks := self.ranks_at(node):
            return ranks[local] if local < len(ranks) else None
        if node in self.offsets:
            return self.offsets[node] + local
        return local if alone else None

    def ranks_at(self, node: str) -> Sequence[int]:
        """The ranks of a node; empty: that is not told."""
        ranks: Sequence[int] | None = self.mapped.get(node) or self.mapped.get(node.partition(".")[0])
        if ranks is None and len(self.mapped) == 1:
            ranks = next(iter(self.mapped.values()))
        if ranks is None and (base := self.bases.get(node)) is not None:
            ranks = range(base[0] * base[1], (base[0] + 1) * base[1])
        return ranks or ()


def renumbered(told: Iterable[LauncherFacts], shifts: Iterable[int]) -> LauncherFacts:
    """What parts of one console tell, as one: their lines begin after so many others."""
    from dataclasses import replace

    whole = LauncherFacts()
    for one, shift in zip(told, shifts, strict=True):
        whole.ends += [replace(end, at=end.at + shift) for end in one.ends]
        whole.ooms += [(at + shift, node) for at, node in one.ooms]
        whole.raised += [(at + shift, node, pid) for at, node, pid in one.raised]
        for name, at in one.launchers.items():
            whole.launchers.setdefault(name, at + shift)
        whole.bases |= one.bases
        whole.mapped |= one.mapped
        whole.offsets |= one.offsets
        whole.actors |= one.actors
    return whole
