"""What a frame, and a whole stack, is busy with.

Names of functions and files are those of torch 2.13, DeepSpeed 0.19 and CPython. A frame that matches no rule
is the user's or a library's, by its file.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple, Optional, Pattern, Tuple

from cockpit.base.stacks.dump import LISTENING, Dump, Frame, Process
from cockpit.base.stacks.file_names import is_library

KINDS = {
    "user": "the user's own code",
    "library": "a library",
    "collective": "waits in a collective",
    "rendezvous": "waits for the others to connect",
    "store": "waits for what another rank puts into the store",
    "backward": "in the autograd engine, inside which DDP waits for gradients of others",
    "sync": "waits for its device",
    "loader": "waits for data of another process, such as a worker of its data loader",
    "io": "reads or writes",
    "gathers": "fetches parameters that other ranks have (ZeRO-3)",
    "lock": "waits for a lock or another thread",
    "sleep": "sleeps",
    "build": "waits for a compiler, or for the lock of one",
}
"""Every kind, in words."""

WAITING = frozenset({"collective", "rendezvous", "store", "backward", "sync"})
"""Kinds in which a rank may wait for other ranks."""

# fmt: off
COLLECTIVES = frozenset((
    "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_into_tensor_coalesced",
    "all_gather_object", "all_gather_single", "all_gather_single_coalesced", "all_gather_tensor",
    "all_reduce", "all_reduce_coalesced", "all_to_all", "all_to_all_single", "allgather", "allgather_fn",
    "allreduce", "barrier", "batch_isend_irecv", "broadcast", "broadcast_object_list", "gather",
    "gather_object", "inference_all_reduce", "irecv", "isend", "monitored_barrier", "recv",
    "recv_object_list", "reduce", "reduce_scatter", "reduce_scatter_fn", "reduce_scatter_single",
    "reduce_scatter_single_coalesced", "reduce_scatter_tensor", "reduce_scatter_tensor_coalesced",
    "scatter", "scatter_object_list", "send", "send_object_list", "wait_tensor",
))
"""Functions that return once other ranks have called them too."""

_RENDEZVOUS = frozenset((
    "init_process_group", "_new_process_group_helper", "new_group", "_new_group_with_tag",
    "new_subgroups", "_store_based_barrier", "rendezvous", "_env_rendezvous_handler",
    "_create_c10d_store", "init_distributed", "initialize_dist", "split_group",
))
# fmt: on

# Public functions that call each other: the innermost named one says what the wait is for.
_COMM_FILES = re.compile(
    r"^(torch/distributed/(distributed_c10d|_functional_collectives|c10d_logger|nn/functional)\.py"
    r"|deepspeed/comm/(comm|torch|ccl)\.py)$"
)
_RENDEZVOUS_FILES = re.compile(
    r"^torch/distributed/(distributed_c10d|rendezvous|elastic/.*)\.py$|^deepspeed/comm/(comm|torch)\.py$"
)
_GENERATED = re.compile(r"/torchinductor_[^/]*/")
"""Code that torch.compile has written."""

_NATIVE_COLLECTIVE = re.compile(
    r"c10d::(?!TCPStore|PrefixStore|Store)\w*(Work|ProcessGroup|Backend)|gloo::\w*"
    r"(allreduce|allgather|broadcast|barrier|reduce|recv|send|wait)|nccl\w*(All|Reduce|Broadcast|Send|Recv|Group)"
)
_NATIVE_STORE = re.compile(r"c10d::(\w*Store|detail::TCPClient)\b")
_NATIVE_SYNC = re.compile(
    r"^(cu(da)?|hip)(Stream|Device|Event|Ctx)Synchronize|_local_scalar_dense_(cuda|hip)"
)
_GATHERS = (
    r"^(fetch_sub_module|__?all_gather_params_?|_PartitionedParameterCoordinator__all_gather_params_?)$"
)
"""What waits in C for parameters of other ranks, unless another function is further in."""

_RULES = tuple(
    (name, re.compile(file), re.compile(function))
    for name, file, function in (
        # The handles of ZeRO-3's all-gathers: ``AllGatherCoalescedHandle.wait``, of quantised weights too.
        ("gathers", r"^deepspeed/runtime/zero/partition_parameters\.py$", r"^wait$"),
        ("gathers", r"^deepspeed/runtime/zero/partitioned_param_coordinator\.py$", _GATHERS),
        ("build", r"^torch/utils/file_baton\.py$", ""),
        ("build", r"^torch/utils/cpp_extension\.py$", r"^(_?jit_compile|_run_ninja|_write_)"),
        ("build", r"^torch/_inductor/(codecache|async_compile|cpp_builder)\.py$", ""),
        ("backward", r"^torch/autograd/graph\.py$", r"^_engine_run_backward$"),
        ("sync", r"^torch/(cuda|xpu|mps|accelerator)/(__init__|streams)\.py$", r"^(wait_)?synchronize"),
        # Not _next_data: without workers it reads the data itself.
        ("loader", r"^torch/utils/data/dataloader\.py$", r"^_(try_get_data|get_data|shutdown_workers)$"),
        (
            "loader",
            r"^python/multiprocessing/(queues|connection|pool|managers)\.py$",
            r"^(get|put|join|wait|_?poll|_?recv(_bytes|_bytes_into)?)$",
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
        if _NATIVE_STORE.search(frame.name):
            return "store"
        return "sync" if _NATIVE_SYNC.search(frame.name) else "library"
    name = frame.name.rpartition(".")[2]
    if not is_library(frame.file) and not _GENERATED.search(frame.file):
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

    :param kind: a word of :data:`KINDS`, or ``runs`` if it computes
    :param what: the collective, the file or the lock in one word; empty if there is none
    :param frame: the innermost frame of the user's own code; None if there is none
    :param text: all that in words: ``waits in all_reduce``, ``reads /data/shard-7.bin``
    :param how: which kind of input and output it is: the first of the calls that do the same,
        :data:`EVENT_LOOP`, :data:`DEBUGGER`; empty if it is none
    """

    kind: str
    what: str
    frame: Optional[Frame]
    text: str
    how: str = ""


