"""SLURM on the nodes of a lab: munged and slurmctld on the login node, a slurmd on each node; no sshd needed.

Written for SLURM 22.05. With ``tracking="cgroup"`` nothing outlives its step, as on a real cluster; under
``linuxproc`` a process that detaches itself does. That needs cgroup v1 hierarchies: see :meth:`Slurm.lacks`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from tests.lab.lab import USER, Lab
from tests.needs import PATH, beyond, lacking, require
from tests.waiting import PATIENCE_S, until

CGROUPS = ("freezer", "cpuset", "memory", "devices", "cpuacct")
CPUS = 16
"""Processors of a node, as far as SLURM knows."""
_ROOT = Path("/sys/fs/cgroup")
_TOOLS = ("munged", "slurmctld", "slurmd", "srun", "salloc", "sbatch", "scontrol", "scancel")


class Slurm:
    """A SLURM cluster of a lab's nodes, from ``with`` to its end.

    :param gpus: generic resources called GPUs of each node; the devices are as /dev/null
    :param more: further lines of slurm.conf
    """

    def __init__(self, lab: Lab, tracking: str = "linuxproc", gpus: int = 0, more: str = "") -> None:
        for tool in _TOOLS:
            require(tool)
        self.lab = lab
        self.folder = lab.folder / "slurm"
        self.tracking = tracking
        self._gpus = gpus
        self._more = more
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._log = self.folder / "daemons.log"

    @staticmethod
    def unavailable() -> str | None:
        """Which programs this machine lacks for one, or None."""
        missing = [tool for tool in _TOOLS if shutil.which(tool, path=PATH) is None]
        return f"not installed: {', '.join(missing)}" if missing else None

    @staticmethod
    def lacks(tracking: str) -> str:
        """Why processes cannot be tracked so on this machine; empty if they can."""
        if tracking != "cgroup":
            return ""
        missing = [name for name in CGROUPS if not (_ROOT / name / "cgroup.procs").exists()]
        return f"no cgroup v1 hierarchies: {', '.join(missing)}" if missing else ""

    @classmethod
    def strictest(cls) -> str:
        """The way of tracking on this machine that ends most."""
        return "linuxproc" if cls.lacks("cgroup") else "cgroup"

    def __enter__(self) -> Slurm:
        try:
            self._write()
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._daemons:
            process.kill()
            process.wait()
        for node in self.lab.nodes:
            for process_on_node in self.lab.processes(node):
                if any(word in " ".join(process_on_node.cmdline) for word in ("slurmd", "slurmstepd")):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process_on_node.pid, 9)
        if self.tracking == "cgroup":
            until(self._swept, "the control groups are gone")

    # -- what a user does

    def run(self, *words: str, timeout: float = PATIENCE_S, check: bool = True) -> str:
        """Output of a command of the lab's user on the login node."""
        done = self.lab.run(list(words), env=self.env, timeout=timeout, check=False)
        assert not check or done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    @property
    def env(self) -> dict[str, str]:
        """Where SLURM's commands find its configuration."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def allocate(self, *options: str, user: str = USER) -> str:
        """A job without a script; returns its number."""
        words = ["salloc", "--no-shell", "--job-name=test", *options]
        done = self.lab.run(words, user=user, env=self.env)
        assert done.returncode == 0, done.stderr
        return done.stderr.rpartition("job allocation ")[2].split()[0]

    def state(self, job: str) -> str:
        """The state of a job, as squeue calls it; empty: it has ended."""
        return self.run("squeue", "-h", "-o", "%T", "-j", job, check=False).strip()

    def cancel(self, job: str) -> None:
        """End a job, and wait for that."""
        self.run("scancel", job)
        until(lambda: self.state(job) == "", f"the end of job {job}")

    # -- inner

    def _write(self) -> None:
        lab, folder = self.lab, self.folder
        for name in ("munge", "state", *(f"spool.{node}" for node in lab.nodes)):
            (folder / name).mkdir(parents=True)
        number = int(lab.folder.name)
        key = folder / "munge/key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        devices = [folder / f"gpu{index}" for index in range(self._gpus)]
        gres = [f"Name=gpu File={device}" for device in devices]
        for device in devices:
            os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        extra = f"Gres=gpu:{self._gpus}" if self._gpus else ""
        lines = [
            "ClusterName=lab",
            f"SlurmctldHost=login({lab.login_address})",
            # On the login node all labs share one network.
            f"SlurmctldPort={20000 + number}",
            "SlurmUser=root",
            "SlurmdUser=root",
            "AuthType=auth/munge",
            f"AuthInfo=socket={folder}/munge/socket",
            "CredType=cred/munge",
            f"StateSaveLocation={folder}/state",
            f"SlurmdSpoolDir={folder}/spool.%n",
            f"SlurmctldPidFile={folder}/slurmctld.pid",
            f"SlurmdPidFile={folder}/slurmd.%n.pid",
            f"SlurmctldLogFile={folder}/slurmctld.log",
            f"SlurmdLogFile={folder}/slurmd.%n.log",
            f"ProctrackType=proctrack/{self.tracking}",
            "TaskPlugin=task/none",
            "MpiDefault=none",
            "SwitchType=switch/none",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_CPU",
            "SlurmdParameters=config_overrides",
            "PropagateResourceLimits=NONE",
            "JobAcctGatherType=jobacct_gather/none",
            "AccountingStorageType=accounting_storage/none",
            "JobCompType=jobcomp/none",
            "ReturnToService=2",
            "SlurmdTimeout=10",
            "KillWait=20",
            "SchedulerParameters=sched_interval=1,batch_sched_delay=0",
            *(["GresTypes=gpu"] if self._gpus else []),
            *(
                f"NodeName={node} NodeAddr={address} CPUs={CPUS} RealMemory=2000 {extra} State=UNKNOWN"
                for node, address in lab.addresses.items()
            ),
            f"PartitionName=lab Nodes={','.join(lab.nodes)} Default=YES MaxTime=INFINITE State=UP",
            self._more,
        ]
        # slurmd 22.05 loads a cgroup plugin even where nothing uses one, and does not find it in a node.
        cgroup = ["CgroupPlugin=cgroup/v1", "CgroupAutomount=no"]
        for name, text in (("slurm.conf", lines), ("cgroup.conf", cgroup), ("gres.conf", gres)):
            (folder / name).write_text("\n".join(text) + "\n")
            (folder / name).chmod(0o644)

    def _daemon(self, words: list[str], node: str | None) -> None:
        with open(self._log, "ab") as log:
            env = {**self.env, "PATH": PATH}
            self._daemons.append(
                self.lab.popen(
                    words, node, "root", env=env, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
            )

    def _start(self) -> None:
        munge = self.folder / "munge"
        files = [f"--{name}-file={munge}/{name}" for name in ("key", "seed", "log", "pid")]
        self._daemon([require("munged"), "-F", "--force", f"--socket={munge}/socket", *files], None)
        until(lambda: (munge / "socket").exists(), "munged listens")
        self._daemon([require("slurmctld"), "-D", "-i"], None)
        for node in self.lab.nodes:
            self.start_node(node)
        until(self._idle, "all nodes are idle")

    def start_node(self, node: str) -> None:
        """Start the slurmd of a node."""
        slurmd = require("slurmd")
        if self.tracking != "cgroup":
            self._daemon([slurmd, "-D", "-N", node], node)
            return
        # A branch of its own in each hierarchy, which the node sees as the root.
        groups = [str(_ROOT / name / self._group(node)) for name in CGROUPS]
        for path in groups:
            os.makedirs(path, exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):
                if Path(path, name).exists():
                    Path(path, name).write_text(Path(path).parent.joinpath(name).read_text())
        mounts = "; ".join(f"mkdir {_ROOT}/{c}; mount -t cgroup -o {c} cgroup {_ROOT}/{c}" for c in CGROUPS)
        inside = f"mount -t tmpfs tmpfs {_ROOT}; {mounts}; exec {slurmd} -D -N {node}"
        enter = "; ".join(f"echo $$ >{path}/cgroup.procs" for path in groups)
        self._daemon(["sh", "-c", f"{enter}; exec unshare --cgroup --mount sh -ec '{inside}'"], node)

    def kill_node(self, node: str) -> None:
        """Kill the slurmd of a node: after a while of silence, the controller calls the node failed."""
        for process in self.lab.processes(node):
            if [os.path.basename(word) for word in process.cmdline[:1]] == ["slurmd"]:
                with contextlib.suppress(ProcessLookupError):  # the child of one that has ended
                    os.kill(process.pid, 9)

    def _group(self, node: str) -> str:
        return f"ckplab-{self.lab.folder.name}-{node}"

    def _idle(self) -> bool:
        states = self.run("sinfo", "-h", "-N", "-p", "lab", "-o", "%t", check=False).split()
        return states.count("idle") == len(self.lab.nodes)

    def _swept(self) -> bool:
        left = [_ROOT / name / self._group(node) for node in self.lab.nodes for name in CGROUPS]
        for top in left:
            for folder, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
        time.sleep(0.02)
        return not any(path.exists() for path in left)


@contextlib.contextmanager
def without_sshd(tracking: str = "linuxproc", gpus: int = 0, more: str = "") -> Iterator[Slurm]:
    """Two nodes on which no sshd listens; see :class:`Slurm` for the parameters."""
    if reason := Lab.unavailable():
        lacking(reason)
    if reason := Slurm.lacks(tracking):
        beyond(reason)
    with Lab(nodes=2) as lab:
        for node in lab.nodes:
            lab.stop_sshd(node, sessions=True)
        with Slurm(lab, tracking, gpus, more) as cluster:
            yield cluster
