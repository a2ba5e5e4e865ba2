"""What a frame, and a whole stack, is busy with.

Names of functions and files are those of torch 2.13, DeepSpeed 0.19 and CPython. A frame that no rule knows
is the user's or a library's, by its file.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple, Optional, Tuple

from cockpit.base.sources import is_library
from cockpit.base.stacks import Frame, Process

KINDS = {
    "user": "the user's own code",
    "library": "a library",
    "collective": "waits in a collective",
    "rendezvous": "waits for the others to connect",
    "backward": "in the autograd engine, inside which DDP waits for gradients of others",
    "sync": "waits for its device",
    "loader": "waits for a worker of its data loader",
    "io": "reads or writes",
    "lock": "waits for a lock",
    "sleep": "sleeps",
    "build": "waits for a compiler, or for the lock of one",
}
"""Every kind, in words."""

WAITING = frozenset({"collective", "rendezvous", "backward", "sync"})
"""Kinds in which a rank may wait for other ranks."""

# fmt: off
COLLECTIVES = frozenset((
    "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object", "all_reduce",
    "all_reduce_coalesced", "all_to_all", "all_to_all_single", "allgather", "allgather_fn", "allreduce",
    "barrier", "batch_isend_irecv", "broadcast", "broadcast_object_list", "gather", "gather_object",
    "irecv", "isend", "monitored_barrier", "recv", "recv_object_list", "reduce", "reduce_scatter",
    "reduce_scatter_fn", "reduce_scatter_tensor", "reduce_scatter_tensor_coalesced", "scatter",
    "scatter_object_list", "send", "send_object_list", "inference_all_reduce", "wait_tensor",
))
"""Functions that end when other ranks have called them too."""

_RENDEZVOUS = frozenset((
    "init_process_group", "_new_process_group_helper", "new_group", "_new_group_with_tag",
    "new_subgroups", "_store_based_barrier", "rendezvous", "_env_rendezvous_handler",
    "_create_c10d_store", "init_distributed", "initialize_dist", "split_group",
))
# fmt: on

# Public functions that call each other: the innermost named one says what is waited for.
_COMM_FILES = re.compile(
    r"^(torch/distributed/(distributed_c10d|_functional_collectives|c10d_logger|nn/functional)\.py"
    r"|deepspeed/comm/(comm|torch|ccl)\.py)$"
)
_RENDEZVOUS_FILES = re.compile(
    r"^torch/distributed/(distributed_c10d|rendezvous|elastic/.*)\.py$|^deepspeed/comm/(comm|torch)\.py$"
)
_NATIVE_COLLECTIVE = re.compile(
    r"c10d::(?!TCPStore|PrefixStore|Store)\w*(Work|ProcessGroup|Backend)|gloo::\w*"
    r"(allreduce|allgather|broadcast|barrier|reduce|recv|send|wait)|nccl\w*(All|Reduce|Broadcast|Send|Recv|Group)"
)
_NATIVE_SYNC = re.compile(
    r"^(cu(da)?|hip)(Stream|Device|Event|Ctx)Synchronize|_local_scalar_dense_(cuda|hip)"
)
_RULES = tuple(
    (name, re.compile(file), re.compile(function))
    for name, file, function in (
        ("build", r"^torch/utils/file_baton\.py$", ""),
        ("build", r"^torch/utils/cpp_extension\.py$", r"^(_?jit_compile|_run_ninja|_write_)"),
        ("build", r"^torch/_inductor/(codecache|async_compile|cpp_builder)\.py$", ""),
        ("backward", r"^torch/autograd/graph\.py$", r"^_engine_run_backward$"),
        ("sync", r"^torch/(cuda|xpu|mps|accelerator)/(__init__|streams)\.py$", r"^(wait_)?synchronize"),
        (
            "loader",
            r"^torch/utils/data/dataloader\.py$",
            r"^_(next_data|try_get_data|get_data|shutdown_workers)$",
        ),
        ("lock", r"^python/threading\.py$", r"^(acquire|wait|wait_for|join|_wait_for_tstate_lock)$"),
        ("lock", r"^(filelock/|python/multiprocessing/synchronize\.py)", ""),
        ("io", r"^python/(socket|ssl|subprocess|selectors|tarfile|zipfile|gzip|shutil|pathlib|http/)", ""),
        ("io", r"^(requests|urllib3|fsspec|s3fs|boto3|botocore|aiohttp|h5py|pyarrow)/", ""),
    )
)
"""Kinds by file and function, first match first; an empty pattern fits every function."""


@lru_cache(maxsize=8192)
def kind(frame: Frame) -> str:
    """What one frame is, a word of :data:`KINDS`."""
    if frame.native:
        if _NATIVE_COLLECTIVE.search(frame.name):
            return "collective"
        return "sync" if _NATIVE_SYNC.search(frame.name) else "library"
    name = frame.name.rpartition(".")[2]
    if not is_library(frame.file):
        return "user"
    if name in COLLECTIVES and _COMM_FILES.match(frame.file):
        return "collective"
    if name in _RENDEZVOUS and _RENDEZVOUS_FILES.match(frame.file):
        return "rendezvous"
    for found, file, function in _RULES:
        if file.match(frame.file) and function.match(name):
            return found
    return "library"


class Doing(NamedTuple):
    """What a rank does.

    :param kind: a word of :data:`KINDS`, or ``runs`` where it computes
    :param what: the collective, the file or the lock in one word; empty where there is none
    :param frame: the innermost frame of the user's own code; None where there is none
    :param text: all that in words: ``waits in all_reduce``, ``reads /data/shard-7.bin``
    """

    kind: str
    what: str
    frame: Optional[Frame]
    text: str


def python_frames(frames: Tuple[Frame, ...]) -> Tuple[Frame, ...]:
    """Where a stack is, without its native frames.

    Those of two looks at one wait may differ: py-spy cuts them short now and then, or gets none at all, and a
    busy wait is each time somewhere else.
    """
    if not any(frame.native for frame in frames):
        return frames
    return tuple(frame for frame in frames if not frame.native)


def user_frame(frames: Tuple[Frame, ...]) -> Optional[Frame]:
    """The innermost frame of the user's own code."""
    return next((frame for frame in reversed(frames) if not frame.native and kind(frame) == "user"), None)


