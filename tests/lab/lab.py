"""A cluster on this machine: real nodes, real sshds, real faults, for tests and benchmarks.

A node is a network, UTS, IPC, PID and mount namespace: own address on a bridge of the lab, own hostname, own
process numbers, private /tmp, /run and /dev/shm, own boot id, own OpenSSH sshd on port 22 with the limits
that OpenSSH has by default. Homes are shared by all machines of the lab, as over NFS. The *login node* has
the network and process numbers of this machine, but its own files: private folders, users and hosts file like
the nodes. So a file in /tmp outside (pytest's ``tmp_path``, say) is on no machine of the lab: put it in
:meth:`Lab.home`. Names are looked up in the hosts file only, never in the DNS. The users exist only inside;
nothing is written to this machine's /etc. Root is needed; :meth:`Lab.unavailable` says what is missing.

    with Lab(nodes=2) as lab:
        lab.run(["ssh", "node1", "hostname"]).stdout == "node1\\n"
        lab.link_down("node2")

Several labs may be up at once, from one process or many: each takes a number K, and with it the network
10.(100+K).0.0/16, the interface ``ckplabK``, two user ids and the folder /var/tmp/cockpit-lab/K.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import grp
import json
import os
import pwd
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from tests.lab import keeper
from tests.waiting import PATIENCE_S

REPO = Path(__file__).resolve().parents[2]
BASE = Path(os.path.realpath("/var/tmp")) / "cockpit-lab"
USER = "ckplab"
OTHER = "mallory"
_TOOLS = ("ip", "sshd", "ssh", "ssh-keygen", "nsenter", "unshare", "setpriv", "mount", "bash")


class LabError(Exception):
    """The lab could not do what it was asked to."""


class Process(NamedTuple):
    """A process on a machine of the lab."""

    pid: int
    """as this machine counts"""
    inner: int
    """as its node counts"""
    uid: int
    cmdline: tuple[str, ...]
    environ: dict[str, str]


def _tool(name: str) -> str | None:
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin")


def _need(name: str) -> str:
    found = _tool(name)
    if found is None:
        raise LabError(f"{name} is not installed")
    return found


@functools.cache
def _unavailable() -> str | None:
    if sys.platform != "linux":
        return "the lab needs Linux"
    if os.geteuid() != 0:
        return "the lab needs root"
    missing = [name for name in _TOOLS if _tool(name) is None]
    if missing:
        return f"the lab needs {', '.join(missing)}"
    bridge, cable = "ip link add br0 type bridge", "ip link add port1 type veth peer name eth9"
    probe = ["sh", "-c", f"{bridge} && {cable} && mount -t tmpfs none /mnt"]
    done = subprocess.run(
        [_need("unshare"), "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", *probe],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"the lab may not make namespaces here: {done.stderr.strip()}" if done.returncode else None


def trees() -> list[str]:
    """What the unprivileged user must be able to read to run this Python and this project."""
    found = [sys.prefix, sys.base_prefix, str(REPO)]
    link = Path(os.path.abspath(sys.executable))
    while True:  # an interpreter is often a link to a link; each must be there
        found.append(str(link.parent.parent))
        if not link.is_symlink():
            break
        link = link.parent / os.readlink(link)
    found += [os.path.realpath(path) for path in found]
    return sorted({os.path.normpath(path) for path in found} - {"/"})


class Lab:
    """A lab of ``nodes`` nodes, node1 to nodeN, from ``with`` to its end.

    :raises LabError: it did not come up
    """

    def __init__(self, nodes: int = 2) -> None:
        if not 1 <= nodes <= 250:
            raise LabError("a lab has 1 to 250 nodes")
        self.nodes = [f"node{i + 1}" for i in range(nodes)]
        self.python = sys.executable
        """A Python with the project's dependencies that the user can run on every machine of the lab."""
        self.folder = Path()
        self.addresses: dict[str, str] = {}
        self.login_address = ""
        self.interface = ""
        """The login node's end of the cable to the lab's network, an interface of this machine."""
        self.ids = {USER: 0, OTHER: 0}
        self.keeper: subprocess.Popen[bytes] | None = None
        self._lock_fd = -1
        self._pids: dict[str, int] = {}  # first process of each node, and of "login"
        self._talk = threading.Lock()

    @staticmethod
    def unavailable() -> str | None:
        """Why this machine cannot have a lab, or None if it can."""
        return _unavailable()

    # -- coming and going

    def __enter__(self) -> Lab:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        reason = self.unavailable()
        if reason:
            raise LabError(reason)
        self._claim()
        try:
            self._write_files()
            spec = {
                "folder": str(self.folder),
                "nodes": self.addresses,
                "login_address": self.login_address,
                "interface": self.interface,
                "trees": sorted({*trees(), str(self.folder)}),
                "sshd": _need("sshd"),
                "uids": list(self.ids.values()),
                "lock_fd": self._lock_fd,
            }
            with open(self.folder / "keeper.log", "w") as log:
                program = [sys.executable, "-E", "-S", keeper.__file__, json.dumps(spec)]
                self.keeper = subprocess.Popen(
                    [_need("unshare"), "--net", *program],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=(self._lock_fd,),
                    env={**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"},
                )
            answer = self._answer()
            self._pids = {**answer["inits"], "login": answer["login"]}
            for user in self.ids:
                self._write_known_hosts(user)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every process of the lab and remove all it made; a second call does nothing."""
        if self.keeper is not None:
            assert self.keeper.stdin is not None
            assert self.keeper.stdout is not None
            with contextlib.suppress(OSError):
                self.keeper.stdin.close()
            self.keeper.wait()
            self.keeper.stdout.close()
            self.keeper = None
        if self._lock_fd >= 0:
            keeper.sweep(self.folder, self.interface)  # what a keeper that was killed has left
            os.close(self._lock_fd)
            self._lock_fd = -1
        self._pids = {}

    def _claim(self) -> None:
        """Take the first free number.

        The lock is held by this process and by the keeper; that it is free proves that both have ended,
        whatever files are left.
        """
        BASE.mkdir(mode=0o755, exist_ok=True)
        if BASE.is_symlink() or BASE.stat().st_uid != 0:
            raise LabError(f"{BASE} must be a folder that belongs to root")
        BASE.chmod(0o755)
        routes = subprocess.run(
            [_need("ip"), "-4", "route", "show", "table", "all"], capture_output=True, text=True, check=True
        ).stdout
        for number in range(100):
            fd = os.open(BASE / f"{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                continue
            self.interface = f"ckplab{number}"
            self.folder = BASE / str(number)
            keeper.sweep(self.folder, self.interface)
            network = f"10.{100 + number}."
            ids = 58000 + 2 * number, 58001 + 2 * number
            if any(_taken(i) for i in ids) or any(
                word.startswith(network)
                for line in routes.splitlines()
                for word in line.split()
                if f"dev {self.interface}" not in line
            ):
                os.close(fd)
                continue
            self._lock_fd = fd
            self.ids = dict(zip(self.ids, ids, strict=True))
            self.addresses = {name: f"{network}0.{i + 1}" for i, name in enumerate(self.nodes)}
            self.login_address = f"{network}255.254"
            return
        raise LabError("no free number for a lab: all networks from 10.100 to 10.199 are in use")

    # -- files

    def _write_files(self) -> None:
        folder = self.folder
        for sub in ("bin", "etc", "home", "stage", "nodes", *(f"nodes/{name}" for name in self.nodes)):
            (folder / sub).mkdir(parents=True)
        for path in (folder, *(folder / sub for sub in ("bin", "etc", "home", "stage", "nodes"))):
            path.chmod(0o755)
        hosts = ["127.0.0.1 localhost", f"{self.login_address} login"]
        hosts += [f"{address} {name}" for name, address in self.addresses.items()]
        (folder / "etc/hosts").write_text("\n".join(hosts) + "\n")
        sources = ("passwd", "group", "shadow", "hosts", "services", "protocols")
        (folder / "etc/nsswitch.conf").write_text("".join(f"{name}: files\n" for name in sources))
        for name in ("hosts", "nsswitch.conf"):
            (folder / "etc" / name).chmod(0o644)
        users = [f"{user}:x:{i}:{i}:lab:{self.home(user)}:/bin/bash" for user, i in self.ids.items()]
        for name, lines, mode in (
            ("passwd", users, 0o644),
            ("group", [f"{user}:x:{i}:" for user, i in self.ids.items()], 0o644),
            # not "!": sshd would take that for a locked account
            ("shadow", [f"{user}:*:19000:0:99999:7:::" for user in self.ids], 0o600),
        ):
            source = Path("/etc", name)
            path = folder / "etc" / name
            path.touch(mode)
            path.write_text((source.read_text() if source.exists() else "") + "\n".join(lines) + "\n")
            path.chmod(mode)
        for name in self.nodes:
            home = folder / "nodes" / name
            home.chmod(0o755)
            (home / "sshd_config").write_text(
                "\n".join(
                    [
                        f"HostKey {home}/host_key",
                        f"PidFile {home}/sshd.pid",
                        "LogLevel VERBOSE",
                        "UsePAM no",
                        "UseDNS no",
                        "PrintMotd no",
                        "PasswordAuthentication no",
                        "KbdInteractiveAuthentication no",
                        "PermitRootLogin no",
                        "Subsystem sftp internal-sftp",
                        "",
                    ]
                )
            )
        for user in self.ids:
            self._write_home(user)
        command = folder / "bin/cockpit"
        path_line = f"import sys; sys.path.insert(0, {str(REPO)!r})"
        call = "from cockpit.cli.main import main; sys.exit(main())"
        command.write_text(
            f'#!/bin/sh\nexec {shlex.join([self.python, "-c", f"{path_line}; {call}"])} "$@"\n'
        )
        command.chmod(0o755)

    def _write_home(self, user: str) -> None:
        home = self.home(user)
        ssh = home / ".ssh"
        ssh.mkdir(parents=True)
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", user, "-f", ssh / "id_ed25519"], check=True
        )
        shutil.copy(ssh / "id_ed25519.pub", ssh / "authorized_keys")
        (ssh / "known_hosts").touch()
        config = [f"Host {name}\n  HostName {address}" for name, address in self.addresses.items()]
        config += [
            "Host node*",
            f"  User {user}",
            f"  IdentityFile {ssh}/id_ed25519",
            "  IdentitiesOnly yes",
            f"  UserKnownHostsFile {ssh}/known_hosts",
            "",
        ]
        (ssh / "config").write_text("\n".join(config))
        (home / "hostfile").write_text("".join(f"{name} slots=2\n" for name in self.nodes))
        for path in (home, ssh, *ssh.iterdir(), home / "hostfile"):
            os.chown(path, self.ids[user], self.ids[user])
            path.chmod(0o700 if path.is_dir() else 0o600)

    def _write_known_hosts(self, user: str) -> None:
        lines = []
        for name, address in self.addresses.items():
            kind, key = (self.folder / "nodes" / name / "host_key.pub").read_text().split()[:2]
            lines.append(f"{name},{address} {kind} {key}\n")
        (self.home(user) / ".ssh/known_hosts").write_text("".join(lines))

    def home(self, user: str = USER) -> Path:
        """The home of a user: the same path outside, on the login node and on every node."""
        return self.folder / "home" / user

    @property
    def hostfile(self) -> Path:
        """A hostfile of all nodes with two slots each, in the user's home."""
        return self.home() / "hostfile"

    def node_path(self, node: str | None, path: str | Path) -> Path:
        """Where root finds, outside, what a node (None: the login node) calls ``path``.

        An absolute link on the way is followed outside.
        """
        return Path(f"/proc/{self._pid(node)}/root/{str(path).lstrip('/')}")

    def write(
        self, node: str | None, path: str | Path, text: str, owner: str = USER, mode: int = 0o644
    ) -> None:
        """Write a file on a node (None: the login node), with its folders, as if ``owner`` had."""
        target = self.node_path(node, path)
        missing = [parent for parent in target.parents if not parent.exists()]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)
        for each in (target, *missing):
            os.chown(each, self._uid(owner), self._uid(owner))

    def set_shell(self, shell: str, user: str = USER) -> None:
        """Make ``shell`` the login shell of a user everywhere."""
        path = self.folder / "etc/passwd"
        lines = path.read_text().splitlines()
        lines = [
            line.rpartition(":")[0] + ":" + shell if line.startswith(f"{user}:") else line for line in lines
        ]
        with open(path, "r+") as file:  # in place: the file itself is bound over /etc/passwd
            file.truncate()
            file.write("\n".join(lines) + "\n")

    # -- running things

    def environment(self, user: str = USER) -> dict[str, str]:
        """What a login gives ``user``, with the Python of the tests active as a virtual environment is."""
        first = f"{self.folder}/bin:{os.path.dirname(self.python)}"
        found = {
            "HOME": "/root" if user == "root" else str(self.home(user)),
            "USER": user,
            "LOGNAME": user,
            "SHELL": "/bin/bash",
            "PATH": f"{first}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
        }
        if sys.prefix != sys.base_prefix:
            found["VIRTUAL_ENV"] = sys.prefix
        return found

    @property
    def env(self) -> dict[str, str]:
        """Environment of the lab's user on the login node; ``cockpit`` there is the one of this checkout."""
        return self.environment()

    def command(
        self,
        argv: Sequence[str | Path],
        node: str | None = None,
        user: str = USER,
        cwd: str | Path | None = None,
    ) -> list[str]:
        """The command that, run by root outside, runs ``argv`` on a node (None: the login node)."""
        kinds = ["--mount", "--uts"] if node is None else ["--mount", "--uts", "--ipc", "--net", "--pid"]
        line = [_need("nsenter"), f"--target={self._pid(node)}", *kinds, "--"]
        if user != "root":
            uid = self._uid(user)
            line += [_need("setpriv"), f"--reuid={uid}", f"--regid={uid}"]
            line += ["--clear-groups", "--inh-caps=-all"]
            if node is not None:
                line += ["--pdeathsig=KILL"]  # nsenter has to fork there: ending it shall end the program
        if cwd is None:
            cwd = self.environment(user)["HOME"]
        return [*line, "/bin/sh", "-c", 'cd -- "$0" && exec "$@"', str(cwd), *map(str, argv)]

    def popen(
        self,
        argv: Sequence[str | Path],
        node: str | None = None,
        user: str = USER,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        **kw: Any,
    ) -> subprocess.Popen[Any]:
        """Start ``argv`` as ``user`` on a node, by default on the login node, in the user's home.

        On the login node the pid is that of the program itself; on a node it is that of an ``nsenter``
        outside, with which the program is killed (once it runs: wait for a sign of it before a ``kill``).
        ``env`` is added to :meth:`environment`.
        """
        full = {**self.environment(user), **(env or {})}
        return subprocess.Popen(self.command(argv, node, user, cwd), env=full, **kw)

    def run(
        self,
        argv: Sequence[str | Path],
        node: str | None = None,
        user: str = USER,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        input: str | None = None,
        timeout: float = PATIENCE_S,
        check: bool = False,
        **kw: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Run ``argv`` as :meth:`popen` does, and return its status and its output as text.

        :raises subprocess.TimeoutExpired: it took longer than ``timeout`` seconds
        :raises subprocess.CalledProcessError: with ``check``, its exit status was not 0
        """
        full = {**self.environment(user), **(env or {})}
        options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **kw}
        options |= {"stdin": subprocess.DEVNULL} if input is None else {"input": input}
        return subprocess.run(
            self.command(argv, node, user, cwd), env=full, text=True, timeout=timeout, check=check, **options
        )

    def processes(self, node: str | None) -> list[Process]:
        """What runs on a node (None: the login node), the first process of the lab's own excepted."""
        kind = "mnt" if node is None else "pid"
        first = self._pid(node)
        found = []
        for pid in keeper.members(kind, os.readlink(f"/proc/{first}/ns/{kind}")):
            with contextlib.suppress(OSError):  # it may end while we look
                if pid == first or keeper.ticks(pid) is None:
                    continue
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                status = dict(line.split(":", 1) for line in lines if ":" in line)
                environ = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
                cmdline = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
                found.append(
                    Process(
                        pid,
                        int(status["NSpid"].split()[-1]),
                        int(status["Uid"].split()[1]),
                        tuple(cmdline[:-1]),
                        dict(item.split("=", 1) for item in environ if "=" in item),
                    )
                )
        return found

    # -- faults

    def link_down(self, node: str) -> None:
        """Pull the node's cable: packets are lost without a word, in both directions."""
        self._switch(f"link set {self._port(node)} down")

    def link_up(self, node: str) -> None:
        self._switch(f"link set {self._port(node)} up")

    def stop_sshd(self, node: str, sessions: bool = False) -> None:
        """End the listener, so that new connections are refused; with ``sessions`` end those as well."""
        pid_file = self.folder / "nodes" / node / "sshd.pid"
        inner = int(pid_file.read_text()) if pid_file.exists() else 0

        def victims() -> list[int]:
            return [
                p.pid
                for p in self.processes(node)
                if p.inner == inner or (sessions and _program(p.pid).startswith("sshd"))
            ]

        while pids := victims():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        pid_file.unlink(missing_ok=True)

    def start_sshd(self, node: str, *options: str) -> None:
        """Start a listener; ``options`` are lines of sshd_config that win, "MaxStartups 1" for one."""
        home = self.folder / "nodes" / node
        line = [_need("sshd"), "-f", str(home / "sshd_config"), "-E", str(home / "sshd.log")]
        for option in options:
            line += ["-o", option]
        done = self.run(line, node=node, user="root", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not keeper.has_pid(home / "sshd.pid"):
            if done.returncode or time.monotonic() > deadline:
                raise LabError(f"sshd on {node} did not start:\n{self.sshd_log(node)}")
            time.sleep(0.005)

    def restart_sshd(self, node: str, *options: str) -> None:
        """A new listener with these options (none: as at first); established sessions stay."""
        self.stop_sshd(node)
        self.start_sshd(node, *options)

    def change_host_key(self, node: str) -> None:
        """Give the node another host key than the one in known_hosts, as after a reinstallation."""
        key = self.folder / "nodes" / node / "host_key"
        for path in (key, key.with_suffix(".pub")):
            path.unlink()
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", node, "-f", key], check=True)
        self.restart_sshd(node)

    def trust_host_keys(self) -> None:
        """Write the present host keys to the users' known_hosts."""
        for user in self.ids:
            self._write_known_hosts(user)

    def refuse_key(self, node: str) -> None:
        """No key is accepted on this node until :meth:`restart_sshd`."""
        self.restart_sshd(node, "AuthorizedKeysFile none")

    def freeze(self, node: str) -> None:
        """Stop all processes of the node; its kernel still accepts and acknowledges."""
        first = self._pid(node)
        while True:
            running = [p for p in (first, *(p.pid for p in self.processes(node))) if _state(p) not in "TZX"]
            if not running:
                return
            for pid in running:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            time.sleep(0.005)

    def thaw(self, node: str) -> None:
        for pid in (self._pid(node), *(p.pid for p in self.processes(node))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def kill_node(self, node: str) -> None:
        """Power off: no farewell reaches the network; processes and node-local files are gone on return."""
        self._ask(f"kill {node}")
        del self._pids[node]

    def start_node(self, node: str) -> None:
        """Power on a node that was killed: another boot id, empty /tmp, the same host key."""
        if node in self._pids:
            raise LabError(f"{node} is up")
        self._pids[node] = self._ask(f"start {node}")["pid"]

    def sshd_log(self, node: str) -> str:
        """What the node's sshd has logged so far, at LogLevel VERBOSE."""
        return (self.folder / "nodes" / node / "sshd.log").read_text()

    # -- inner

    def _pid(self, node: str | None) -> int:
        try:
            return self._pids[node or "login"]
        except KeyError:
            raise LabError(f"{node or 'the login node'} is not up") from None

    def _uid(self, user: str) -> int:
        return 0 if user == "root" else self.ids[user]

    def _port(self, node: str) -> str:
        return f"port{self.nodes.index(node) + 1}"

    def _switch(self, line: str) -> None:
        assert self.keeper is not None
        keeper.ip([line], self.keeper.pid)

    def _ask(self, command: str) -> dict[str, Any]:
        with self._talk:
            assert self.keeper is not None
            assert self.keeper.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self.keeper.stdin.write(command.encode() + b"\n")
                self.keeper.stdin.flush()
            return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.keeper is not None
        assert self.keeper.stdout is not None
        line = self.keeper.stdout.readline()
        if not line:
            log = self.folder / "keeper.log"
            raise LabError(f"the lab's keeper ended: {log.read_text() if log.exists() else ''}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise LabError(answer["error"])
        return answer


def _taken(number: int) -> bool:
    for look in (pwd.getpwuid, grp.getgrgid):
        with contextlib.suppress(KeyError):
            look(number)
            return True
    return False


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def _program(pid: int) -> str:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""
