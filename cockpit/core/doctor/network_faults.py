"""What keeps a node from being reached, by us or by the other nodes: links, addresses, names."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator

from cockpit.base.shell import quote
from cockpit.core.doctor.fault_rules import Fault, FaultRules
from cockpit.core.doctor.node_checks import Look, Looks, clean
from cockpit.core.finding import Step
from cockpit.core.ranks import nodes_text, set_words

LONG = 400
"""Characters of an error's sentence."""

FAULTS = FaultRules()


@FAULTS.rule("unreachable", source="failure catalogue P02, P03, L03 to L11", severity="error", apart=True)
def _unreachable(looks: Looks) -> Iterator[Fault]:
    """No link: ssh, its keys, the agent's python."""
    for node, look in looks.nodes.items():
        if not look.machine:
            yield from _errors(node, look)


@FAULTS.rule("refused", source="DeepSpeedExamples#889", severity="error", apart=True)
def _refused(looks: Looks) -> Iterator[Fault]:
    """Facts that a node refused: no such folder, no such python, a setup that fails."""
    for node, look in looks.answered.items():
        yield from _errors(node, look)


def _errors(node: str, look: Look) -> Iterator[Fault]:
    for error in look.errors:
        step = Step.hinted(error.hint) if error.hint else Step("--timeout 60", "if it is only slow")
        place = f"{error.where}: " if error.where not in ("", node) else ""  # a jump host
        what = clean(f"{place}{error.what}", LONG)
        yield Fault(node, what, _NOT_HERE, about=error.about, steps=(step,))


_NOT_HERE = ("ssh-copy-id", ""), ("PDSH", ""), ("pdsh ", "")
"""What the hint of a failed login has with its real names, and what cockpit does not use."""


@FAULTS.rule("unreached", severity="error")
def _unreached(looks: Looks) -> Iterator[Fault]:
    """A TCP connection to the first node cannot be made: ranks could not meet."""
    first = next(iter(looks.nodes))
    for node, look in looks.answered.items():
        if look.reached is not None and look.reached.error:
            there = (looks.address, *(look.condition.names or {}).get(looks.address, ()))
            address = next(filter(_is_address, there), looks.address)
            what = f"cannot connect to {first} at {clean(address)}: {clean(look.reached.error)}"
            route, name = (address, "") if _is_address(address) else ("", quote(address))
            values = ("MASTER_IP", route), ("MASTER_NAME", name)
            yield Fault(node, what, values, node)


@FAULTS.rule("no_interface", severity="error")
def _no_interface(looks: Looks) -> Iterator[Fault]:
    """An interface was chosen by name that a node does not have."""
    chosen = {name: value for name, value in looks.env.items() if name.endswith("_SOCKET_IFNAME") and value}
    for node, look in looks.answered.items():
        network = look.condition.network
        names = [each.name for each in network.interfaces] if network else []
        for variable, value in chosen.items() if network else ():
            if any(_matches(value, name) for name in names):
                continue
            if value[0] != "^" and _matches(value, LOOPBACK):
                if looks.machines > 1:
                    what = f"{variable}={value}: that interface leads to no other node"
                    yield Fault(node, what, about=LOOPBACK)
                continue
            what = f"{variable}={value} matches no interface ({', '.join(map(clean, names))})"
            yield Fault(node, what, about=variable.partition("_")[0])


LOOPBACK = "lo"
"""Nodes do not list it: it leads nowhere else."""


def _matches(chosen: str, name: str) -> bool:
    """NCCL's rule: a list of prefixes; ``=`` in front: of names; ``^``: of what not to use."""
    sign, listed = (chosen[0], chosen[1:]) if chosen[0] in "^=" else ("", chosen)
    words = [word.partition(":")[0] for word in listed.split(",") if word]
    if sign == "^":
        return not any(name.startswith(word) for word in words)
    return name in words if sign == "=" else any(name.startswith(word) for word in words)


@FAULTS.rule("not_tried", Step("--timeout 60", "wait longer for the nodes ahead of them, or leave those out"))
def _not_tried(looks: Looks) -> Iterator[Fault]:
    """Nothing is known of them: others were waited for."""
    for node, look in looks.nodes.items():
        if look.untried:
            yield Fault(node, "not tried: the connections ahead of them did not finish")


