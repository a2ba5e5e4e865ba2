"""The first process of the cluster: it starts all others, and they end with it.

:mod:`tests.kube.cluster.cluster` starts it in network, mount and process namespaces of its own. The control
plane runs in those; a node is a child with its own of each, and its own control groups. A program that ends
is started again, as systemd would, unless there is a file ``hold/PROGRAM`` (``hold/nodeN``: all of a node).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from tests.kube.cluster import config
from tests.lab import keeper as lab

CLONE_NEWCGROUP = 0x02000000
GROUPS = Path("/sys/fs/cgroup")


class Programs:
    """Long-running programs, each started again while nothing holds it."""

    def __init__(self, folder: Path, logs: Path, env: dict[str, str]) -> None:
        self.folder, self.logs, self.env = folder, logs, env
        self.lines: dict[str, list[str]] = {}
        self.pids: dict[str, int] = {}

    def held(self, name: str) -> bool:
        return (self.folder / "hold" / name).exists()

    def start(self, name: str) -> None:
        with open(self.logs / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                self.lines[name],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.env,
                start_new_session=True,
            )
        self.pids[name] = process.pid
        process.returncode = 0  # it is waited for here, with all orphans

    def look(self) -> None:
        """Bury the dead, kill what is held, start what is missing."""
        with contextlib.suppress(ChildProcessError):
            while (gone := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self.pids = {name: pid for name, pid in self.pids.items() if pid != gone}
        for name in self.lines:
            if self.held(name):
                if name in self.pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(self.pids[name], signal.SIGKILL)
            elif name not in self.pids:
                self.start(name)

    def serve(self) -> NoReturn:
        while True:
            self.look()
            time.sleep(0.1)


def own_settings(folder: Path) -> None:
    """Put files over the machine's settings that kubelet writes, as this mount namespace sees them."""
    for name, value in config.SYSCTLS.items():
        path = Path("/proc/sys", name)
        if path.exists():
            made = folder / "sysctls" / name.replace("/", ".")
            made.parent.mkdir(exist_ok=True)
            made.write_text(f"{value}\n")
            lab.bind(str(made), str(path))


def join_groups(name: str) -> None:
    """Move this process into control groups of its own, and let it see no other."""
    for kind in (*config.CONTROLLERS, "systemd"):
        group = GROUPS / kind
        for part in ("cockpit-k8s", name):
            group /= part
            group.mkdir(exist_ok=True)
            if kind == "cpuset":  # a new one has none, and takes nobody
                for file in ("cpuset.cpus", "cpuset.mems"):
                    (group / file).write_text((group.parent / file).read_text())
        (group / "cgroup.procs").write_text("0")
    lab.unshare(CLONE_NEWCGROUP)


def own_groups() -> None:
    """A sysfs of this network namespace, with the control groups as seen from this process's own."""
    lab.mount("sysfs", "/sys", "sysfs")
    lab.mount("tmpfs", str(GROUPS), "tmpfs", 0, "mode=755")
    for kind in (*config.CONTROLLERS, "systemd"):
        (GROUPS / kind).mkdir()
        lab.mount(
            "cgroup", str(GROUPS / kind), "cgroup", 0, "none,name=systemd" if kind == "systemd" else kind
        )


