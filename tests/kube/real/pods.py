"""What the tests ask the cluster for, and a cockpit of a user of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.kube.cluster import cluster
from tests.kube.cluster.config import IMAGE
from tests.lab.lab import trees
from tests.waiting import PATIENCE_S, until

ENV = {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
SCRATCH = "/scratch"
LABEL = "lab"
"""The label that all pods of one object have, with its name."""


def _mounts() -> dict[str, list[dict[str, Any]]]:
    """This machine's programs, this Python and this project, at their own paths: the image has none."""
    found = [tree for tree in trees() if not any(tree != o and tree.startswith(o + "/") for o in trees())]
    names = {f"tree-{number}": tree for number, tree in enumerate(found)}
    return {
        "volumes": [{"name": name, "hostPath": {"path": tree}} for name, tree in names.items()],
        "volumeMounts": [{"name": name, "mountPath": tree, "readOnly": True} for name, tree in names.items()],
    }


def template(
    name: str,
    command: Sequence[str],
    env: Mapping[str, str] | None = None,
    *,
    bare: bool = False,
    spread: bool = True,
    memory: str = "",
    scratch: str = "",
    **spec: Any,
) -> dict[str, Any]:
    """Metadata and spec of a pod.

    :param bare: without shell and Python, as an image of one static program is
    :param spread: no two on one node
    :param memory: its limit, as Kubernetes writes it
    :param scratch: the same of an ``emptyDir`` at :data:`SCRATCH`; empty: there is none
    :param spec: more of the spec
    """
    mounts = {"volumes": [], "volumeMounts": []} if bare else _mounts()
    if scratch:
        mounts["volumes"].append({"name": "scratch", "emptyDir": {"sizeLimit": scratch}})
        mounts["volumeMounts"].append({"name": "scratch", "mountPath": SCRATCH})
    container: dict[str, Any] = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": list(command),
        "env": [{"name": key, "value": value} for key, value in {**ENV, **(env or {})}.items()],
        "volumeMounts": mounts["volumeMounts"],
    }
    container["env"].append({"name": "HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}})
    if memory:
        container["resources"] = {"limits": {"memory": memory}}
    if spread:
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {LABEL: name}}}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return {
        "metadata": {"labels": {LABEL: name}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "volumes": mounts["volumes"],
            "restartPolicy": "Never",
            **spec,
        },
    }


def pod(name: str, command: Sequence[str], **more: Any) -> dict[str, Any]:
    """A pod of its own."""
    made = template(name, command, **more)
    made["metadata"]["name"] = name
    return {"apiVersion": "v1", "kind": "Pod", **made}


def job(name: str, command: Sequence[str], pods: int = 3, **more: Any) -> dict[str, Any]:
    """A Job of several pods side by side, each tried once."""
    spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {**spec, "template": template(name, command, **more)},
    }


def stateful(name: str, pods: int = 3, **more: Any) -> dict[str, Any]:
    """Pods that idle, as those do in which people train by hand."""
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": pods,
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {LABEL: name}},
            "template": template(name, ["sleep", "infinity"], restartPolicy="Always", **more),
        },
    }


def asked(*words: str, stdin: str | None = None) -> str:
    """What kubectl prints, for one who may do all.

    :raises AssertionError: it failed
    """
    done = cluster.kubectl(*words, stdin=stdin)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def shown(name: str) -> list[dict[str, Any]]:
    """The pods of an object, as the API server shows them, in order of their names."""
    items: list[dict[str, Any]] = json.loads(asked("get", "pods", "-l", f"{LABEL}={name}", "-o", "json"))[
        "items"
    ]
    return sorted(items, key=lambda item: str(item["metadata"]["name"]))


def names(name: str) -> list[str]:
    """Those of the pods of an object."""
    return [str(item["metadata"]["name"]) for item in shown(name)]


