"""Names of a run folder on a node and of its environment variables: what both sides must agree on.

A *run folder* is ``<node base>/<run>/<node>`` on the node, mode 0700, owned by the user. In it:

=======================  ==========================================================================
``record.json``          facts written once at launch by the supervisor
``events.jsonl``         the run record: one JSON object per line, append-only, written only by the supervisor
``times.jsonl``          the time index: how long each log was when (:mod:`cockpit.base.times`)
``sizes.jsonl``          in a run that an earlier version launched: the same, a line each 0.2 s, never thinned
``launcher.log``         the launcher's own stdout and stderr
``supervisor.log``       what went wrong in the supervisor itself; normally empty
``rank-N.log``           stdout and stderr of global rank N, append-only
``rank-N.nccl``          with ``--nccl-debug``: what NCCL says in rank N, written by NCCL itself
``rank-N.start.json``    written by the wrapper of rank N when the training process started
``rank-N.exit.json``     written by the wrapper of rank N when it ended
``rank-N.environ.json``  the environment that rank N was started with, without secrets; by its wrapper
``rank-N.profiler.json`` with ``--per-rank``: the process of its profiler, and how it ended; by the wrapper
``around.json``          with ``--per-rank``: the words of the profilers of ranks
``stop.json``            present when somebody asked to stop who could not reach ``helpers.sock``
``evidence/``            what the supervisor kept of ranks that stood still, or as one failed
``evidence.json``        present when a cockpit asked for evidence
``steps.jsonl``          the steps of the ranks, older ones many as one (:mod:`cockpit.base.progress.past`)
``steps.folded.jsonl``   in a run that an earlier version launched: older ones, many as one
``reports/``             a profiler's files
``probe/``               of ranks' probes: ``<rank>.<pid>.sock`` (torch's worker server), ``….json`` (how
                         it went), at the end of the run ``….ring`` (the last steps)
``helpers.sock``         the supervisor answers those who may connect here, the owner alone: it stops the
                         run, takes and tells what there is no room for, starts py-spy
``nsys.session``         with `--profile nsys-ready`: the name of nsys's session; locked by who records in it;
                         with ``--per-rank`` that of rank N in ``rank-N.nsys.session``
``node.pyz, rankwrap``   our code: ``/bin/sh`` script and zip
``step.sh, spec``        in a SLURM job: starts the supervisor; the pipe of its launch spec
=======================  ==========================================================================
"""

from __future__ import annotations

FORMAT = 1
"""Version of the run record; a reader refuses a newer one."""

RECORD = "record.json"
EVENTS = "events.jsonl"
TIMES = "times.jsonl"
SIZES = "sizes.jsonl"
SIZES_READ = 64 << 20
"""Bytes of it that are taken: of a larger one nothing, which costs the order of lines between ranks."""
INDEX = (TIMES, SIZES)
"""The time index, by either name."""
LAUNCHER_LOG = "launcher.log"
SUPERVISOR_LOG = "supervisor.log"
STOP = "stop.json"
SOCKET = "helpers.sock"
TELL_RECORD, TELL_NOTE = "record", "note"
"""What a wrapper tells the supervisor over its socket: a record that it cannot write, a remark."""
STEPS = "steps.jsonl"
STEPS_FOLDED = "steps.folded.jsonl"
REPORTS = "reports"
EVIDENCE = "evidence"
"""A folder: a file each time that the ranks stood still, or that one failed."""
WISH = "evidence.json"
NSYS_SESSION = "nsys.session"
NODE_PYZ = "node.pyz"
RANKWRAP = "rankwrap"
LAUNCH_SH = "launch.sh"
STEP_SH = "step.sh"
SPEC = "spec"
PROBE = "probe"
"""A folder: the sockets of torch's server in each rank, ``RANK.PID.sock``; what NCCL's watchdog wrote."""
PROBE_PYTHON = "probe/python"
"""The folder that is put on the path of a rank's Python."""
PROBE_SOURCES = (
    "sitecustomize.py",
    "hooks.py",
    "marks.py",
    "profiling.py",
    "room.py",
    "server.py",
    "calls.py",
    "windows.py",
    "rendezvous.py",
)
CALLS = ".calls"
"""Ends the name of the file in which a rank notes its calls, beside its ring."""

FACTS = "cockpit-facts:"
"""Begins the answer of the program that looks at the user's python; its command line has it too."""

