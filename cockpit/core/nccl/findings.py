"""What is wrong by NCCL's own words: the way between nodes, between GPUs, versions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from cockpit.core.finding import Finding, Rule, Step, findings
from cockpit.core.masks import mask_of
from cockpit.core.nccl.table import COLUMNS, Group, Row, Table

_INNER = re.compile(r"lo\Z|docker|br-|virbr|veth|cni|flannel|cali|lxc|podman|cbr|vmnet")
"""Interfaces that lead to no other node: loopback, bridges of containers and of virtual machines."""
_FABRIC = ("efa", "verbs", "psm", "cxi", "opx")
"""Providers of libfabric that are not TCP."""
_MANY = 3
"""Lines of evidence of one kind."""


def found(table: Table) -> tuple[Finding, ...]:
    """Everything that is wrong, the worst first."""
    each = list(findings(RULES, {"table": table})) if table else []
    order = ("error", "warning", "info")
    return tuple(sorted(each, key=lambda one: order.index(one.severity)))


def _of(rows: Iterable[Row]) -> tuple[int, tuple[str, ...]]:
    rows = tuple(rows)
    mask = mask_of(number for row in rows for number in row.numbers)
    return mask, tuple(dict.fromkeys(row.node for row in rows if row.node))


def _told(groups: Sequence[Group]) -> tuple[str, ...]:
    return tuple(f"{group.value}: {group.who}" for group in groups)


def _set(rows: Iterable[Row], *names: str) -> Iterator[str]:
    """Which of these variables they read, each once."""
    said = (f"{name}={row.settings[name]}" for row in rows for name in names if name in row.settings)
    return iter(dict.fromkeys(said))


def _bridge(table: Table) -> Finding | None:
    """``docker0``, ``lo`` and the like lead to no other node."""
    if not table.spans:
        return None
    rows = [row for row in table.rows if _INNER.match(row.bootstrap) or any(map(_INNER.match, _used(row)))]
    if not rows:
        return None
    names = dict.fromkeys(name for row in rows for name in (row.bootstrap, *_used(row)) if _INNER.match(name))
    ranks, nodes = _of(rows)
    outer = (group.value for group in table.groups("bootstrap") if not _INNER.match(group.value))
    name = next(outer, "NAME")
    # Beside one that leads there, NCCL opens connections over both.
    only = any(
        _INNER.match(row.bootstrap) or (_used(row) and all(map(_INNER.match, _used(row)))) for row in rows
    )
    return Finding(
        "nccl-bridge",
        f"NCCL takes {', '.join(names)}, which leads to no other node",
        ranks=ranks,
        nodes=nodes,
        evidence=(
            *[f"bootstrap: {text}" for text in _told(table.groups("bootstrap"))][:_MANY],
            *[f"NET/Socket: {text}" for text in _told(table.groups("interfaces"))][:_MANY],
            *_set(rows, "NCCL_SOCKET_IFNAME"),
        ),
        certainty="sure" if only else "likely",
        severity="error" if only else "warning",
        steps=(
            Step(
                f"--env NCCL_SOCKET_IFNAME={name}", "the interface that all nodes share; ^docker,lo excludes"
            ),
            Step("ip -br addr", "which interface has the address of the cluster's network?"),
        ),
    )


def _used(row: Row) -> tuple[str, ...]:
    """The interfaces that data goes over; NCCL lists those of TCP also where it uses something else."""
    return row.interfaces if row.network in ("Socket", "") else ()


def _tcp(table: Table) -> Finding | None:
    """TCP between nodes, though there is something faster; or nothing faster was found."""
    slow = [row for row in table.rows if row.network == "Socket"]
    if not table.spans or not slow:
        return None
    devices = [row for row in slow if row.devices or row.provider.startswith(_FABRIC)]
    others = [row for row in table.rows if row.network and row.network != "Socket"]
    told = tuple(_set(slow, "NCCL_NET", "NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_NET_PLUGIN"))
    steps = (
        Step(
            "ibv_devinfo; fi_info -p efa", "is the device there, also in the container, and its port active?"
        ),
        Step("ulimit -l", "memory must not be limited for it: unlimited"),
    )
    if devices or others:
        rows = devices or slow
        ranks, nodes = _of(rows)
        has = dict.fromkeys(one for row in devices for one in (*row.devices, row.provider) if one)
        why = (
            f"though there is {', '.join(list(has)[:4])}"
            if has
            else "while others use " + ", ".join(dict.fromkeys(row.network for row in others))
        )
        return Finding(
            "nccl-tcp",
            f"NCCL uses TCP between nodes, {why}",
            ranks=ranks,
            nodes=nodes,
            evidence=(*_told(table.groups("network"))[:_MANY], *told),
            certainty="sure",
            severity="warning",
            steps=(Step("env | grep NCCL_", "is NCCL_NET or NCCL_IB_DISABLE set?"), *steps),
        )
    none = [row for row in slow if row.no_ib or row.settings.get("NCCL_IB_DISABLE", "0") != "0"]
    if not none:
        return None
    ranks, nodes = _of(none)
    off = bool(told) and any(text.startswith("NCCL_IB_DISABLE") and not text.endswith("=0") for text in told)
    return Finding(
        "nccl-tcp",
        "NCCL uses TCP between nodes: "
        + ("NCCL_IB_DISABLE is set" if off else "it finds no InfiniBand, RoCE or EFA device"),
        ranks=ranks,
        nodes=nodes,
        evidence=told,
        certainty="sure",
        severity="info",
        steps=steps[:1],
    )


def _interface(table: Table) -> Finding | None:
    """Few take another interface than most."""
    apart: list[Row] = []
    evidence: list[str] = []
    usual = ""
    for column in ("bootstrap", "interfaces", "devices"):
        most, *others = table.groups(column) or (None,)
        rows = [row for group in others for row in group.rows]
        if most is None or not rows or len(rows) >= len(most.rows):
            continue
        usual = usual or (most.value if column != "devices" else "")
        known = {id(row) for row in apart}
        apart += [row for row in rows if id(row) not in known]
        evidence += [f"{COLUMNS[column]}: {text}" for text in _told((most, *others))[: 1 + _MANY]]
    if not apart:
        return None
    ranks, nodes = _of(apart)
    name = usual.split(", ")[0] or "NAME"
    return Finding(
        "nccl-interface",
        f"{Group('', tuple(apart)).who} take another interface than the others"
        if len(apart) > 1
        else f"{Group('', tuple(apart)).who} takes another interface than the others",
        ranks=ranks,
        nodes=nodes,
        evidence=tuple(evidence),
        certainty="sure",
        severity="warning",
        steps=(
            Step(f"--env NCCL_SOCKET_IFNAME={name}", "the one that most take"),
            Step("ip -br addr", "on that node: is the interface up, with an address?"),
        ),
    )


def _versions(table: Table) -> Finding | None:
    """NCCL of different versions cannot make a communicator, or behaves differently."""
    groups = table.groups("version")
    kits = table.groups("toolkit")
    if len(groups) < 2 and len(kits) < 2:
        return None
    told = groups if len(groups) > 1 else kits
    ranks, nodes = _of(row for group in told[1:] for row in group.rows)
    what = "versions of NCCL" if len(groups) > 1 else "builds of NCCL"
    return Finding(
        "nccl-versions",
        f"ranks have different {what}: {', '.join(group.value for group in told)}",
        ranks=ranks,
        nodes=nodes,
        evidence=_told(told),
        certainty="sure",
        severity="error" if len(groups) > 1 else "warning",
        steps=(
            Step(
                "python -c 'import torch; print(torch.__file__, torch.cuda.nccl.version())'",
                "on both: the same environment on all nodes? LD_PRELOAD, LD_LIBRARY_PATH?",
            ),
        ),
    )


def _p2p(table: Table) -> Finding | None:
    """GPUs of a node that go through its memory, though they need not."""
    said = [row for row in table.rows if row.remarks or row.acs]
    off = [row for row in table.rows if row.settings.get("NCCL_P2P_DISABLE", "0") not in ("0", "")]
    beside = any(way.startswith("P2P/") for row in table.rows for way in row.inside)
    through = [row for row in table.rows if beside and "SHM" in row.inside]
    chosen = {id(row) for row in (*said, *off, *through)}
    rows = [row for row in table.rows if id(row) in chosen]
    if not rows:
        return None
    ranks, nodes = _of(rows)
    by_choice = bool(off) and not said
    lines = dict.fromkeys(remark for row in said for remark in row.remarks)
    lines |= (
        {"NCCL says of an error that ACS is often its cause": None} if any(row.acs for row in said) else {}
    )
    what = (
        "P2P between GPUs is off: NCCL_P2P_DISABLE is set"
        if by_choice
        else "GPUs of a node do not reach each other directly (P2P)"
        if said
        else "some GPUs of a node go through its memory (SHM), others directly (P2P)"
    )
    return Finding(
        "nccl-p2p",
        what,
        ranks=ranks,
        nodes=nodes,
        evidence=(*lines, *_told(table.groups("inside"))[:_MANY], *_set(off, "NCCL_P2P_DISABLE")),
        certainty="sure" if said or by_choice else "unsure",
        severity="warning" if said else "info",
        steps=(
            Step("nvidia-smi topo -p2p r; nvidia-smi topo -m", "which pairs, and what is between them?"),
            Step("sudo lspci -vvv | grep -i acsctl", "SrcValid+ is ACS: off in the BIOS, or iommu=pt"),
        )[: 1 if by_choice else 2],
    )


def _gdr(table: Table) -> Finding | None:
    """The network card goes through the node's memory."""
    rows = [row for row in table.rows if row.gdr in ("off", "mixed") and row.network != "Socket"]
    if not rows or not table.spans:
        return None
    ranks, nodes = _of(rows)
    cards = dict.fromkeys(name for row in rows for name in row.gdr_off)
    told = tuple(_set(rows, "NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ", "NCCL_IB_CUDA_SUPPORT"))
    return Finding(
        "nccl-gdr",
        "GPUDirect RDMA is off"
        + (" on some ways" if all(row.gdr == "mixed" for row in rows) else "")
        + ": data between nodes goes through memory",
        ranks=ranks,
        nodes=nodes,
        evidence=(
            *_told(table.groups("gdr"))[:_MANY],
            *((f"NCCL says so of {', '.join(list(cards)[:8])}",) if cards else ()),
            *told,
        ),
        certainty="sure",
        severity="warning",
        steps=(
            Step(
                "lsmod | grep -E 'nvidia_peermem|nv_peer_mem|gdrdrv'", "load it: sudo modprobe nvidia_peermem"
            ),
            Step("nvidia-smi topo -m", "is the card near the GPU? PHB and SYS are far"),
        ),
    )


RULES = (
    Rule("nccl-versions", ("table",), _versions, "nccl/src/init.cc: Mismatched NCCL version"),
    Rule("nccl-bridge", ("table",), _bridge, "nccl/src/misc/socket.cc: ncclFindInterfaces"),
    Rule("nccl-interface", ("table",), _interface, "nccl/src/bootstrap.cc"),
    Rule("nccl-tcp", ("table",), _tcp, "nccl/src/plugin/net.cc"),
    Rule("nccl-p2p", ("table",), _p2p, "nccl/src/graph/paths.cc: ncclTopoCheckP2p"),
    Rule("nccl-gdr", ("table",), _gdr, "nccl/src/graph/paths.cc: ncclTopoCheckGdr"),
)