@FAULTS.rule("name_unknown")
def _name_unknown(looks: Looks) -> Iterator[Fault]:
    """Names that some nodes know and others do not; one that no node knows is an alias of ssh's here."""
    known = {node: look.condition.names for node, look in looks.answered.items() if look.condition.names}
    aliases = {
        peer
        for names in known.values()
        for peer in names
        if not any(each.get(peer) for each in known.values())
    }
    for node, names in known.items():
        lacking = [peer for peer, addresses in names.items() if not addresses and peer not in aliases]
        if lacking:
            what = f"cannot resolve {nodes_text(lacking)}"
            yield Fault(node, what, (("NODE", quote(clean(lacking[0]))),), node)


@FAULTS.rule("name_loopback")
def _name_loopback(looks: Looks) -> Iterator[Fault]:
    """A name that leads a node back to itself: another node's, or its own if it has another one here."""
    for node, look in looks.answered.items() if looks.machines > 1 else ():
        for name, addresses in (look.condition.names or {}).items():
            meant = looks.nodes.get(name)
            elsewhere = meant is None or meant.machine != look.machine
            if addresses and elsewhere and all(map(_is_loopback, addresses)):
                what = f"resolves {clean(name)} to {addresses[0]}"
                yield Fault(node, what, (("$(hostname)", quote(clean(name))),), node)


@FAULTS.rule("same_machine", source="names of one node in a hostfile: short and full, host and address")
def _same_machine(looks: Looks) -> Iterator[Fault]:
    """Several names of one machine, before a launch takes it for several."""
    names: dict[str, list[str]] = {}
    for node, look in looks.answered.items():
        # Names are asked for by a doctor only, not before each run.
        if look.condition.names is not None and not (looks.run or looks.pids):
            names.setdefault(look.machine, []).append(node)
    for several in names.values():
        more = quote(",".join(set_words(nodes_text(several[1:])))) if several[1:] else ""
        step = Step(f"--exclude {more}", "their ranks would share its GPUs, cores and memory")
        for node in several if more else ():
            yield Fault(node, f"{nodes_text(several)} are the same machine", steps=(step,))


@FAULTS.rule("name_differs")
def _name_differs(looks: Looks) -> Iterator[Fault]:
    """A name that leads some nodes elsewhere: a hosts file that is out of date."""
    owner = {address: node for node, look in looks.answered.items() for address in _addresses(look)}
    for name in dict.fromkeys(
        name for look in looks.answered.values() for name in look.condition.names or {}
    ):
        meant = looks.nodes.get(name)
        known = {node: found for node in looks.answered if (found := _elsewhere(looks, node, name))}
        usual, many = max(Counter(known.values()).items(), key=lambda each: each[1], default=(NOWHERE, 0))
        agreed = many > 1 and many > len(known) / 2
        for node, there in known.items():
            first, right = min(there), _addresses(meant) if meant else NOWHERE
            if there & right:
                continue
            if agreed and not there & usual:
                what = f"resolves {clean(name)} to {first}, others to {min(usual)}"
            elif right and first in owner:
                what = f"resolves {clean(name)} to {first}, which is {owner[first]}"
            else:
                continue
            yield Fault(node, what, (("NODE", quote(clean(name))),), node)


NOWHERE: frozenset[str] = frozenset()
"""No address."""


def _elsewhere(looks: Looks, node: str, name: str) -> frozenset[str]:
    """Where a node finds another machine's name, loopback apart: that is another finding."""
    meant = looks.nodes.get(name)
    if meant is not None and meant.machine == looks.nodes[node].machine:
        return NOWHERE
    found = (looks.nodes[node].condition.names or {}).get(name, ())
    return frozenset(address for address in found if not _is_loopback(address))


def _addresses(look: Look) -> frozenset[str]:
    network = look.condition.network
    return (
        frozenset(address for each in network.interfaces for address in each.addresses)
        if network
        else NOWHERE
    )


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True