EVENT_LOOP, DEBUGGER = "event loop", "debugger"
ACCEPTS = "accept"


def python_frames(frames: Tuple[Frame, ...]) -> Tuple[Frame, ...]:
    """Where a stack is, without its native frames.

    They may differ between two looks at one wait: py-spy sometimes truncates them or gets none at all, and a
    busy wait is somewhere else each time.
    """
    if not any(frame.native for frame in frames):
        return frames
    return tuple(frame for frame in frames if not frame.native)


def user_frame(frames: Tuple[Frame, ...]) -> Optional[Frame]:
    """The innermost frame of the user's own code; if the program is an installed one, of its package."""
    frames = python_frames(frames)
    mine = next((frame for frame in reversed(frames) if kind(frame) == "user"), None)
    if mine is not None and not _SCRIPT.search(mine.file):
        return mine
    # ``python -m axolotl.cli.train``, or ``llamafactory-cli`` in a folder of programs.
    installed = (frame.file.partition("/")[0] for frame in frames if kind(frame) != "user")
    package = next((name for name in installed if name[:1] not in ("", "<") and name != "python"), None)
    inside = (frame for frame in reversed(frames) if package and frame.file.startswith(package + "/"))
    return next(inside, mine)


def source_frame(frames: Tuple[Frame, ...]) -> Optional[Frame]:
    """The frame whose source line says most: the user's own, or the compiled code it is in."""
    mine = user_frame(frames)
    found = (frame for frame in reversed(frames) if frame == mine or _GENERATED.search(frame.file))
    return next(found, None)


_SCRIPT = re.compile(r"/bin/[^/.]+$")
"""Scripts that pip writes; they only call a package."""

_TEXTS = {
    "rendezvous": "waits for the others to connect",
    "backward": "in backward, where gradients of all ranks are joined",
    "sync": "waits for its device",
    "loader": "waits for its data loader",
    "queue": "waits for another process",
    "store": "waits in the store for another rank",
    "build": "waits for a build, or for its lock",
    "builds": "builds an extension",
    "sleep": "sleeps",
    "lock": "waits for a lock",
    "thread": "waits for another thread",
}