ENV_RUN = "COCKPIT_RUN"
"""Run tag: every process of a run carries it in its environment."""
ENV_NODE = "COCKPIT_NODE"
"""Node tag: tells nodes apart that share one /proc."""
ENV_DIR = "COCKPIT_DIR"
"""The run folder on the node, absolute."""
ENV_SUPERVISOR = "COCKPIT_SUPERVISOR"
"""Pid of the supervisor: the one process (and its children) a rank lets trace it."""
ENV_UMASK = "COCKPIT_UMASK"
"""The user's umask in octal, noted before a profiler changes it."""
ENV_RANK = "COCKPIT_RANK"
"""The number of a program that gets no variables of a rank; not set: ``RANK`` has it."""
ENV_PROBE = "COCKPIT_PROBE"
"""How the ranks are to be probed, ``auto`` or ``on``; not set: not at all. A rank's Python has more in it."""
ENV_RINGS = "COCKPIT_RINGS"
"""The folder of the ranks' rings, in memory; not set: there is none."""

ENV_CALLS = "COCKPIT_CALLS"
"""Packages whose calls a rank's Python notes, with commas between; not set: of none."""

AROUND = "around.json"
"""How the ranks are profiled each on its own: see :mod:`cockpit.node.run.rank_profiler`."""
INNER = "inner"
"""The part of our code that runs between a rank and its profiler."""
ENV_AROUND = "COCKPIT_AROUND"
"""Ranks of this node that get a profiler of their own, with commas between; not set: none."""

ENV_WINDOW = "COCKPIT_WINDOW"
"""First and last step that nsys is to record, and whether each gets a range; not set: it waits for none."""

ENV_NCCL = "COCKPIT_NCCL"
"""Set: the wrapper names the file that NCCL writes what it says to, unless the user has named one."""

ENV_VOLUMES = "COCKPIT_VOLUMES"
"""See :mod:`cockpit.base.volumes`, as JSON; not set: this is no pod, or it has none."""

ENV_HOLD = "COCKPIT_HOLD"
"""Seconds that the wrapper of a failed rank waits for evidence of the others; not set: it does not."""


def rank_log(rank: int) -> str:
    """Name of the log of a global rank."""
    return "rank-%d.log" % rank


def log_name(rank: int | None) -> str:
    """Name of the log of a global rank; None: of the launcher's console."""
    return LAUNCHER_LOG if rank is None else rank_log(rank)


def nccl_dump(rank: int) -> str:
    """Name of the dump that NCCL's watchdog writes for a global rank, in the folder of the probe."""
    return "nccl_trace_rank_%d" % rank


def rank_nccl(rank: int) -> str:
    """Name of the file that NCCL writes in a global rank, with ``--nccl-debug``."""
    return "rank-%d.nccl" % rank


def rank_profiler(rank: int, attempt: int) -> str:
    """Name of the record about the profiler of one attempt at a global rank."""
    return "rank-%d.profiler%s.json" % (rank, ".%d" % attempt if attempt else "")


def rank_session(rank: int) -> str:
    """Name of the file with the name of the session in which nsys has launched a global rank."""
    return "rank-%d.%s" % (rank, NSYS_SESSION)


def rank_window(rank: int) -> str:
    """Name of the file that is there once nsys records the steps that were asked for of a global rank."""
    return "%s/%d.window" % (PROBE, rank)


def logged_rank(name: str) -> int | None:
    """The global rank whose log has this name; None for any other name."""
    return _numbered(name, ".log")


def nccl_rank(name: str) -> int | None:
    """The global rank whose NCCL writes a file of this name; None for any other name."""
    return _numbered(name, ".nccl")


def _numbered(name: str, end: str) -> int | None:
    # Without re: each wrapper of a rank has this module in its memory.
    digits = name[len("rank-") : -len(end)]
    if len(digits) > 6 or not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits) if "rank-%d%s" % (int(digits), end) == name else None


def is_log(name: str) -> bool:
    """Whether a file of a run folder is output of a rank, of NCCL in it, or of the launcher."""
    return name == LAUNCHER_LOG or logged_rank(name) is not None or nccl_rank(name) is not None


def is_followed(name: str) -> bool:
    """Whether a file of a run folder is copied while it grows."""
    return name in (EVENTS, *INDEX) or is_log(name)


def rank_start(rank: int) -> str:
    """Name of the start record of a global rank."""
    return "rank-%d.start.json" % rank


def rank_exit(rank: int) -> str:
    """Name of the exit record of a global rank."""
    return "rank-%d.exit.json" % rank


def rank_environ(rank: int) -> str:
    """Name of the record of the environment that a global rank was started with."""
    return "rank-%d.environ.json" % rank
