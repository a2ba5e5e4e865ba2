"""Ranks whose environment does not say so, inferred from what surrounds them.

``torch.multiprocessing.spawn`` and notebooks pass a rank its number, Ray sets it in ``os.environ``, and
a program may write a title over its environment: none of it can be read from outside. What can be seen is who
started whom and when, and who is connected to whom: ranks of one job meet at a port that one of them listens
on, and stay connected. Processes are of one job if they hold the two ends of one TCP connection and take part
in ``torch.distributed``. A number follows from the order in which one launcher started them, unless something
speaks against it. Pure: :mod:`cockpit.node.stacks.workers` looks at the processes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from types import MappingProxyType
from typing import (
    Callable,
    Dict,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Set,
    Tuple,
)

from cockpit.node.stacks.tcp_peers import End, Wire, address_text

LOCAL = "local_rank"
"""Numbered by ``LOCAL_RANK``, which Lightning gives to what it starts."""
ORDER = "order"
"""Numbered in the order in which their launcher started them, on their node."""
NODE_ORDER = "node_order"
"""The same, for all nodes: which node it is, is known."""
PID = "pid"
"""Not known which is which: numbered in the order of pids, so that they have a name."""

EPHEMERAL = 32768
"""Ports from here on are not chosen by people."""

SERVICES = 1024
"""Ports below are those of other services: no job meets there."""

DEFAULT_PORTS = range(29400, 29600)
"""Where torch's programs meet if nobody says otherwise: 29400, 29500, and a few after them."""

_LAUNCHERS = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("ray", rb"(^|/)raylet |^ray::"),
        ("notebook", rb"ipykernel|colab_kernel"),
        ("deepspeed", rb"deepspeed\.launcher\.launch|/deepspeed "),
        ("accelerate", rb"/accelerate launch|accelerate\.commands\.launch"),
        ("torchrun", rb"torch\.distributed\.(run|launch)\b|/torchrun "),
    )
)
_SHELL = re.compile(r"(ba|da|z|k|c|tc|fi)?sh[0-9.]*\Z")
_NODE_RANK = re.compile(rb"--?(?:(?:node|machine)[_-])?rank[ =]([0-9]{1,6}) ")
"""Which node it is, in the command line of what starts the ranks of one."""
_NUMBER = re.compile(r"[0-9]{1,6}\Z")


class Worker(NamedTuple):
    """A Python process.

    :param env: of its environment, what launchers may have left there
    :param joined: it has threads that only ``torch.distributed`` starts
    :param sockets: inodes of those that it has not inherited
    :param gpus: numbers of the devices it has open
    :param numbers: its descriptors of sockets
    """

    pid: int
    parent: int
    ticks: int
    state: str = "S"
    name: str = ""
    words: Tuple[bytes, ...] = ()
    env: Mapping[str, str] = MappingProxyType({})
    joined: bool = False
    sockets: FrozenSet[int] = frozenset()
    gpus: FrozenSet[int] = frozenset()
    numbers: Mapping[int, int] = MappingProxyType({})


class Above(NamedTuple):
    """What has started a worker.

    :param program: the name of its file
    :param dead: children that have ended and were not waited for: name, start time and pid
    :param sockets: inodes of those that it has open
    """

    program: str
    words: Tuple[bytes, ...] = ()
    dead: Tuple[Tuple[str, int, int], ...] = ()
    sockets: FrozenSet[int] = frozenset()


class Given(NamedTuple):
    """A rank that is known from its environment, and may be the launcher of those that train.

    :param rank: its own, of ``size``; which node it is, of how many, if it is a launcher
    """

    pid: int
    rank: int
    size: Optional[int] = None


class Inferred(NamedTuple):
    """A worker that is a rank.

    :param how: why it has this number, one of the words above
    :param size: how many ranks the job has; None: not known
    :param above: the pid of what has started it
    """

    worker: Worker
    rank: int
    local: Optional[int]
    size: Optional[int]
    how: str
    launcher: str
    above: int
    addr: str = ""
    port: str = ""


class Scene(NamedTuple):
    """Everything on a node that counts here.

    :param torch: whether a process has loaded torch; asked only of those that are connected
    :param given: for what is below a rank that its environment tells of: that rank
    """

    workers: Dict[int, Worker]
    above: Dict[int, Above]
    wires: Dict[int, Wire]
    torch: Callable[[int], bool]
    given: Dict[int, Given]