class Object:
    """Something in the cluster, from :meth:`create` to :meth:`delete`."""

    def __init__(self, made: dict[str, Any]) -> None:
        self.made = made
        self.kind, self.name = made["kind"].lower(), made["metadata"]["name"]
        spec = made["spec"]
        self.size = int(spec.get("replicas", spec.get("parallelism", 1)))

    @property
    def word(self) -> str:
        """As ``--k8s`` takes it."""
        return f"{self.kind}/{self.name}" if self.kind != "pod" else f"{LABEL}={self.name}"

    def create(self) -> None:
        asked("create", "-f", "-", stdin=json.dumps(self.made))

    def running(self) -> list[str]:
        """The names of all its pods, once they run."""

        def all_run() -> list[str]:
            pods = shown(self.name)
            names = [item["metadata"]["name"] for item in pods if item["status"].get("phase") == "Running"]
            return names if len(names) == self.size else []

        return until(all_run, f"the pods of {self.word}")

    def delete(self) -> None:
        """Away with it and its pods, whatever they do."""
        force = ("--grace-period=0", "--force", "--ignore-not-found")
        cluster.kubectl("delete", self.kind, self.name, *force)
        cluster.kubectl("delete", "pods", "-l", f"{LABEL}={self.name}", *force)
        until(lambda: not shown(self.name), f"the end of {self.word}")


def node_of(pod_name: str) -> str:
    """The node that a pod is on."""
    return asked("get", "pod", pod_name, "-o", "jsonpath={.spec.nodeName}")


def read(pod_name: str, path: str) -> bytes:
    """A file in a pod."""
    done = subprocess.run(
        [str(cluster.FOLDER / "bin/kubectl"), "exec", pod_name, "--", "cat", path],
        env=cluster.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class Cockpit:
    """The ``cockpit`` of a user of the cluster, on this machine, with its state in a folder of the test.

    :param user: a context of the kubeconfig
    :param kubectl: the name of the one that it finds as ``kubectl``
    """

    def __init__(self, state: Path, user: str = "dev", kubectl: str = "kubectl") -> None:
        self.state = state
        self.env = {**cluster.environment(), **ENV, "XDG_STATE_HOME": str(state)}
        self.user = user
        if kubectl != "kubectl":
            found = state / "bin"
            found.mkdir(parents=True)
            (found / "kubectl").symlink_to(cluster.FOLDER / "bin" / kubectl)
            self.env["PATH"] = f"{found}:{self.env['PATH']}"

    def words(self, *words: str) -> list[str]:
        """Where its pods are a run knows by itself, once it is known."""
        context = ["--context", self.user] if {"--k8s", "-w"} & set(words) else []
        return [sys.executable, "-m", "cockpit", *words, *context]

    def run(self, *words: str, timeout: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
        """A verb to its end."""
        return subprocess.run(
            self.words(*words),
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def start(self, out: Path, *words: str, program: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """A verb in the background; its output goes to a file."""
        last = ["--", *program] if program else []
        with open(out, "wb") as file:
            return subprocess.Popen(
                [*self.words(*words), *last],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def folder(self, run: str) -> Path:
        """Of a run, here."""
        return self.state / "cockpit/runs" / run

    def spooled(self, run: str) -> list[bytes]:
        """The logs here that are not empty, in order of their content."""
        files = (self.folder(run) / "spool").rglob("*.log")
        return sorted(data for path in files if (data := path.read_bytes()))


def events(out: Path) -> list[dict[str, Any]]:
    """What ``--headless --json`` has printed so far."""
    lines = out.read_text(errors="replace").rpartition("\n")[0].splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def children(pid: int, name: str) -> list[int]:
    """Processes of that name below a process."""
    found: list[int] = []
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(path.parent.name))
    todo = [pid]
    while todo:
        for child in parents.get(todo.pop(), []):
            todo.append(child)
            try:
                if Path(f"/proc/{child}/comm").read_text().strip() == name:
                    found.append(child)
            except OSError:
                continue
    return found


def kill(pids: Sequence[int]) -> None:
    for each in pids:
        os.kill(each, signal.SIGKILL)
