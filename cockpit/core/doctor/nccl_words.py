"""What lines mean that NCCL, gloo and torch print when ranks meet: a wording, its meaning, what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Wording:
    """One wording.

    :param pattern: found in the line, in any case
    :param source: where it is known from
    """

    pattern: str
    means: str
    step: str
    source: str


WORDINGS = (
    Wording(
        r"no socket interface found|Bootstrap : no socket interface",
        "NCCL_SOCKET_IFNAME matches no interface of this node",
        "NCCL_SOCKET_IFNAME is a prefix (eth matches eth0), =eth0 is exact, ^docker excludes: ip -br addr",
        "nccl#210, nccl#286, nccl-tests#9",
    ),
    Wording(
        r"Unable to find (?:address for|interface)",
        "GLOO_SOCKET_IFNAME names no interface of this node, or one without an address",
        "--iface NAME: an interface that all nodes have: ip -br addr",
        "gloo/transport/tcp/device.cc",
    ),
    Wording(
        r"Address family not supported by protocol",
        "one side uses IPv4, the other IPv6",
        "NCCL_SOCKET_FAMILY=AF_INET, or an interface that has both on all nodes",
        "nccl#286",
    ),
    Wording(
        r"(?:\[|\b)(?:127\.\d+\.\d+\.\d+|::1)\b.*refused|refused.*(?:\[|\b)(?:127\.\d+\.\d+\.\d+|::1)\b",
        "another rank gave a loopback address, which leads back here: its own name resolves to that",
        "--iface NAME, or correct /etc/hosts there: getent hosts $(hostname)",
        "gloo/transport/tcp/device.cc",
    ),
    Wording(
        r"No route to host|Network is unreachable",
        "the address that another rank gave cannot be reached: often a bridge's or the wrong interface's",
        "--iface NAME; ip route get ADDRESS on both nodes",
        "horovod#584, nccl#1105",
    ),
    Wording(
        r"Duplicate GPU detected",
        "two ranks have the same GPU: each must have its own",
        "CUDA_VISIBLE_DEVICES, slots=N of the hostfile",
        "nccl/src/init.cc",
    ),
    Wording(
        r"ibv_reg_mr\w* failed|ibv_create_cq.* failed.*Cannot allocate memory",
        "InfiniBand may not lock memory in this session",
        "ulimit -l must be unlimited in the session that starts ranks: /etc/security/limits.conf",
        "nccl-tests#206, ucx#8684",
    ),
    Wording(
        r"Got completion (?:from peer|with error).*(?:error 12|status=IBV_WC_RETRY_EXC_ERR|status=12)",
        "InfiniBand packets to a peer are lost, or the peer's process has ended",
        "ibstat, ibqueryerrors; RoCE: NCCL_IB_GID_INDEX, the same MTU on both sides",
        "nccl/src/transport/net_ib",
    ),
    Wording(
        r"NET/IB : No device found",
        "NCCL sees no InfiniBand device and takes TCP: much slower if there should be one",
        "ibv_devinfo; in a container: are /dev/infiniband and libibverbs there?",
        "nccl/src/transport/net_ib",
    ),
    Wording(
        r"fi_getinfo|NET/OFI.*(?:Unable|fail|No eligible)|provider efa output empty",
        "libfabric finds no usable provider (EFA) here",
        "fi_info -p efa; is the device in this instance and container?",
        "aws-ofi-nccl",
    ),
    Wording(
        r"posix_fallocate failed.*No space left|failed to extend /dev/shm/nccl|"
        r"(?:Error while creating|shm_open).*/dev/shm/nccl",
        "/dev/shm is too small or full",
        "df /dev/shm; docker run --shm-size=16g; remove nccl-* of dead runs",
        "nccl#290, nccl#525",
    ),
    Wording(
        r"no CUDA-capable device|CUDA driver version is insufficient|CUDA failure|Cuda failure",
        "CUDA itself fails on that node",
        "nvidia-smi; python -c 'import torch; torch.zeros(1).cuda()'",
        "nccl/src/include/checks.h",
    ),
    Wording(
        r"Mismatched NCCL version|NCCL version mismatch|wrong type \d+ != \d+|mismatch.* NCCL version",
        "nodes have different versions of NCCL",
        "the same torch on every node: cockpit doctor says which differ",
        "nccl#286",
    ),
    Wording(
        r"EADDRINUSE|Address already in use",
        "the port for ranks to meet is held",
        "--master-port N, or leave it out",
        "pytorch#73320",
    ),
    Wording(
        r"Connection refused",
        "the node is there, but nothing listens: its rank has ended, or a firewall refuses",
        "what did the rank there say first? iptables -L -n, nft list ruleset",
        "nccl#1105",
    ),
    Wording(
        r"Software caused connection abort|Connection reset by peer|Connection closed by (?:remote )?peer"
        r"|remote process exited or there was a network error",
        "the rank at the other end has ended: it is not the cause",
        "see what the other ranks said",
        "pytorch/ProcessGroupNCCL.cpp",
    ),
    Wording(
        r"connectFullMesh failed|no answer within|Timed out waiting|timed out after|wait timeout|[Tt]imeout",
        "packets to another rank are lost: a firewall, a wrong interface, or a bad link",
        "--iface NAME; are all ports open between the nodes?",
        "pytorch#79388",
    ),
)
"""The first that fits a line counts: what says more stands first."""

_NCCL = re.compile(
    r"(?:NET/(?P<net>\w+) : Using(?: \[\d+\])?\s*|Bootstrap ?: Using )(?P<what>[\w.:/-]+)", re.IGNORECASE
)
_COMPILED = [(re.compile(wording.pattern, re.IGNORECASE), wording) for wording in WORDINGS]


def meanings(said: str) -> Iterator[tuple[str, Wording]]:
    """Lines that are known, with what they mean; each meaning once, with the first line that has it."""
    seen = set()
    for line in said.splitlines():
        for pattern, wording in _COMPILED:
            if pattern.search(line):
                if wording not in seen:
                    seen.add(wording)
                    yield line.strip(), wording
                break


def networks(said: str) -> list[str]:
    """What NCCL took, as its own lines (NCCL_DEBUG=INFO) say: ``IB mlx5_0:1/IB``."""
    found = [(match["net"] or "bootstrap", match["what"]) for match in _NCCL.finditer(said)]
    return list(dict.fromkeys(f"{net} {what}" for net, what in found))
