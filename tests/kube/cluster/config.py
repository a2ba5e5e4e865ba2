"""What each program of the cluster is told: addresses, files, command lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CONTROL = "10.99.0.254"
"""Where the API server listens, in the cluster's own network."""
SERVER = f"https://{CONTROL}:6443"
IMAGE = "docker.io/lab/empty:1"
"""The one image there is. It holds no program but the pause of a sandbox: pods mount the node's /usr."""
USERS = {"admin": "system:masters", "dev": "lab:dev", "viewer": "lab:viewer"}
"""Users, each a context of the kubeconfig, with a group: one may do all, one may exec, one only look."""
CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids")
"""Control groups (v1) that a node gets its own root of."""
SYSCTLS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}
"""Settings of the whole machine that kubelet writes where they differ: it gets files instead."""

# A root without CAP_SYS_RESOURCE, as in many containers, may not lower the score of a sandbox.
_CONTAINERD = """version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni}"
    conf_dir = "{conf}"
"""


def address(node: int) -> str:
    """Of a node in the cluster's network, counted from 1."""
    return f"10.99.0.{node}"


def pods(node: int) -> str:
    """The network of a node's pods."""
    return f"10.98.{node}.0/24"


def tokens(folder: Path) -> dict[str, str]:
    """The secret of each user."""
    rows = [line.split(",") for line in (folder / "tokens.csv").read_text().splitlines()]
    return {user: token for token, user, *_ in rows}


def kubeconfig(folder: Path) -> str:
    """For kubectl and for the cluster's own programs; ``admin`` is the current context."""
    made: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "admin",
        "clusters": [
            {
                "name": "lab",
                "cluster": {"server": SERVER, "certificate-authority": str(folder / "pki/apiserver.crt")},
            }
        ],
        "users": [{"name": user, "user": {"token": token}} for user, token in tokens(folder).items()],
        "contexts": [
            {"name": user, "context": {"cluster": "lab", "user": user, "namespace": "default"}}
            for user in USERS
        ],
    }
    return json.dumps(made, indent=1)


def control_plane(folder: Path, programs: Path) -> dict[str, list[str]]:
    """Command lines of the control plane, in the order in which they start."""
    config, key = f"--kubeconfig={folder}/kubeconfig", folder / "pki/serviceaccounts"
    client = "http://127.0.0.1:2379"
    return {
        "etcd": [
            str(programs.parent / "root/usr/bin/etcd"),
            "--data-dir=/run/etcd",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            "--listen-peer-urls=http://127.0.0.1:2380",
        ],
        "kube-apiserver": [
            str(programs / "kube-apiserver"),
            f"--etcd-servers={client}",
            f"--bind-address={CONTROL}",
            f"--advertise-address={CONTROL}",
            f"--cert-dir={folder}/pki",
            f"--token-auth-file={folder}/tokens.csv",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.97.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            # pods may come before the controller that makes the accounts, and need none
            "--disable-admission-plugins=ServiceAccount",
            # by its name no node is found: there is no DNS
            "--kubelet-preferred-address-types=InternalIP",
        ],
        "kube-controller-manager": [
            str(programs / "kube-controller-manager"),
            config,
            "--leader-elect=false",
            f"--service-account-private-key-file={key}",
        ],
        "kube-scheduler": [str(programs / "kube-scheduler"), config, "--leader-elect=false"],
    }


def node_files(folder: Path, node: int, cache: Path) -> dict[str, str]:
    """What a node's programs read: name below the node's folder → text."""
    cni = {
        "cniVersion": "0.4.0",
        "name": "lab",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": True,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": pods(node)}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }
        ],
    }
    kubelet = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "resolvConf": "",
        "containerLogMaxSize": "256Mi",
        "evictionHard": {"memory.available": "1Mi"},
        "imageGCHighThresholdPercent": 100,
        # the quota of a CPU would make what is measured a matter of the other nodes, which share the CPUs
        "cpuCFSQuota": False,
    }
    conf = folder / f"node{node}/cni"
    containerd = _CONTAINERD.format(image=IMAGE, cni=cache / "root/usr/lib/cni", conf=conf)
    return {
        "cni/10-lab.conflist": json.dumps(cni),
        "kubelet.json": json.dumps(kubelet),
        "containerd.toml": containerd,
    }


def node_programs(folder: Path, node: int, cache: Path) -> dict[str, list[str]]:
    """Command lines of a node, in the order in which they start."""
    home = folder / f"node{node}"
    return {
        "containerd": [str(cache / "root/usr/bin/containerd"), "--config", str(home / "containerd.toml")],
        "kubelet": [
            str(cache / "bin/kubelet"),
            f"--config={home}/kubelet.json",
            f"--kubeconfig={folder}/kubeconfig",
            "--container-runtime=remote",
            "--container-runtime-endpoint=unix:///run/containerd/containerd.sock",
            f"--hostname-override=node{node}",
            f"--node-ip={address(node)}",
            "--root-dir=/var/lib/kubelet",
            "--cert-dir=/var/lib/kubelet/pki",
            # its default is a folder below /usr, which it makes
            "--volume-plugin-dir=/var/lib/kubelet/plugins",
        ],
    }
