"""What lines mean that NCCL, gloo and torch print when ranks meet: a wording, its meaning, what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Wording:
    """One wording.

    :param pattern: found in the line, in any case
    :param step: what to type
    :param source: where it is known from
    """

    pattern: str
    means: str
    step: str
    source: str


WORDINGS = (
    Wording(
        r"no socket interface found|Bootstrap : no socket interface",
        "NCCL_SOCKET_IFNAME matches no interface of this node; eth matches eth0, =eth0 is exact, "
        "^docker excludes",
        "ip -br addr",
        "nccl#210, nccl#286, nccl-tests#9",
    ),
    Wording(
        r"Unable to find (?:address for|interface)",
        "GLOO_SOCKET_IFNAME names no interface of this node, or one without an address: --iface NAME",
        "ip -br addr",
        "gloo/transport/tcp/device.cc",
    ),
    Wording(
        r"Address family not supported by protocol",
        "one side uses IPv4, the other IPv6; or take an interface that has both on all nodes",
        "--env NCCL_SOCKET_FAMILY=AF_INET",
        "nccl#286",
    ),
    Wording(
        r"(?:\[|\b)(?:127\.\d+\.\d+\.\d+|::1)\b.{0,200}refused|refused.{0,200}(?:\[|\b)(?:127\.\d+\.\d+\.\d+|::1)\b",
        "another rank gave a loopback address, as its own name resolves to one: correct /etc/hosts "
        "there, or --iface NAME",
        "getent hosts $(hostname)",
        "gloo/transport/tcp/device.cc",
    ),
    Wording(
        r"No route to host|Network is unreachable",
        "the address that another rank gave cannot be reached, often a bridge's or the wrong "
        "interface's: --iface NAME",
        "ip -br addr; ip route",
        "horovod#584, nccl#1105",
    ),
    Wording(
        r"Duplicate GPU detected",
        "two ranks use the same GPU; each needs its own: slots=N in the hostfile?",
        "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES",
        "nccl/src/init.cc",
    ),
    Wording(
        r"ibv_reg_mr\w{0,40} failed|ibv_create_cq.{0,200} failed.{0,200}Cannot allocate memory",
        "InfiniBand may not lock memory where ranks are started: memlock unlimited in "
        "/etc/security/limits.conf",
        "ulimit -l",
        "nccl-tests#206, ucx#8684",
    ),
    Wording(
        r"Got completion (?:from peer|with error).{0,200}(?:error 12|status=IBV_WC_RETRY_EXC_ERR|status=12)",
        "InfiniBand packets to a peer are lost, or its process has ended; RoCE: NCCL_IB_GID_INDEX, the "
        "same MTU",
        "ibstat; ibqueryerrors",
        "nccl/src/transport/net_ib",
    ),
    Wording(
        r"NET/IB : No device found",
        "NCCL sees no InfiniBand device and falls back to TCP, which is slower; in a container, is "
        "/dev/infiniband there?",
        "ibv_devinfo",
        "nccl/src/transport/net_ib",
    ),
    Wording(
        r"fi_getinfo|NET/OFI.{0,200}(?:Unable|fail|No eligible)|provider efa output empty",
        "libfabric finds no usable provider (EFA) here: is the device in this instance and container?",
        "fi_info -p efa",
        "aws-ofi-nccl",
    ),
    Wording(
        r"posix_fallocate failed.{0,200}No space left|failed to extend /dev/shm/nccl|"
        r"(?:Error while creating|shm_open).{0,200}/dev/shm/nccl",
        "/dev/shm is too small or full: docker run --shm-size=16g, or remove nccl-* of dead runs",
        "df -h /dev/shm; ls -l /dev/shm",
        "nccl#290, nccl#525",
    ),
    Wording(
        r"no CUDA-capable device|CUDA driver version is insufficient|CUDA failure|Cuda failure",
        "CUDA itself fails on that node",
        "nvidia-smi; python -c 'import torch; torch.zeros(1).cuda()'",
        "nccl/src/include/checks.h",
    ),
    Wording(
        r"Mismatched NCCL version|NCCL version mismatch|wrong type \d+ != \d+|mismatch.{0,200} NCCL version",
        "nodes have different versions of NCCL: install the same torch on every node",
        "python -m pip install torch==VERSION",
        "nccl#286",
    ),
    Wording(
        r"EADDRINUSE|Address already in use",
        "the rendezvous port is in use; without this option, a free one is found",
        "--master-port N",
        "pytorch#73320",
    ),
    Wording(
        r"Connection refused",
        "the node is up, but nothing listens: its rank has ended, or a firewall refuses",
        "sudo nft list ruleset; sudo iptables -L -n",
        "nccl#1105",
    ),
    Wording(
        r"Software caused connection abort|Connection reset by peer|Connection closed by (?:remote )?peer"
        r"|remote process exited or there was a network error",
        "the rank at the other end has ended, and this one is not the cause: what did the others say?",
        "--deep",
        "pytorch/ProcessGroupNCCL.cpp",
    ),
    Wording(
        r"connectFullMesh failed|no answer within|Timed out waiting|timed out after|wait timeout|[Tt]imeout",
        "packets to another rank are lost: a firewall, a bad link, or a wrong interface (--iface NAME)",
        "sudo nft list ruleset; ip route",
        "pytorch#79388",
    ),
)
"""The first that fits a line counts: what says more stands first."""

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
