"""The cluster seen from outside: up, down, and what a test breaks."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.kube.cluster import config, image, keeper
from tests.lab import keeper as lab
from tests.lab.lab import Lab, trees

REPO = Path(__file__).resolve().parents[3]
FOLDER = Path(os.path.realpath("/var/tmp")) / "cockpit-k8s"
CACHE = Path(os.environ.get("COCKPIT_K8S_CACHE") or Path.home() / ".cache/cockpit-k8s")
NODES = 3
_RIGHTS = Path(__file__).with_name("rights.json")


class ClusterError(Exception):
    """The cluster did not come up, or is not there."""


def unavailable() -> str | None:
    """Why this machine cannot have the cluster, or None if it can."""
    missing = [kind for kind in config.CONTROLLERS if not (keeper.GROUPS / kind / "cgroup.procs").exists()]
    if missing:
        return f"the cluster needs control groups of version 1, and finds no {', '.join(missing)}"
    return Lab.unavailable()


def built() -> bool:
    """Whether the programs are in the cache."""
    return (CACHE / "built").exists()


def running() -> int | None:
    """The first process of the cluster that is up."""
    with contextlib.suppress(OSError, ValueError):
        pid, ticks = (FOLDER / "state").read_text().split()
        if lab.ticks(int(pid)) == int(ticks):
            return int(pid)
    return None


def until(what: str, true: Callable[[], bool], within_s: float = 180) -> None:
    """Wait for something that the cluster does by itself.

    :raises ClusterError: it did not, within a time that is far beyond what it takes
    """
    end = time.monotonic() + within_s
    while not true():
        if time.monotonic() > end:
            raise ClusterError(
                f"{what}: not within {within_s:.0f} s; look into {FOLDER}/logs and {FOLDER}/node*"
            )
        time.sleep(0.1)


def kubectl(*words: str, stdin: str | None = None, user: str = "admin") -> subprocess.CompletedProcess[str]:
    """Run kubectl; the caller checks the exit code."""
    return subprocess.run(
        [str(FOLDER / "bin/kubectl"), f"--context={user}", *words],
        input=stdin,
        stdin=None if stdin is not None else subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )


def environment() -> dict[str, str]:
    """For a process that is to find the cluster: its kubectl before all others, and its kubeconfig."""
    path = f"{FOLDER}/bin:{os.environ.get('PATH', os.defpath)}"
    return {**os.environ, "PATH": path, "KUBECONFIG": str(FOLDER / "kubeconfig")}


def up() -> None:
    """Bring the cluster up, unless it is.

    :raises ClusterError: what is in the way
    """
    if running() is not None:
        return
    reason = unavailable()
    if reason is not None:
        raise ClusterError(reason)
    subprocess.run(["bash", str(Path(__file__).with_name("build.sh"))], check=True)
    down()
    _write()
    spec = {"folder": str(FOLDER), "cache": str(CACHE), "nodes": NODES, "trees": [*trees(), str(CACHE)]}
    apart = ["unshare", "--net", "--mount", "--ipc", "--pid", "--fork", "--kill-child"]
    with open(FOLDER / "logs/keeper.log", "w") as log:
        process = subprocess.Popen(
            [*apart, sys.executable, "-m", keeper.__name__, json.dumps(spec)],
            cwd=REPO,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    pid = FOLDER / "pid"

    def started() -> bool:
        if process.poll() is not None:
            raise ClusterError((FOLDER / "logs/keeper.log").read_text())
        return pid.exists() and bool(pid.read_text())

    until("the first process", started)
    number = int(pid.read_text())
    (FOLDER / "state").write_text(f"{number} {lab.ticks(number)}")
    _write_kubectl(number)
    until("the API server", lambda: kubectl("get", "--raw=/readyz").returncode == 0)
    until("the users' rights", lambda: kubectl("apply", "-f", str(_RIGHTS)).returncode == 0)
    until("three nodes that are Ready", lambda: len(ready()) == NODES)


def ready() -> list[str]:
    """Nodes that are."""
    lines = kubectl("get", "nodes", "--no-headers").stdout.splitlines()
    return [words[0] for words in map(str.split, lines) if words[1] == "Ready"]


def down() -> None:
    """End all processes of the cluster and remove what it made; nothing where there is none."""
    pid = running()
    if pid is not None:
        os.kill(pid, signal.SIGKILL)  # the kernel ends all others of its namespace before it
        until("the end of all", lambda: lab.ticks(pid) is None)
    for kind in (*config.CONTROLLERS, "systemd"):
        for path, _, _ in os.walk(keeper.GROUPS / kind / "cockpit-k8s", topdown=False):
            until(f"the end of {path}", lambda path=path: _removed(path), 20)  # type: ignore[misc]
    shutil.rmtree(FOLDER, ignore_errors=True)


def _removed(group: str) -> bool:
    try:
        os.rmdir(group)
    except OSError:
        return not os.path.exists(group)
    return True


def hold(name: str) -> None:
    """Kill a program of the control plane, or power off a node, until :func:`release`."""
    (FOLDER / "hold" / name).touch()


def release(name: str) -> None:
    """Let it start again."""
    (FOLDER / "hold" / name).unlink(missing_ok=True)


def _write() -> None:
    FOLDER.mkdir(mode=0o700)
    for name in ("bin", "etc", "hold", "logs", "pki", "stage"):
        (FOLDER / name).mkdir()
    hosts = "".join(f"{config.address(n)} node{n}\n" for n in range(1, NODES + 1))
    (FOLDER / "etc/hosts").write_text(f"127.0.0.1 localhost\n{hosts}")
    rows = [f"{secrets.token_hex(16)},{user},{user},{group}\n" for user, group in config.USERS.items()]
    (FOLDER / "tokens.csv").write_text("".join(rows))
    (FOLDER / "kubeconfig").write_text(config.kubeconfig(FOLDER))
    key = ["ssh-keygen", "-q", "-t", "rsa", "-m", "PEM", "-N", "", "-f", f"{FOLDER}/pki/serviceaccounts"]
    subprocess.run(key, check=True)
    for number in range(1, NODES + 1):
        for name, text in config.node_files(FOLDER, number, CACHE).items():
            path = FOLDER / f"node{number}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    image.write(FOLDER / "image.tar", CACHE / "bin/pause")


def _write_kubectl(pid: int) -> None:
    """A kubectl in the cluster's network, where nothing else leads; it leaves the user's cache alone."""
    for name, found in _kubectls().items():
        path = FOLDER / "bin" / name
        enter = f"nsenter --net=/proc/{pid}/ns/net -- {found} --cache-dir={FOLDER}/discovered"
        path.write_text(f'#!/bin/sh\nexec {enter} "$@"\n')
        path.chmod(0o755)


def _kubectls() -> dict[str, str]:
    """``kubectl`` is the machine's, if it has one; ``kubectl-1.20`` is of the cluster's own version."""
    own = str(CACHE / "root/usr/bin/kubectl")
    return {"kubectl": shutil.which("kubectl") or own, "kubectl-1.20": own}


def main(words: Sequence[str]) -> int:
    """``up``, ``down``, ``env``, ``hold PROGRAM``, ``release PROGRAM``."""
    verbs: dict[str, Callable[..., None]] = {"up": up, "down": down, "hold": hold, "release": release}
    if list(words) == ["env"]:
        print(f"export KUBECONFIG={FOLDER}/kubeconfig PATH={FOLDER}/bin:$PATH")
        return 0
    if not words or words[0] not in verbs:
        print(main.__doc__, file=sys.stderr)
        return 2
    try:
        verbs[words[0]](*words[1:])
    except (ClusterError, subprocess.CalledProcessError) as error:
        print(f"k8s: {error}", file=sys.stderr)
        return 1
    return 0