_SLEEPS = frozenset(("clock_nanosleep", "nanosleep"))
_LOCKS = frozenset(("futex",))
_JOINT = re.compile(
    r"^(torch/(distributed|nn/parallel)|deepspeed/(comm|runtime)|apex/parallel"
    r"|megatron/core/(distributed|optimizer|pipeline_parallel|tensor_parallel))/"
)
"""Code that waits for other ranks in C: for example, DDP's ``_pre_forward`` while it rebuilds its buckets."""
_STORE = re.compile(r"^torch/distributed/")
_ANSWERS = frozenset(("poll", "ppoll", "recvfrom"))
"""Calls in which torch waits for what other ranks put into the store."""
_THREADS = re.compile(r"^python/(threading|queue|concurrent/futures/\w+)\.py$")
_DEBUGGERS = re.compile(r"^(python/(pdb|bdb)\.py|(ipdb|pudb)/|IPython/(core|terminal)/debugger\.py)")
_EVENTS = re.compile(
    r"^(python/(asyncio|socketserver|xmlrpc|wsgiref)\b|(trio|anyio|uvloop|uvicorn|hypercorn|gunicorn|waitress"
    r"|werkzeug|tornado|twisted|gevent|eventlet|grpc|aiohttp|websockets|cheroot|zmq)/)"
)
"""Loops that wait for whatever comes, as those of servers do."""

_WAIT = re.compile(r"\.wait\(")
_SLEEP = re.compile(r"\btime\.sleep\(")
_COMPILED = re.compile(r"\b_c10d_functional\.(\w+)")
"""A line of compiled code that calls a collective; no Python frame has the collective's name."""
_WORK = "Work.wait"
"""What the wait is for if only the handle of a collective is known, not which one it is."""

_FAMILIES = (
    ("reads", "", ("read", "pread64", "readv")),
    ("receives", " from", ("recvfrom", "recvmsg", "recvmmsg")),
    ("writes", " to", ("write", "writev", "pwrite64")),
    ("sends", " to", ("sendto", "sendmsg")),
    ("connects", " to", ("connect",)),
    ("opens", "", ("open", "openat")),
    ("looks", " at", ("stat", "lstat", "fstat", "newfstatat", "statx")),
    ("flushes", "", ("fsync", "fdatasync")),
    ("waits for the lock", " on", ("flock", "fcntl")),
    ("waits", " on", (ACCEPTS, "accept4")),
    ("waits", " on", ("poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2")),
    ("waits for a child", "", ("wait4", "waitid", "vfork")),
)
_CALLS = {call: (words, joint, calls[0]) for words, joint, calls in _FAMILIES for call in calls}
"""What a call does, in words; what stands before its target; the first of those that do the same."""


def doing(
    frames: Tuple[Frame, ...], process: Optional[Process] = None, source: str = "", loop: str = ""
) -> Doing:
    """What a stack is busy with: the innermost frame that says so, else what the kernel says.

    :param frames: outermost first
    :param process: what the kernel says; a call into C has no Python frame of its own
    :param source: the line of source code of the innermost frame of user code
    :param loop: the head of the loop that this line is in
    """
    user = user_frame(frames)
    collective = native = gathers = ""
    in_c = bool(process is not None and (process.call in _LOCKS or process.call in _SLEEPS))
    queue = store = False
    # From the inside out, up to the user's own code: frames further out only led there.
    for frame in reversed(frames):
        found = kind(frame)
        if found == "user" or frame == user:
            break
        if found == "collective":
            # all_reduce of DeepSpeed calls all_reduce of torch: the innermost name is the right one.
            # What a native frame says comes second, so that ranks without native frames read the same.
            if frame.native:
                native = native or _symbol(frame.name) or _WORK
            else:
                collective = collective or frame.name.rpartition(".")[2]
            continue
        if found == "store" and frame.native:
            store = True  # a name further out says more
            continue
        if found == "gathers":
            gathers = gathers or ("fetch_sub_module" if in_c else "")
            in_c = False  # only the innermost frame of Python may be in C
            continue
        in_c = in_c and frame.native
        if found == "loader" and frame.file.startswith("python/"):
            queue = True  # that of a data loader, if a frame further out says so
        elif found == "build" and _BUILDS.match(frame.file) and not collective and not native:
            return Doing("build", "builds", user, _TEXTS["builds"])
        elif found == "rendezvous" and not collective and not native:
            name = _group_call(frames)
            return Doing(found, name, user, "waits in %s" % name if name else _TEXTS[found])
        elif found not in ("library", "lock", "io") and not collective and not native:
            return Doing(found, "", user, _TEXTS[found])
    what = collective or native or gathers
    if what:
        return Doing("collective", what, user, "waits in %s" % what)
    if store:
        return Doing("store", "", user, _TEXTS["store"])
    if queue:
        return Doing("loader", "", user, _TEXTS["queue"])
    return _by_kernel(frames, user, process, source, loop)