def infer(scene: Scene) -> Iterator[Inferred]:
    """The ranks among some workers, job by job; a rank that ``given`` tells of is not among them."""
    taken: Set[int] = set()
    for group in _by_local_rank(scene.workers):
        taken.update(one.worker.pid for one in group)
        yield from _met(scene, group)
    components = list(_components(scene))
    part = {one.pid for component in components for one in component}
    for component in components:
        if taken.isdisjoint(one.pid for one in component):
            for several in _by_given(scene, component, part):
                yield from _met(scene, _numbered(scene, several))
    for one in _alone(scene, taken | part | set(scene.given)):
        launcher = _launcher(scene.above.get(one.parent, Above("")), [one])
        yield from _met(scene, [Inferred(one, 0, None, None, PID, launcher, one.parent)])


# -- whom LOCAL_RANK tells -----------------------------------------------------------------------------


def _by_local_rank(workers: Dict[int, Worker]) -> Iterator[List[Inferred]]:
    """Ranks that are told all but their rank: Lightning starts them, and is the first of its node itself."""
    started: Dict[int, Dict[int, List[Worker]]] = defaultdict(lambda: defaultdict(list))
    for one in sorted(workers.values(), key=_age):
        local, above = _number(one, "LOCAL_RANK"), workers.get(one.parent)
        told = _number(one, "NODE_RANK") is not None and one.env.get("MASTER_PORT")
        # A data loader of a rank has such a rank above it.
        if local is not None and told and above is not None and "LOCAL_RANK" not in above.env:
            started[one.parent][local].append(one)
    for parent, several in started.items():
        others = {local: line[0] for local, line in several.items() if local}
        if not others:
            continue
        some = next(iter(others.values()))
        # What else has the number 0 is something that the first one has started.
        first = next((one for one in several.get(0, ()) if one.words == some.words), None)
        node, size = _number(some, "NODE_RANK") or 0, _number(some, "WORLD_SIZE")
        # How many a node has is not said, and the last of them may be gone.
        each = max(others) + 1
        each = size // max(1, size // each) if node and size else each
        launcher = "lightning" if first is None else "other"
        yield [
            Inferred(one, node * each + local, local, size, LOCAL, launcher, parent)
            for local, one in sorted({**others, 0: first or workers[parent]}.items())
        ]


def _number(one: Worker, name: str) -> Optional[int]:
    text = one.env.get(name, "")
    return int(text) if _NUMBER.match(text) else None


def _age(one: Worker) -> Tuple[int, int]:
    return one.ticks, one.pid


# -- who is connected to whom --------------------------------------------------------------------------


def _components(scene: Scene) -> Iterator[List[Worker]]:
    """Workers that are connected to each other, directly or through others, oldest first."""
    ends: Dict[Tuple[str, End, End], int] = {}
    for one in scene.workers.values():
        for wire in _wires(scene, one):
            if not wire.listens:
                ends[wire.net, wire.near, wire.far] = one.pid
    peers: Dict[int, Set[int]] = defaultdict(set)
    for (net, near, far), pid in ends.items():
        other = ends.get((net, far, near), pid)
        if other != pid:
            peers[pid].add(other)
    # What is connected to ranks that have met, and has not joined them, gives them work: Ray's driver, which
    # may have imported torch too. Where nobody has joined, that is not known: older torch names no threads,
    # and before they have met only the first one has any.
    met = list(_connected(peers, {pid for pid in peers if scene.workers[pid].joined}))
    apart = peers.keys() - set().union(*met)
    others = _connected(peers, {pid for pid in apart if scene.workers[pid].joined or scene.torch(pid)})
    for component in (*met, *others):
        yield sorted((scene.workers[pid] for pid in component), key=_age)


def _connected(peers: Mapping[int, Set[int]], pids: Set[int]) -> Iterator[Set[int]]:
    """Those of some workers that are connected to each other, without those that are to none."""
    left = set(pids)
    while left:
        component, todo = set(), [left.pop()]
        while todo:
            pid = todo.pop()
            component.add(pid)
            todo += peers[pid] & left
            left -= peers[pid]
        if len(component) > 1:
            yield component


def _wires(scene: Scene, one: Worker) -> Iterator[Wire]:
    return (scene.wires[inode] for inode in one.sockets if inode in scene.wires)


def _by_given(scene: Scene, component: List[Worker], part: Set[int]) -> Iterator[List[Worker]]:
    """Those of them that may be ranks, apart by the launcher above them if that one was started as a rank.

    :param part: everything that is connected to others
    """
    several: Dict[int, List[Worker]] = defaultdict(list)
    for one in component:
        given = scene.given.get(one.pid)
        if given is None:
            several[0].append(one)
        # What takes part itself is a rank, and what is below it belongs to it.
        elif given.pid not in part and not scene.workers[given.pid].joined:
            several[given.pid].append(one)
    for group in several.values():
        found = _without_children(scene, group)
        if len(found) > 1:
            yield found


