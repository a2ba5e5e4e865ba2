"""What a rule of the verdict is about: ranks of a class, and what single dumps say of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cockpit.base.stacks.dump import LISTENING, Child, Dump
from cockpit.base.stacks.kinds import ACCEPTS, DEBUGGER, EVENT_LOOP, WAITING, kind, python_frames
from cockpit.core.stacks.classes import RankClass
from cockpit.core.stacks.words import place_text

_SYNC = re.compile(r"\.(item|cpu|tolist|synchronize)\(")

STOPPED = frozenset("Tt")
DEAD = frozenset("ZXx")

OUTSIDE = re.compile(r"socket|/dev/(tty|pts|console)")
"""What people and other programs are behind, who may just have nothing to say."""

_SERVES = re.compile(
    r"^(python/(asyncio|socketserver|xmlrpc|wsgiref|http/server)|(uvicorn|hypercorn|gunicorn|waitress|werkzeug"
    r"|tornado|twisted|grpc|aiohttp|websockets|cheroot|zmq|flask|fastapi|starlette|ray|vllm|sglang|gradio)/)"
)
"""Libraries in which threads of servers wait."""

_CLIENTS = re.compile(
    r"^(python/(http/client|urllib|ftplib|smtplib|ssl|sqlite3|subprocess|multiprocessing)|(requests|urllib3|httpx|httpcore"
    r"|huggingface_hub|datasets|boto\w*|s3fs|fsspec|gcsfs|google|aiohttp/client|wandb|mlflow|psycopg2?|pymysql)/)"
)
"""Libraries that ask, and wait for the answer."""

PEERS = {
    **dict.fromkeys(("recv", "irecv", "recv_object_list"), ("src",)),
    **dict.fromkeys(("send", "isend", "send_object_list"), ("dst",)),
}
"""Calls between two ranks, and the variable that says with whom."""

ROOTS = {
    **dict.fromkeys(("broadcast", "broadcast_object_list", "scatter", "scatter_object_list"), ("src",)),
    **dict.fromkeys(("reduce", "gather", "gather_object"), ("dst",)),
}
"""Collectives with a root, and the variable that says which rank it is: all have to name the same."""


@dataclass(frozen=True)
class ClassPart:
    """The ranks of a class that a rule is about.

    :param kind: what they do, a word of :data:`cockpit.base.stacks.kinds.KINDS`
    :param frozen: whether they made no progress over two samples: they did not move, or polled
    """

    found: RankClass
    ranks: int
    kind: str
    frozen: bool

    @property
    def what(self) -> str:
        """What they wait for: ``all_reduce``, ``backward``, ``init_process_group``."""
        if self.kind not in WAITING:
            frame = self.found.doing.frame
            own = frame is not None and self.kind != "library"
            return frame.name if own and frame is not None else self.found.doing.what or self.kind
        named = (frame.name for frame in self.found.frames if kind(frame) == self.kind != "backward")
        return self.found.doing.what or next(named, self.kind).rpartition(".")[2]

    @property
    def deed(self) -> tuple[str, str, str]:
        """What they do, whatever file of its own each of them does it with."""
        act = self.found.doing
        return act.kind, act.how, "" if act.kind == "io" else act.what

    @property
    def where(self) -> str:
        """The place in the user's code."""
        return place_text(self.found.doing.frame)

    @property
    def text(self) -> str:
        """What they do, in words."""
        return self.found.doing.text if self.kind == self.found.doing.kind else "waits for its device"


def kind_of(found: RankClass) -> str:
    """What a class does: a wait for a GPU from C code is seen by the line of source code only."""
    does, frame = found.doing.kind, found.doing.frame
    if (
        does in ("runs", "user", "lock", "io")
        and frame is not None
        and frame == python_frames(found.frames)[-1]
    ):
        return "sync" if _SYNC.search(found.source) else does
    return does


def state_of(dump: Dump | None) -> str:
    """The state of a rank's process; empty if unknown."""
    return dump.process.state if dump is not None and dump.process is not None else ""


def listens(part: ClassPart) -> bool:
    """Whether ranks wait for others to connect."""
    act = part.found.doing
    return LISTENING in act.what.split(", ") or act.how == ACCEPTS


def serves(part: ClassPart) -> bool:
    """Whether ranks wait for requests, or for whatever else may come."""
    return listens(part) or part.found.doing.how == EVENT_LOOP


def may_serve(part: ClassPart) -> bool:
    """Whether ranks wait at a socket or a terminal for somebody to ask something; else they have asked."""
    act = part.found.doing
    if part.kind != "io" or not OUTSIDE.search(act.what) or act.how == DEBUGGER:
        return False
    return not any(_CLIENTS.match(frame.file) for frame in part.found.frames)


def serves_beside(dump: Dump) -> bool:
    """Whether another thread waits for requests while the main one waits for what that will give it."""
    return any(_SERVES.match(frame.file) for thread in dump.threads[1:] for frame in thread.frames)


def peer_of(dump: Dump) -> tuple[int, bool] | None:
    """With whom a stack exchanges something, and whether it sends, by the variables of that call."""
    found = _named(dump, PEERS)
    return None if found is None else (found[0], found[1] == "dst")


def root_of(dump: Dump) -> int | None:
    """The rank that a stack names as the root of the collective it is in, by the variables of that call."""
    found = _named(dump, ROOTS)
    return None if found is None else found[0]


def _named(dump: Dump, calls: Mapping[str, Sequence[str]]) -> tuple[int, str] | None:
    """The rank in a variable of the innermost of these calls, and the name of that variable."""
    thread = dump.threads[0] if dump.threads else None
    if thread is None:
        return None
    for frame, names in reversed(list(zip(thread.frames, thread.locals, strict=False))):
        call = frame.name.rpartition(".")[2]
        if kind(frame) != "collective" or call not in calls:
            continue
        for name in calls[call]:
            value = names.get(name, "")
            if value.isdecimal() and len(value) < 7:
                return int(value), name
    return None


def bad_child(dump: Dump) -> Child | None:
    """A process below a rank that is dead or stopped."""
    return next((child for child in dump.children if child.state in DEAD | STOPPED), None)


def union(parts: Iterable[ClassPart]) -> int:
    """The ranks of all of them."""
    ranks = 0
    for one in parts:
        ranks |= one.ranks
    return ranks