_TEXTS = {
    "rendezvous": "waits for the others to connect",
    "backward": "in backward, where gradients of all ranks are joined",
    "sync": "waits for its device",
    "loader": "waits for its data loader",
    "build": "waits for a build, or for its lock",
    "sleep": "sleeps",
    "lock": "waits for a lock",
}

_SLEEPS = frozenset(("clock_nanosleep", "nanosleep"))
_LOCKS = frozenset(("futex",))
_JOINT = re.compile(
    r"^(torch/(distributed|nn/parallel)|deepspeed/(comm|runtime)|apex/parallel"
    r"|megatron/core/(distributed|optimizer|pipeline_parallel|tensor_parallel))/"
)
"""Code that waits for other ranks in C: DDP's ``_pre_forward``, while it rebuilds its buckets, for one."""

_WAIT = re.compile(r"\.wait\(")
_WORK = "Work.wait"
"""What is waited for where only a handle of a collective is known, not which one it is."""

_WORDS = {
    "reads": ("read", "pread64", "readv"),
    "receives from": ("recvfrom", "recvmsg", "recvmmsg"),
    "writes": ("write", "writev", "pwrite64"),
    "sends to": ("sendto", "sendmsg"),
    "connects to": ("connect",),
    "opens": ("open", "openat"),
    "looks at": ("stat", "lstat", "fstat", "newfstatat", "statx"),
    "flushes": ("fsync", "fdatasync"),
    "waits for the lock on": ("flock", "fcntl"),
    "waits on": (
        *("accept", "accept4", "poll", "ppoll", "select", "pselect6"),
        *("epoll_wait", "epoll_pwait", "epoll_pwait2"),
    ),
    "waits for a child": ("wait4", "waitid", "vfork"),
}
_CALLS = {call: words for words, calls in _WORDS.items() for call in calls}


def doing(frames: Tuple[Frame, ...], process: Optional[Process] = None, source: str = "") -> Doing:
    """What a stack is busy with: the innermost frame that says so, else what the kernel says.

    :param frames: outermost first
    :param process: what the kernel says; a call into C has no Python frame of its own
    :param source: the line of source code of the innermost frame of user code
    """
    user = user_frame(frames)
    collective = native = ""
    # From the inside out, up to the user's own code: what is further out only led there.
    for frame in reversed(frames):
        found = kind(frame)
        if found == "user" and not frame.native:
            break
        if found == "collective":
            # all_reduce of DeepSpeed calls all_reduce of torch: the innermost name is the right one.
            # What a native frame says comes second, so that ranks without native frames read the same.
            if frame.native:
                native = native or _symbol(frame.name) or _WORK
            else:
                collective = collective or frame.name.rpartition(".")[2]
            continue
        if found not in ("library", "lock", "io") and not collective and not native:
            return Doing(found, "", user, _TEXTS[found])
    what = collective or native
    if what:
        return Doing("collective", what, user, "waits in %s" % what)
    return _by_kernel(frames, user, process, source)


_SYMBOLS = tuple(
    (re.compile(symbol, re.IGNORECASE), name)
    for symbol, name in (
        ("all_?reduce", "all_reduce"), ("all_?gather", "all_gather"), ("all_?to_?all", "all_to_all"),
        ("reduce_?scatter", "reduce_scatter"), ("broadcast", "broadcast"), ("barrier", "barrier"),
    )
)  # fmt: skip


def _symbol(symbol: str) -> str:
    """The collective that a native symbol names; empty where it names none."""
    return next((name for pattern, name in _SYMBOLS if pattern.search(symbol)), "")


def _by_kernel(
    frames: Tuple[Frame, ...], user: Optional[Frame], process: Optional[Process], source: str
) -> Doing:
    frames = python_frames(frames)
    call = process.call if process is not None else ""
    target = process.target if process is not None else ""
    in_c = user is not None and user == frames[-1]
    # A wait of Python's own has a frame of its own: one in C is that for the handle of a collective.
    if in_c and _WAIT.search(source) and (call in _LOCKS or call in _SLEEPS):
        return Doing("collective", _WORK, user, "waits in %s" % _WORK)
    if call in _SLEEPS:
        return Doing("sleep", "", user, _TEXTS["sleep"])
    if call in _LOCKS and frames and _JOINT.match(frames[-1].file):
        what = frames[-1].name.rpartition(".")[2]
        return Doing("collective", what, user, "waits in %s" % what)
    if call in _LOCKS:
        return Doing("lock", "", user, _TEXTS["lock"])
    if call in _CALLS:
        return Doing("io", target, user, ("%s %s" % (_CALLS[call], target)).rstrip())
    inner = kind(frames[-1]) if frames else ""
    if inner in ("lock", "io"):
        return Doing(inner, "", user, _TEXTS.get(inner, "reads or writes"))
    if process is not None and process.state == "R":
        return Doing("runs", "", user, "runs")
    if inner == "library":
        return Doing("library", "", user, "in %s" % frames[-1].file.partition("/")[0])
    return Doing("user", "", user, "in its own code") if frames else Doing("", "", None, "no Python stack")