def of_dump(dump: Dump) -> Doing:
    """What a rank is busy with: the thread that works."""
    return doing(dump.frames, dump.main, dump.source, dump.loop)


_BUILDS = re.compile(
    r"^(torch/utils/cpp_extension|torch/_inductor/(codecache|async_compile|cpp_builder))\.py$"
)
"""Who compiles; who waits until another one has done so is in the lock."""


def _group_call(frames: Tuple[Frame, ...]) -> str:
    """Which function that makes a group of ranks a stack is in: all ranks have to call it."""
    names = (frame.name.rpartition(".")[2] for frame in frames if kind(frame) == "rendezvous")
    return next((name for name in names if name in _GROUPS), "")


_GROUPS = frozenset(("new_group", "new_subgroups", "new_subgroups_by_enumeration", "split_group"))

_SYMBOLS = tuple(
    (re.compile(symbol, re.IGNORECASE), name)
    for symbol, name in (
        ("all_?reduce", "all_reduce"), ("all_?gather", "all_gather"), ("all_?to_?all", "all_to_all"),
        ("reduce_?scatter", "reduce_scatter"), ("broadcast", "broadcast"), ("barrier", "barrier"),
    )
)  # fmt: skip


def _symbol(symbol: str) -> str:
    """The collective that a native symbol names; empty if it names none."""
    return next((name for pattern, name in _SYMBOLS if pattern.search(symbol)), "")


def _by_kernel(
    frames: Tuple[Frame, ...], user: Optional[Frame], process: Optional[Process], source: str, loop: str
) -> Doing:
    frames = python_frames(frames)
    call = process.call if process is not None else ""
    target = process.target if process is not None else ""
    in_c = user is not None and user == frames[-1]
    if in_c:
        found = _asked(source, loop, call, user)
        if found is not None:
            return found
    # A wait in Python has its own frame: one in C is for the handle of a collective.
    if in_c and _WAIT.search(source) and (call in _LOCKS or call in _SLEEPS):
        return Doing("collective", _WORK, user, "waits in %s" % _WORK)
    compiled = _COMPILED.search(source)
    if compiled and call in _LOCKS:
        return Doing("collective", compiled.group(1), user, "waits in %s" % compiled.group(1))
    file = frames[-1].file if frames else ""
    inner = kind(frames[-1]) if frames else ""
    # Lock files are polled.
    if call in _SLEEPS and inner != "lock":
        return Doing("sleep", "", user, _TEXTS["sleep"])
    if (call in _LOCKS and _JOINT.match(file)) or (call in _ANSWERS and _STORE.match(file)):
        what = frames[-1].name.rpartition(".")[2]
        return Doing("collective", what, user, "waits in %s" % what)
    if call in _LOCKS or (inner == "lock" and call not in _CALLS):
        return _of_lock(frames[-1] if frames else None, user)
    if call in _CALLS and _further_in(frames, user, _DEBUGGERS):
        return Doing("io", target, user, "waits in a debugger for somebody to type", DEBUGGER)
    if call in _CALLS and _further_in(frames, user, _EVENTS):
        return Doing("io", target, user, "waits in its event loop", EVENT_LOOP)
    if call in _CALLS and in_c and _SLEEP.search(source):
        # The kernel was asked a moment before, or after: the line is what the frame says.
        return Doing("sleep", "", user, _TEXTS["sleep"])
    if call in _CALLS:
        return Doing("io", target, user, _call_text(call, target), _CALLS[call][2])
    if inner == "io":
        return Doing("io", "", user, "reads or writes")
    if process is not None and process.state == "R":
        return Doing("runs", "", user, "runs")
    if inner == "library":
        return Doing("library", _package(file), user, "in %s" % _package(file))
    return Doing("user", "", user, "in its own code") if frames else Doing("", "", None, "no Python stack")