def _without_children(scene: Scene, group: List[Worker]) -> List[Worker]:
    """The uppermost of them; or one with its children, which is how some launchers are a rank themselves."""
    pids = {one.pid for one in group}
    tops = [one for one in group if not any(pid in pids for pid in _line(scene, one))]
    if len(tops) > 1 or not tops:
        return tops
    below = [one for one in group if one.parent == tops[0].pid]
    family = [tops[0], *below]
    # Any program may be connected to a helper that it has started.
    return family if all(one.joined for one in family) else []


def _line(scene: Scene, one: Worker) -> Iterator[int]:
    """The pids above a worker, as far as they are workers."""
    seen = {one.pid}
    parent = one.parent
    while parent not in seen:
        yield parent
        seen.add(parent)
        above = scene.workers.get(parent)
        parent = above.parent if above is not None else parent


def _alone(scene: Scene, others: Set[int]) -> Iterator[Worker]:
    """The only ranks of their jobs on this node: each node's script was started by itself.

    What takes part in ``torch.distributed`` meets the others somewhere. Without threads that show it, the
    process has a GPU open, and meets them at a port that torch chooses by itself.

    :param others: workers that are ranks, or are connected to each other here
    """
    for one in scene.workers.values():
        if one.pid in others or any(pid in others for pid in _line(scene, one)):
            continue
        at = None if _nobody_came(scene, one) else _meeting(scene, [one])
        if at is None or not (one.joined or (one.gpus and at.port in DEFAULT_PORTS and scene.torch(one.pid))):
            continue
        if not any(scene.workers[pid].joined for pid in _line(scene, one) if pid in scene.workers):
            yield one


def _nobody_came(scene: Scene, one: Worker) -> bool:
    """Whether a worker has opened a port to meet others, and is there alone: a job of one rank."""
    held = list(_wires(scene, one))
    ports = {wire.near[1] for wire in held if wire.listens}
    own = {wire.near for wire in held if not wire.listens}
    mine = {wire.far[1] for wire in held if wire.far in own and wire.far[1] in ports}
    guests = {wire.near[1] for wire in held if not wire.listens and wire.far not in own}
    return bool(mine - guests)


# -- which of them is which ----------------------------------------------------------------------------


def _numbered(scene: Scene, group: List[Worker]) -> List[Inferred]:
    first = group[0]
    parent = first.parent
    above = scene.above.get(parent, Above(""))
    launcher = _launcher(above, group)
    given = scene.given.get(first.pid)
    line = _in_order(scene, group)
    if not line:
        ordered = sorted(group, key=lambda one: one.pid)
        return [Inferred(one, at, None, None, PID, launcher, parent) for at, one in enumerate(ordered)]
    node = _node_rank(above, group) if given is None else given.rank
    how, size = (ORDER, len(line)) if node is None else (NODE_ORDER, None)
    if given is not None and given.size:
        size = given.size * len(line)
    return [
        Inferred(one, (node or 0) * len(line) + at, at, size, how, launcher, parent)
        for at, one in enumerate(line)
        if one is not None
    ]


def _in_order(scene: Scene, group: List[Worker]) -> List[Optional[Worker]]:
    """The workers in the order of their start, None for one that is dead; empty: that order says nothing."""
    first, rest = group[0], group[1:]
    if all(one.parent == first.pid for one in rest):
        parent, started = first.pid, rest
    else:
        parent, started = first.parent, group
    above = scene.above.get(parent, Above(""))
    if any(one.parent != parent for one in started) or not _starts_in_order(above):
        return []
    names = {one.name for one in started}
    ages: List[Tuple[Tuple[int, int], Optional[Worker]]] = [(_age(one), one) for one in started]
    ages += [((ticks, pid), None) for name, ticks, pid in above.dead if name in names]
    line = [one for _, one in sorted(ages, key=lambda each: each[0])]
    line = line if started is group else [first, *line]
    return line if _fits(scene, line) else []


def _starts_in_order(above: Above) -> bool:
    if _said(above) == "ray":
        return False
    return "python" in above.program or bool(_SHELL.match(above.program)) or bool(_said(above))


def _fits(scene: Scene, line: List[Optional[Worker]]) -> bool:
    """Whether nothing speaks against an order: they meet at the first, if they meet here; GPUs go up too."""
    there = [one for one in line if one is not None]
    at = _meeting(scene, there)
    if at is not None and at.host is not None and (line[0] is None or line[0].pid != at.host):
        return False
    gpus = [gpu for one in there if len(one.gpus) == 1 for gpu in one.gpus]
    apart = len(gpus) == len(there) == len(set(gpus))
    return not apart or gpus == sorted(gpus)


