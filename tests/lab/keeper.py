"""The process that holds a lab: it makes the nodes, and takes everything away when its lab ends.

:mod:`tests.lab.lab` starts it as a program, in a network namespace of its own (the "switch": the bridge lives
there, so that it cannot outlive this process). It is the parent of every node, and reads commands from its
stdin; end of file there means that the test process ended, in whatever way, and so: tear down. If it is
killed itself, the kernel ends the nodes with it (PR_SET_PDEATHSIG). It has one thread on purpose: that signal
is sent when the *thread* that forked ends. It runs without site-packages: standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
import uuid
from pathlib import Path
from typing import Any, NoReturn

# <sched.h>, <sys/mount.h>, <sys/prctl.h>
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT = 1, 2, 4, 32
MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 4096, 8192, 16384, 1 << 18
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def setns(path: str, kind: int) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.setns(fd, kind), f"setns {path}")
    finally:
        os.close(fd)


def die_with_parent() -> None:
    _check(_libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0), "prctl")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    texts = [text.encode() or None for text in (source, target, kind, data)]
    result = _libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])
    _check(result, f"mount {kind or source} on {target}")


def bind(source: str, target: str, readonly: bool = False) -> None:
    mount(source, target, flags=MS_BIND | MS_REC)
    if readonly:
        mount("none", target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY)


def within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def listable(path: str) -> bool:
    """Whether others may list and enter this folder."""
    return os.stat(path).st_mode & 0o005 == 0o005


def covers(trees: list[str]) -> dict[str, int]:
    """The folders that get a private tmpfs in a node, with its mode.

    They are those that every node has for itself, and those that keep the unprivileged user from reaching one
    of ``trees`` (a 0700 home of root, say).
    """
    found = {"/tmp": 0o1777, "/run": 0o755, "/dev/shm": 0o1777}
    for tree in trees:
        path = Path(tree)
        for folder in [*reversed(path.parents), path]:
            if any(within(tree, cover) for cover in found):
                break
            if not os.stat(folder).st_mode & 0o001 or (folder == path and not listable(tree)):
                found[str(folder)] = 0o755
    return found


def show(tree: str, target: str, readonly: bool) -> None:
    """Bind ``tree`` at ``target`` so that others can enter it."""
    os.makedirs(target, exist_ok=True)
    if listable(tree):
        bind(tree, target, readonly)
        return
    for entry in os.scandir(tree):  # the folder's own mode comes with a bind: so its entries, one by one
        inner = f"{target}/{entry.name}"
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), inner)
        elif entry.is_dir() or entry.is_file():
            if entry.is_dir():
                os.mkdir(inner)
            else:
                Path(inner).touch()
            bind(entry.path, inner, readonly)


def private_files(folder: str, trees: list[str]) -> None:
    """Give the calling process, in a mount namespace of its own, the files of a machine of the lab.

    That is ``trees`` at their usual paths and readable; private /tmp, /run, /dev/shm, /etc/hosts and users.
    """
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    stage = f"{folder}/stage"
    outer = [t for t in trees if not any(t != o and within(t, o) and listable(o) for o in trees)]
    for cover, mode in covers(outer).items():
        mount("tmpfs", stage, "tmpfs", MS_NOSUID | MS_NODEV, f"mode={mode:o}")
        for tree in outer:
            if within(tree, cover):
                show(tree, stage + tree[len(cover) :], readonly=tree != folder)
        mount(stage, cover, flags=MS_MOVE)
    os.mkdir("/run/sshd", 0o755)
    for name in os.listdir(f"{folder}/etc"):
        if os.path.exists(f"/etc/{name}"):
            bind(f"{folder}/etc/{name}", f"/etc/{name}")


def own_sysfs(folder: str) -> None:
    """A sysfs that shows this network namespace's interfaces, with the control groups where they were."""
    stage = f"{folder}/stage"
    bind("/sys/fs/cgroup", stage)
    mount("sysfs", "/sys", "sysfs")
    mount(stage, "/sys/fs/cgroup", flags=MS_MOVE)


def mac(address: str) -> str:
    """The hardware address of a node: the same after a restart, or its neighbours would not find it."""
    return "02:00:" + ":".join(f"{int(part):02x}" for part in address.split("."))