_STORES = re.compile(
    r"\b(\w{0,64}store\w{0,64})(\([^()]{0,200}\))?\.(get|wait|multi_get|barrier)\(", re.IGNORECASE
)
_STORE_LOOP = re.compile(
    r"\b\w{0,64}store\w{0,64}(\([^()]{0,200}\))?\.(check|num_keys|add|get)\(", re.IGNORECASE
)
_WORK_LOOP = re.compile(r"\.is_(completed|success)\(")
_DEVICE_LOOP = re.compile(r"\b(event|evt|stream|ev)\w*\.query\(", re.IGNORECASE)
_ON_SOCKET = frozenset(("poll", "ppoll", "recvfrom", "read", "epoll_wait", "futex"))


def _asked(source: str, loop: str, call: str, user: Optional[Frame]) -> Optional[Doing]:
    """What a line of the user's own code waits for in C, or asks for again and again, as its text says."""
    asked = _STORES.search(source) if call in _ON_SOCKET else None
    if asked is not None:
        return Doing("store", "%s.%s" % (asked.group(1), asked.group(3)), user, _TEXTS["store"])
    polled = "%s %s" % (loop, source)
    if not loop:
        return None
    if _WORK_LOOP.search(polled):
        return Doing("collective", "Work.is_completed", user, "polls Work.is_completed")
    if _STORE_LOOP.search(polled):
        return Doing("store", "store", user, "polls the store")
    return Doing("sync", "", user, "polls its device") if _DEVICE_LOOP.search(polled) else None


def _of_lock(inner: Optional[Frame], user: Optional[Frame]) -> Doing:
    """What a stack that ends in a futex, or in a function that uses one, waits for."""
    if inner is not None and _THREADS.match(inner.file):
        ends = at_end((inner,))
        text = "is at its end, and waits for another thread" if ends else _TEXTS["thread"]
        return Doing("lock", "thread", user, text)
    if inner is not None and kind(inner) == "library" and not inner.file.startswith(("python/", "<frozen ")):
        # It may be a wait for other ranks that no rule knows.
        package = _package(inner.file)
        return Doing("library", package, user, "waits in %s" % package)
    return Doing("lock", "", user, _TEXTS["lock"])


def at_end(frames: Tuple[Frame, ...]) -> bool:
    """Whether a program is through, and waits for threads that are not."""
    found = python_frames(frames)
    return any(frame.name == "_shutdown" and _THREADS.match(frame.file) for frame in found[-2:])


def _package(file: str) -> str:
    return "compiled code" if _GENERATED.search(file) else file.partition("/")[0]


def _call_text(call: str, target: str) -> str:
    """What a system call does, and with what if that is known."""
    words, joint, _ = _CALLS[call]
    if target:
        return "%s%s %s%s" % (words, joint, "a " if target in ("pipe", "socket", LISTENING) else "", target)
    return "waits in %s" % call if joint else words


def _further_in(frames: Tuple[Frame, ...], user: Optional[Frame], files: Pattern[str]) -> bool:
    """Whether the innermost code of the user's own has called into one of these files."""
    for frame in reversed(frames):
        if frame == user:
            return False
        if files.match(frame.file):
            return True
    return False