def _launcher(above: Above, group: Iterable[Worker]) -> str:
    said = _said(above)
    if said:
        return said
    if any(one.words[:1] and one.words[0].startswith(b"ray::") for one in group):
        return "ray"
    spawned = all(any(b"multiprocessing.spawn" in word for word in one.words[1:5]) for one in group)
    return "mp.spawn" if spawned else "fork" if _forked(above, group) else "other"


def _forked(above: Above, group: Iterable[Worker]) -> bool:
    return bool(above.words) and all(one.words == above.words for one in group)


def _said(above: Above) -> str:
    """Which launcher this is, by its command line; empty: none that is known."""
    line = b" ".join(above.words) + b" "
    return next((name for name, pattern in _LAUNCHERS if pattern.search(line)), "")


def _node_rank(above: Above, group: List[Worker]) -> Optional[int]:
    found = _NODE_RANK.search(b" ".join(above.words) + b" ")
    if found:
        return int(found.group(1))
    said = {_number(one, name) for one in group for name in ("NODE_RANK", "GROUP_RANK")} - {None}
    return said.pop() if len(said) == 1 else None


# -- where they meet -----------------------------------------------------------------------------------


class _Meeting(NamedTuple):
    """An address at which ranks meet.

    :param host: the pid of the worker that listens there; None: it is none of these
    """

    addr: str
    port: int
    host: Optional[int]


def _met(scene: Scene, group: List[Inferred]) -> List[Inferred]:
    """The same ranks, with their job's address."""
    env = group[0].worker.env or group[-1].worker.env
    addr, port = env.get("MASTER_ADDR", ""), env.get("MASTER_PORT", "")
    if not addr or port in ("", "0"):
        at = _meeting(scene, [one.worker for one in group])
        addr, port = (at.addr, str(at.port)) if at is not None else ("", "")
    return [one._replace(addr=addr, port=port) for one in group]


def _meeting(scene: Scene, group: List[Worker]) -> Optional[_Meeting]:
    """The end that most of them are connected to; that of a port that a person may have chosen first.

    What others are connected to as well, such as the launcher, is a service, like that of which each of Ray's
    workers is a client.
    """
    listeners = {
        (wire.net, wire.near[1]): one.pid for one in group for wire in _wires(scene, one) if wire.listens
    }
    guests: Dict[Tuple[str, int], Set[int]] = defaultdict(set)
    numbers: Dict[Tuple[str, int], List[int]] = defaultdict(list)
    addresses: Dict[Tuple[str, int], Set[str]] = defaultdict(set)
    for one in group:
        for inode in one.sockets & scene.wires.keys():
            wire = scene.wires[inode]
            if wire.listens or wire.far[1] < SERVICES:
                continue
            # What others are connected to is not what it is connected to.
            if listeners.get((wire.net, wire.near[1])) != one.pid:
                guests[wire.net, wire.far[1]].add(one.pid)
                numbers[wire.net, wire.far[1]].append(one.numbers.get(inode, 0))
                addresses[wire.net, wire.far[1]].add(address_text(wire.far))
            if (wire.net, wire.near[1]) in listeners:
                # Others may call it by another address than its own node does.
                addresses[wire.net, wire.near[1]].add(address_text(wire.near))
    if not guests:
        return None
    services = _services(scene, group)

    def order(at: Tuple[str, int]) -> Tuple[bool, int, bool, bool, float, int, str]:
        chance = at[1] >= EPHEMERAL
        # Where all ports are chosen by chance: ranks meet first, then they connect to each other.
        age = sum(numbers[at]) / len(numbers[at]) if chance else 0.0
        return at in services, -len(guests[at]), chance, at[1] not in DEFAULT_PORTS, age, at[1], at[0]

    place = min(guests, key=order)
    found = sorted(addresses[place], key=lambda each: (each.startswith("127.") or each == "::1", each))
    return _Meeting(found[0], place[1], listeners.get(place))


def _services(scene: Scene, group: List[Worker]) -> Set[Tuple[str, int]]:
    """The ends, on any node, that a launcher of some workers, or another child of it, is connected to."""
    parents = {one.parent for one in group}
    own = {one.pid for one in group}
    below = {pid for pid, one in scene.workers.items() if not parents.isdisjoint(_line(scene, one))}
    inodes = {
        inode
        for pid in below - own
        if not any(each in own for each in _line(scene, scene.workers[pid]))
        for inode in scene.workers[pid].sockets
    }
    inodes.update(inode for pid in parents if pid in scene.above for inode in scene.above[pid].sockets)
    held = (scene.wires[inode] for inode in inodes if inode in scene.wires)
    return {(wire.net, wire.far[1]) for wire in held if not wire.listens}
