"""py-spy started inside the namespaces of a process in a container of ours, where it fails from outside.

From outside, py-spy can look at Python frames in any container that our user has made, but not at native
ones: it mistakes the threads' numbers for those of this namespace. A small Python program enters the user,
pid and mount namespaces, and starts py-spy by its file descriptor: no program of the container is run. Root
stays out of it.
"""

from __future__ import annotations

import os
import sys
from typing import List

from cockpit.node import procfs
from cockpit.node.run.helpers import Running, Starter
from cockpit.node.stacks.pyspy_process import NAME, child

_ENTER = """
import ctypes, fcntl, os, signal, sys

pid, spy, *words = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)

def differs(number, name):
    return not os.path.sameopenfile(number, os.open("/proc/self/ns/" + name, os.O_RDONLY))

def enter(number, name):
    if libc.setns(number, 0):
        sys.exit("its %s namespace cannot be entered: %s" % (name, os.strerror(ctypes.get_errno())))

there = [(os.open("/proc/%s/ns/%s" % (pid, name), os.O_RDONLY), name) for name in ("pid", "mnt")]
there = [(number, name) for number, name in there if differs(number, name)]
owner = fcntl.ioctl(there[0][0], 0xB701)  # NS_GET_USERNS
if differs(owner, "user"):
    enter(owner, "user")
for number, name in there:
    enter(number, name)
child = os.fork()
if not child:
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    os.execve(int(spy), words, dict(os.environ))
code = os.waitpid(child, 0)[1]
sys.exit(1 if os.WIFSIGNALED(code) else os.WEXITSTATUS(code))
"""


def starter(pid: int) -> Starter:
    """How to start py-spy inside the namespaces of a process.

    It raises PermissionError for root: a container may be somebody else's, and its files cannot be trusted.
    """

    def start(path: str, arguments: List[str], out: int, said: int) -> Running:
        if os.geteuid() == 0:
            raise PermissionError("root does not enter containers")
        spy = os.open(path, os.O_RDONLY)
        try:
            argv = [sys.executable, "-I", "-S", "-c", _ENTER, str(pid), str(spy), NAME, *arguments]
            return child(argv, sys.executable, out, said, (spy,))
        finally:
            os.close(spy)

    return start


def other(pid: int) -> bool:
    """Whether a process is in a pid or mount namespace that is not ours."""
    names = ("pid", "mnt")
    theirs = [procfs.link("/proc/%d/ns/%s" % (pid, name)) for name in names]
    return all(theirs) and theirs != [procfs.link("/proc/self/ns/" + name) for name in names]