def ip(lines: list[str], pid: int | None = None) -> None:
    """Run ``ip -batch`` on ``lines``, in the network namespace of process ``pid`` or this one's."""
    enter = [] if pid is None else ["nsenter", f"--net=/proc/{pid}/ns/net"]
    text = "\n".join(lines) + "\n"
    done = subprocess.run(
        [*enter, "ip", "-batch", "-"], input=text, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise OSError(f"ip: {done.stderr.strip()} ({'; '.join(lines)[:200]})")


def has_pid(pid_file: Path) -> bool:
    """Whether sshd has written its pid, which it does once it listens; the file is there a moment earlier."""
    return pid_file.exists() and pid_file.stat().st_size > 0


def ticks(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot (proc(5)); None for one that is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def members(kind: str, namespace: str) -> list[int]:
    """Processes in the namespace that ``/proc/PID/ns/<kind>`` links to."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{name}/ns/{kind}") == namespace:
                    found.append(int(name))
    return found


def end_login(namespace: str, uids: list[int]) -> None:
    """Kill what runs in a login node's mount namespace, and belongs to ``uids`` where that is not empty."""
    while True:
        pids = [p for p in members("mnt", namespace) if ticks(p) is not None]
        if uids:
            pids = [p for p in pids if _uid(p) in uids]
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _uid(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return -1


def sweep(folder: Path, interface: str) -> None:
    """Remove what a dead lab left in ``folder``. Its lock must be held: that is the proof that it is dead."""
    if folder.is_dir() and not folder.is_symlink() and folder.stat().st_uid == 0:
        state: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            state = json.loads((folder / "state.json").read_text())
        for pid, start in state.get("inits", []):
            if ticks(pid) == start:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if "login" in state:
            # with the lab's user ids: the number of a namespace that is gone may have been given anew
            end_login(state["login"], state["uids"])
        shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(["ip", "link", "del", interface], stderr=subprocess.DEVNULL, check=False)


class Keeper:
    def __init__(self, spec: dict[str, Any]) -> None:
        self.folder: str = spec["folder"]
        self.nodes: dict[str, str] = spec["nodes"]  # name → address
        self.order = list(self.nodes)
        self.trees: list[str] = spec["trees"]
        self.spec = spec
        self.owner = os.getppid()
        self.inits: dict[str, int] = {}
        self.login = 0
        self.login_namespace = ""
        self.login_held = -1
        """Open on that namespace, by whose number :meth:`tear_down` kills: the kernel gives that of one which
        nobody holds to the next one made, perhaps to a node of another lab."""

    def port(self, name: str) -> str:
        """The switch's end of a node's cable."""
        return f"port{self.order.index(name) + 1}"

    # -- making

    def make(self) -> None:
        interface = self.spec["interface"]
        ip(
            [
                "link set lo up",
                "link add br0 type bridge",
                "link set br0 up",
                f"link add uplink type veth peer name {interface} netns {self.owner}",
                "link set uplink master br0 up",
            ]
        )
        address = self.spec["login_address"]
        ip([f"addr add {address}/16 dev {interface}", f"link set {interface} up"], self.owner)
        self.make_login()
        self.start(self.order)

    def make_login(self) -> None:
        done, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                die_with_parent()
                setns(f"/proc/{self.owner}/ns/net", CLONE_NEWNET)
                unshare(CLONE_NEWNS | CLONE_NEWUTS)
                socket.sethostname("login")
                private_files(self.folder, self.trees)
                os.write(tell, b"up")
                self.detach(f"{self.folder}/login.log")
                while True:
                    signal.pause()
            except BaseException:
                os.write(tell, traceback.format_exc().encode())
                os._exit(1)
        os.close(tell)
        answer = os.read(done, 65536).decode()
        os.close(done)
        if answer != "up":
            raise OSError(f"login node: {answer}")
        self.login = pid
        self.login_held = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        self.login_namespace = os.readlink(f"/proc/{pid}/ns/mnt")

    def start(self, names: list[str]) -> None:
        """Start these nodes side by side, and wait until all of them accept connections."""
        events, tell = os.pipe()
        go: dict[str, int] = {}
        for name in names:
            theirs, mine = os.pipe()
            self.inits[name] = self.spawn(name, tell, theirs, [mine, events, *go.values()])
            os.close(theirs)
            go[name] = mine
        os.close(tell)
        try:
            self.expect(events, "up", names)
            cables = []
            for name in names:
                port, peer = self.port(name), f"eth0 address {mac(self.nodes[name])}"
                cables.append(f"link add {port} type veth peer name {peer} netns {self.inits[name]}")
                cables.append(f"link set {port} master br0 up")
            ip(cables)
            for fd in go.values():
                os.write(fd, b"go\n")
                os.close(fd)
            self.expect(events, "ready", names)
        finally:
            os.close(events)
        self.save()

    def expect(self, events: int, word: str, names: list[str]) -> None:
        """Wait until each of these nodes has said this; none says more before it is told to go on."""
        said = b""
        while said.count(b"\n") < len(names):
            if select.select([events], [], [], 1.0)[0]:
                more = os.read(events, 1 << 16)
                said += more
                wrong = [line for line in said.decode().split("\n")[:-1] if line != word]
                if wrong or not more:
                    raise OSError(wrong[0].replace("\x00", "\n") if wrong else "a node ended at its start")
            # The others keep the pipe open when one of them is killed.
            for name in names:
                ended = os.waitid(os.P_PID, self.inits[name], os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if ended is not None:
                    raise OSError(f"{name} ended at its start, with signal or status {ended.si_status}")

    def spawn(self, name: str, tell: int, go: int, others: list[int]) -> int:
        unshare(CLONE_NEWPID)  # for the children that follow, not for this process
        pid = os.fork()
        if pid:
            setns("/proc/self/ns/pid", CLONE_NEWPID)
            return pid
        try:
            for fd in [*others, self.spec["lock_fd"]]:
                os.close(fd)
            os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
            self.node(name, tell, go)
        except BaseException:
            os.write(tell, traceback.format_exc().replace("\n", "\x00").encode() + b"\n")
            os._exit(1)

    def node(self, name: str, tell: int, go: int) -> NoReturn:
        """The first process of a node: sets it up, then buries the dead, as an init does."""
        die_with_parent()
        home = f"{self.folder}/nodes/{name}"
        unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET)
        socket.sethostname(name)
        private_files(self.folder, self.trees)
        mount("proc", "/proc", "proc")
        Path(home, "boot_id").write_text(f"{uuid.uuid4()}\n")
        bind(f"{home}/boot_id", "/proc/sys/kernel/random/boot_id")
        with contextlib.suppress(OSError):
            own_sysfs(self.folder)
        os.write(tell, b"up\n")
        os.read(go, 100)
        os.close(go)
        ip(["link set lo up", f"addr add {self.nodes[name]}/16 dev eth0", "link set eth0 up"])
        key, pid_file = Path(home, "host_key"), Path(home, "sshd.pid")
        if not key.exists():
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", key], check=True)
        pid_file.unlink(missing_ok=True)
        with open(f"{home}/sshd.log", "a") as log:
            sshd = [self.spec["sshd"], "-f", f"{home}/sshd_config", "-E", log.name]
            subprocess.run(sshd, check=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        while not has_pid(pid_file):
            time.sleep(0.005)
        os.write(tell, b"ready\n")
        os.close(tell)
        self.detach(f"{home}/init.log")
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        while True:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            signal.sigwait([signal.SIGCHLD])

    @staticmethod
    def detach(log: str) -> None:
        null = os.open("/dev/null", os.O_RDONLY)
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for fd, to in ((null, 0), (out, 1), (out, 2)):
            os.dup2(fd, to)
        os.closerange(3, 256)

    def save(self) -> None:
        state = {
            "inits": [[pid, ticks(pid)] for pid in self.inits.values()],
            "login": self.login_namespace,
            "uids": self.spec["uids"],
        }
        Path(self.folder, "state.json").write_text(json.dumps(state))

    # -- unmaking

    def kill(self, name: str) -> None:
        """Power off: no farewell reaches the network, and all its processes are gone on return."""
        pid = self.inits.pop(name)
        ip([f"link del {self.port(name)}"])
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)  # the kernel ends an init only after all others of its namespace
        self.save()

    def tear_down(self) -> None:
        for pid in self.inits.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in self.inits.values():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        if self.login:
            end_login(self.login_namespace, [])
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.login, 0)
        subprocess.run(["ip", "link", "del", "uplink"], stderr=subprocess.DEVNULL, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- serving

    def say(self, answer: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            os.write(1, json.dumps(answer).encode() + b"\n")

    def serve(self) -> None:
        """Answer commands until stdin ends or the owner is gone (its forked child may keep stdin open)."""
        buffer = b""
        while os.getppid() == self.owner:
            if not select.select([0], [], [], 2)[0]:
                continue
            data = os.read(0, 65536)
            if not data:
                return
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                verb, name = line.decode().split()
                try:
                    self.kill(name) if verb == "kill" else self.start([name])
                    self.say({"pid": self.inits.get(name)})
                except (OSError, KeyError) as error:
                    self.say({"error": str(error)})


def main() -> int:
    spec = json.loads(sys.argv[1])
    os.umask(0o022)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # its owner gets them too, and ends it
    fcntl.fcntl(spec["lock_fd"], fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    keeper = Keeper(spec)
    try:
        try:
            keeper.make()
        except Exception as error:
            keeper.say({"error": "".join(traceback.format_exception_only(type(error), error)).strip()})
        else:
            keeper.say({"login": keeper.login, "inits": keeper.inits})
            keeper.serve()
    finally:
        keeper.tear_down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
