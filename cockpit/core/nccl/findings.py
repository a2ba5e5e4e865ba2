"""What is wrong by NCCL's own words: the way between nodes, between GPUs, versions.

What each means and what to type are rows of the table of rules. By words of a log nothing is sure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from cockpit.core.finding import Finding, Rule, findings
from cockpit.core.masks import mask_of
from cockpit.core.nccl.table import COLUMNS, Group, Row, Table
from cockpit.core.ranks import nodes_text
from cockpit.core.rules.explanation import recognised, translated

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


def notable(table: Table, lang: str) -> tuple[Finding, ...]:
    """What is to be said of a run unasked, in a language; it need not be why anything fails."""
    return tuple(translated(one, lang) for one in found(table) if one.severity != "info")


def _meant(found: Finding, about: str = "", command: str = "") -> Finding:
    """With what its row says.

    :param about: of several things that it may be, which
    :param command: in place of that of the row's first step; empty: nothing more is known
    """
    found = recognised(found, about)
    first, *rest = found.steps
    return replace(found, steps=(replace(first, command=command or first.command), *rest))


def _on(nodes: Sequence[str]) -> str:
    return f" on {nodes_text(nodes)}" if nodes else ""


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
    name = next(outer, "")
    # Beside one that leads there, NCCL opens connections over both.
    only = any(
        _INNER.match(row.bootstrap) or (_used(row) and all(map(_INNER.match, _used(row)))) for row in rows
    )
    found = Finding(
        "nccl-bridge",
        f"NCCL uses {', '.join(names)}{_on(nodes)}",
        ranks=ranks,
        nodes=nodes,
        evidence=(
            *[f"bootstrap: {text}" for text in _told(table.groups("bootstrap"))][:_MANY],
            *[f"NET/Socket: {text}" for text in _told(table.groups("interfaces"))][:_MANY],
            *_set(rows, "NCCL_SOCKET_IFNAME"),
        ),
        certainty="likely",
        severity="error" if only else "warning",
    )
    return _meant(found, "lo" if set(names) == {"lo"} else "", _take(name))


def _take(interface: str) -> str:
    return f"--env NCCL_SOCKET_IFNAME={interface}" if interface else ""


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
    if devices or others:
        rows = devices or slow
        ranks, nodes = _of(rows)
        has = dict.fromkeys(one for row in devices for one in (*row.devices, row.provider) if one)
        why = (
            f"though there is {', '.join(list(has)[:4])}"
            if has
            else "while others use " + ", ".join(dict.fromkeys(row.network for row in others))
        )
        found = Finding(
            "nccl-tcp",
            f"NCCL uses TCP between nodes, {why}",
            ranks=ranks,
            nodes=nodes,
            evidence=(*_told(table.groups("network"))[:_MANY], *told),
            certainty="likely",
            severity="warning",
        )
        return _meant(found)
    none = [row for row in slow if row.no_ib or row.settings.get("NCCL_IB_DISABLE", "0") != "0"]
    if not none:
        return None
    ranks, nodes = _of(none)
    off = bool(told) and any(text.startswith("NCCL_IB_DISABLE") and not text.endswith("=0") for text in told)
    found = Finding(
        "nccl-tcp",
        "NCCL uses TCP between nodes: "
        + ("NCCL_IB_DISABLE is set" if off else "it finds no InfiniBand, RoCE or EFA device"),
        ranks=ranks,
        nodes=nodes,
        evidence=told,
        certainty="likely",
        severity="info",
    )
    return _meant(found, "" if off else "none")


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
    found = Finding(
        "nccl-interface",
        f"{Group('', tuple(apart)).who} use a different interface from the others"
        if len(apart) > 1
        else f"{Group('', tuple(apart)).who} uses a different interface from the others",
        ranks=ranks,
        nodes=nodes,
        evidence=tuple(evidence),
        certainty="likely",
        severity="warning",
    )
    return _meant(found, command=_take(usual.split(", ")[0]))


def _versions(table: Table) -> Finding | None:
    """NCCL of different versions cannot make a communicator, or behaves differently."""
    groups = table.groups("version")
    kits = table.groups("toolkit")
    if len(groups) < 2 and len(kits) < 2:
        return None
    told = groups if len(groups) > 1 else kits
    ranks, nodes = _of(row for group in told[1:] for row in group.rows)
    what = "versions of NCCL" if len(groups) > 1 else "builds of NCCL"
    found = Finding(
        "nccl-versions",
        f"ranks have different {what}: {', '.join(group.value for group in told)}",
        ranks=ranks,
        nodes=nodes,
        evidence=_told(told),
        certainty="likely",
        severity="error" if len(groups) > 1 else "warning",
    )
    return _meant(found)


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
    lines |= {"an NCCL error suggests that ACS is enabled": None} if any(row.acs for row in said) else {}
    what = (
        "P2P between GPUs is off: NCCL_P2P_DISABLE is set"
        if by_choice
        else "GPUs of a node do not reach each other directly (P2P)"
        if said
        else "some GPUs of a node go through its memory (SHM), others directly (P2P)"
    )
    found = Finding(
        "nccl-p2p",
        what,
        ranks=ranks,
        nodes=nodes,
        evidence=(*lines, *_told(table.groups("inside"))[:_MANY], *_set(off, "NCCL_P2P_DISABLE")),
        certainty="likely" if said or by_choice else "unsure",
        severity="warning" if said else "info",
    )
    return _meant(found)


def _gdr(table: Table) -> Finding | None:
    """The network card goes through the node's memory."""
    rows = [row for row in table.rows if row.gdr in ("off", "mixed") and row.network != "Socket"]
    if not rows or not table.spans:
        return None
    ranks, nodes = _of(rows)
    cards = dict.fromkeys(name for row in rows for name in row.gdr_off)
    told = tuple(_set(rows, "NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ", "NCCL_IB_CUDA_SUPPORT"))
    some = " for some paths" if all(row.gdr == "mixed" for row in rows) else ""
    found = Finding(
        "nccl-gdr",
        f"GPUDirect RDMA is off{some}{_on(nodes)}",
        ranks=ranks,
        nodes=nodes,
        evidence=(
            *_told(table.groups("gdr"))[:_MANY],
            *((f"reported by NCCL for {', '.join(list(cards)[:8])}",) if cards else ()),
            *told,
        ),
        certainty="likely",
        severity="warning",
    )
    return _meant(found)


RULES = (
    Rule("nccl-versions", ("table",), _versions),
    Rule("nccl-bridge", ("table",), _bridge),
    Rule("nccl-interface", ("table",), _interface),
    Rule("nccl-tcp", ("table",), _tcp),
    Rule("nccl-p2p", ("table",), _p2p),
    Rule("nccl-gdr", ("table",), _gdr),
)
