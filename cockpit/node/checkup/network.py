"""The network as a node sees it: interfaces, names of its peers, who holds a port, whom it can reach."""

from __future__ import annotations

import glob
import os
import re
import socket
import struct
import time
from typing import Any, Dict, List, Tuple

from cockpit.base import verbs
from cockpit.node import facts, procfs
from cockpit.node.calls import Call, NodeError
from cockpit.node.checkup.deadline import Silent, within

_SIOCGIFFLAGS, _SIOCGIFMTU = 0x8913, 0x8921
_UP, _LOOPBACK = 0x1, 0x8
_VIRTUAL = re.compile(
    r"(?:docker|br-|veth|virbr|vnet|cni|cali|flannel|kube|lxc|lxd|tun|tap|dummy|podman|nerdctl)"
)
"""Interfaces of containers and virtual machines differ from node to node, and nobody trains over them."""

_AT_ONCE = 16
_LOOK_S = 0.1


def network(asked: verbs.Checkup, payload: bytes) -> Dict[str, Any]:
    """Interfaces that are up, and ports of RDMA devices."""
    interfaces = []
    # Not from /sys: in a container that may show another network's.
    for _, name in sorted(socket.if_nameindex()):
        flags = _flags(name)
        if flags & _UP and not flags & _LOOPBACK and not _VIRTUAL.match(name):
            speed = procfs.number("/sys/class/net/%s/speed" % name)
            interfaces.append(
                {
                    "name": name,
                    "mtu": _mtu(name),
                    "mbit": speed if speed and speed > 0 else None,
                    "addresses": addresses_of(name)[:16],
                }
            )
    ports = []
    for folder in sorted(glob.glob("/sys/class/infiniband/*/ports/*")):
        device, _, number = folder.rpartition("/ports/")
        state = _text(folder + "/state").rpartition(": ")[2]
        name = "%s/%s" % (os.path.basename(device), number)
        ports.append({"name": name, "state": state, "rate": _text(folder + "/rate")})
    return {"interfaces": interfaces[:256], "rdma": ports[:256]}


def names(asked: verbs.Checkup, payload: bytes) -> Tuple[Dict[str, List[str]], Silent]:
    """The addresses of each name that is asked for; none for one that is not known."""
    return within(asked.limit_s, asked.names, facts.resolved, threads=_AT_ONCE)


def port(asked: verbs.Checkup, payload: bytes) -> List[Dict[str, Any]]:
    """Who listens on the port that is asked for: nobody, or one."""
    if not asked.port:
        return []
    try:
        facts.free_port(asked.port)
        return []
    except PermissionError:
        return []  # a port for root alone: not held
    except OSError:
        holder = facts.holder(asked.port)
    if holder is None:
        return [{"port": asked.port}]
    return [{"port": asked.port, "pid": holder.pid, "name": holder.name}]


def meet(call: Call) -> Dict[str, Any]:
    """Listen on ``port``, or on any; send it as the one item; take connections until cancelled.

    :raises NodeError: it is held
    """
    asked = call.asked(verbs.Meet)
    with _listener(asked.port) as listener:
        call.item({"port": listener.getsockname()[1]})
        listener.settimeout(_LOOK_S)
        end = time.monotonic() + asked.limit_s
        while time.monotonic() < end and call.pause(0):
            try:
                listener.accept()[0].close()
            except socket.timeout:
                continue
    return {}


def reach(call: Call) -> Dict[str, Any]:
    """Connect to a port: ``error``, or this end's address (``source``) and its ``interface``."""
    asked = call.asked(verbs.Reach)
    answers, failed = within(asked.limit_s, ["connection"], lambda _: _connected(asked), threads=1)
    if failed:
        return {"error": failed["connection"]}
    source = answers["connection"]
    interfaces = [name for _, name in socket.if_nameindex() if source in addresses_of(name)]
    return {"source": source, "interface": next(iter(interfaces), "")[:100]}


def _connected(asked: verbs.Reach) -> str:
    with socket.create_connection((asked.address, asked.port), asked.limit_s) as connection:
        return str(connection.getsockname()[0])


def _listener(number: int) -> socket.socket:
    # Both families where there are two; a node's address may be of either.
    family = socket.AF_INET6 if socket.has_ipv6 and os.path.exists("/proc/net/if_inet6") else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("", number))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise NodeError("port", "port %d: %s" % (number, error.strerror)) from None
    return listener


def addresses_of(name: str) -> List[str]:
    """The addresses of an interface: that of IPv4, then those of IPv6 that lead beyond the link."""
    found = list(filter(None, [facts.ipv4_of(name)]))
    for line in procfs.contents("/proc/net/if_inet6").decode("ascii", "replace").splitlines():
        digits, _, _, scope, _, device = line.split()
        if device == name and scope == "00":
            found.append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)))
    return found


def _flags(name: str) -> int:
    return int(struct.unpack("H", (facts.asked_of(name, _SIOCGIFFLAGS) or bytes(2))[:2])[0])


def _mtu(name: str) -> int:
    return max(0, int(struct.unpack("i", (facts.asked_of(name, _SIOCGIFMTU) or bytes(4))[:4])[0]))


def _text(path: str) -> str:
    return procfs.contents(path).decode("utf-8", "replace").strip()[:255]
