"""Who may trace a process (ptrace): we ourselves, the supervisor, sudo; and what to say if nobody may."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import threading
import time
from typing import ClassVar, Dict, List, Optional, Tuple

from cockpit.base import users
from cockpit.base.stacks import spy_words
from cockpit.node.run.helpers import Running, Starter, by_supervisor, quiet
from cockpit.node.stacks import kernel
from cockpit.node.stacks.pyspy_process import NAME, child, directly

SUDO_S = 5.0
"""Seconds for sudo to say whether it would run."""

SUDO_AGAIN_S = 60.0
"""Seconds until a sudo that said nothing in that time is asked again: the node may have been busy."""

_DENIED = re.compile(r"[Pp]ermission [Dd]enied|Operation not permitted|\bEPERM\b|\(os error (?:1|13)\)")
_SCOPE = "/proc/sys/kernel/yama/ptrace_scope"
_CAP_SYS_PTRACE = 19


def denied(said: str) -> bool:
    """Whether py-spy complains that it may not look into a process."""
    # It may, but could not hold the process: another program does, and it can be seen without holding.
    return _DENIED.search(said) is not None and "Failed to suspend process" not in said


class _Remembered:
    """What this agent has learnt: trying again would cost a failed py-spy each time."""

    lock = threading.Lock()
    worked: ClassVar[Dict[str, str]] = {}
    sudo: Optional[bool] = None
    sudo_from: float = 0.0
    """When sudo may be asked, if it has not answered yet; monotonic seconds."""


def starters(folder: str, timeout_s: float, *, ask_root: bool = True) -> List[Tuple[str, Starter]]:
    """Every way to start py-spy, with the one that last worked for ranks of this run folder first.

    sudo is asked only when it is that one's turn.

    :param ask_root: whether sudo is a way: each refusal of it is a line in a log that administrators read
    """
    ways: List[Tuple[str, Starter]] = [("direct", directly)]
    if folder:
        ways.append(("supervisor", by_supervisor(folder, NAME)))
    if ask_root and os.geteuid() != 0:
        ways.append(("sudo", _by_sudo(timeout_s)))
    worked = _Remembered.worked.get(folder)
    return sorted(ways, key=lambda way: way[0] != worked)


def remember(folder: str, name: str) -> None:
    """This way worked for ranks of this run folder."""
    _Remembered.worked[folder] = name


def _by_sudo(timeout_s: float) -> Starter:
    def start(path: str, arguments: List[str], out: int, said: int) -> Running:
        sudo, timeout = shutil.which("sudo"), shutil.which("timeout")
        if sudo is None or timeout is None or not _sudo_would(sudo, path):
            raise PermissionError("no sudo without a password")
        # We may not kill what root runs, so it must end by itself.
        seconds = str(math.ceil(timeout_s))
        argv = [sudo, "-n", "--", timeout, "-s", "KILL", seconds, path, *arguments]
        return child(argv, sudo, out, said)

    return start


def _sudo_would(sudo: str, path: str) -> bool:
    with _Remembered.lock:
        if _Remembered.sudo is None and time.monotonic() >= _Remembered.sudo_from:
            try:
                _Remembered.sudo = not subprocess.call(
                    [sudo, "-n", "--", path, "--version"],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    timeout=SUDO_S,
                    env=quiet(),
                )
            except (OSError, subprocess.TimeoutExpired):
                _Remembered.sudo_from = time.monotonic() + SUDO_AGAIN_S
        return bool(_Remembered.sudo)


IN_POD = 'add to the container: securityContext: {runAsUser: 0, capabilities: {add: ["SYS_PTRACE"]}}'
"""What lets py-spy trace in a pod: others than root do not get a container's capabilities."""


def refusal(pid: int, uid: int) -> Tuple[str, str]:
    """Why none of our ways may look into a process of this user, and what would help."""
    what, hint = _refusal(pid, uid)
    if os.geteuid() in (0, uid) and "KUBERNETES_SERVICE_HOST" in os.environ and not _may_trace():
        return what, IN_POD
    return what, hint


def _refusal(pid: int, uid: int) -> Tuple[str, str]:
    ours = os.geteuid()
    if ours not in (0, uid):
        owner = users.name(uid)
        what = "its process belongs to %s; %s may not inspect it" % (owner, users.name(ours))
        return what, "only %s may: ask from there" % ("root" if uid == 0 else owner + " or root")
    if not _may_trace():
        scope = _scope()
        if scope in (1, 2):
            whose = "processes of one's own children" if scope == 1 else "processes by root"
            what = "this node only allows tracing %s (kernel.yama.ptrace_scope = %d)" % (whose, scope)
            return what, "sudo sysctl -w kernel.yama.ptrace_scope=0"
        if scope == 3:
            what = "this node allows nobody to trace a process (kernel.yama.ptrace_scope = 3)"
            hint = "set kernel.yama.ptrace_scope to 0 or 1 in /etc/sysctl.d, then reboot: 3 holds until then"
            return what, hint
        if ours == 0:
            return spy_words.ROOT_DENIED, "start the container with --cap-add SYS_PTRACE"
    what = "the system forbids tracing its process %d (a sandbox, a container, or a protected program)" % pid
    return what, "on the node: sudo py-spy dump --pid %d" % pid


def _may_trace() -> bool:
    """Whether we have CAP_SYS_PTRACE."""
    return bool(int(kernel.status("self").get("CapEff", "0"), 16) >> _CAP_SYS_PTRACE & 1)


def _scope() -> int:
    try:
        with open(_SCOPE) as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0