class Keeper:
    def __init__(self, spec: dict[str, Any]) -> None:
        self.folder = Path(spec["folder"])
        self.cache = Path(spec["cache"])
        self.trees: list[str] = spec["trees"]
        self.nodes: int = spec["nodes"]
        self.inits: dict[str, int] = {}
        root = self.cache / "root/usr"
        self.env = {
            "PATH": f"{self.cache}/bin:{root}/bin:{root}/sbin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LD_LIBRARY_PATH": f"{root}/lib/x86_64-linux-gnu",
            "HOME": "/tmp",
        }

    def make(self) -> NoReturn:
        # its number outside: this is still the /proc of there
        (self.folder / "pid").write_text(os.readlink("/proc/self"))
        join_groups("control")
        lab.private_files(str(self.folder), self.trees)
        lab.mount("proc", "/proc", "proc")
        lab.ip(["link set lo up", "link add br0 type bridge", f"addr add {config.CONTROL}/24 dev br0"])
        lab.ip(["link set br0 up"])
        programs = Programs(self.folder, self.folder / "logs", self.env)
        programs.lines = config.control_plane(self.folder, self.cache / "bin")
        for number in range(1, self.nodes + 1):
            self.start(number)
        while True:
            programs.look()
            self.look()
            time.sleep(0.1)

    def look(self) -> None:
        """Power nodes off and on, as the files in ``hold`` say."""
        for number in range(1, self.nodes + 1):
            name = f"node{number}"
            held = (self.folder / "hold" / name).exists()
            if held and name in self.inits:
                lab.ip([f"link del port{number}"])  # no farewell reaches the network
                os.kill(self.inits.pop(name), signal.SIGKILL)
            elif not held and name not in self.inits:
                self.start(number)

    def start(self, number: int) -> None:
        """Start a node, and lay its cable once it has a network of its own."""
        told, tell = os.pipe()
        wait, go = os.pipe()
        lab.unshare(lab.CLONE_NEWPID)  # for the child, not for this process
        pid = os.fork()
        if pid == 0:
            try:
                os.close(told)
                os.close(go)
                Node(self, number).make(tell, wait)
            except BaseException as error:
                (self.folder / f"node{number}/failed").write_text(repr(error))
                raise
            finally:
                os._exit(1)
        lab.setns("/proc/self/ns/pid", lab.CLONE_NEWPID)
        os.close(tell)
        os.close(wait)
        if os.read(told, 1):
            lab.ip(
                [
                    f"link add port{number} type veth peer name eth0 netns {pid}",
                    f"link set port{number} master br0 up",
                    f"route replace {config.pods(number)} via {config.address(number)}",
                ]
            )
        os.close(told)
        os.close(go)
        self.inits[f"node{number}"] = pid


class Node:
    """A node, from its first process: files, network and groups of its own, containerd, kubelet."""

    def __init__(self, keeper: Keeper, number: int) -> None:
        self.keeper, self.number = keeper, number
        self.home = keeper.folder / f"node{number}"

    def make(self, tell: int, wait: int) -> NoReturn:
        lab.die_with_parent()
        join_groups(f"node{self.number}")
        lab.unshare(lab.CLONE_NEWNS | lab.CLONE_NEWUTS | lab.CLONE_NEWIPC | lab.CLONE_NEWNET)
        lab.mount("none", "/", flags=lab.MS_REC | lab.MS_PRIVATE)
        socket.sethostname(f"node{self.number}")
        for path in ("/run", "/var/lib", "/var/log"):
            lab.mount("tmpfs", path, "tmpfs", 0, "mode=755")
        lab.mount("proc", "/proc", "proc")
        own_settings(self.home)
        own_groups()
        os.write(tell, b"!")
        os.close(tell)
        os.read(wait, 1)  # until the cable is laid
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        others = [n for n in range(1, self.keeper.nodes + 1) if n != self.number]
        routes = [f"route add {config.pods(n)} via {config.address(n)}" for n in others]
        lab.ip(["link set lo up", f"addr add {config.address(self.number)}/24 dev eth0", "link set eth0 up"])
        lab.ip(routes)
        programs = Programs(self.keeper.folder, self.home, self.keeper.env)
        lines = config.node_programs(self.keeper.folder, self.number, self.keeper.cache)
        programs.lines = {"containerd": lines.pop("containerd")}
        programs.look()
        self.load(programs)
        programs.lines |= lines
        programs.serve()

    def load(self, programs: Programs) -> None:
        """Give containerd the image, as soon as it takes it."""
        image = str(self.keeper.folder / "image.tar")
        while True:
            done = subprocess.run(
                ["ctr", "-n", "k8s.io", "images", "import", image],
                env=self.keeper.env,
                capture_output=True,
                check=False,
            )
            if done.returncode == 0:
                return
            (self.home / "import.log").write_bytes(done.stdout + done.stderr)
            time.sleep(0.2)
            programs.look()


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    Keeper(json.loads(sys.argv[1])).make()
