"""Processes that have imported torch, or cockpit, once: programs that a test starts begin as copies of them.

Most of what a launch costs is importing torch, in the launcher, its helpers and every rank; and most of what
a verb costs is importing cockpit. Here all of them are the real programs, only that they are forked from one
process where those modules are imported already. They are not descendants of who starts them, and have no
limits, terminal and session of theirs: a test of process trees, signals, terminals or limits cannot use them.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

TORCH = (
    "torch._dynamo",  # by every optimizer
    "torch.nn.parallel",
    "torch.distributed.run",
    "deepspeed.launcher.runner",
    "deepspeed.launcher.launch",
    "accelerate.commands.accelerate_cli",
)
"""What is imported for launches, where it is installed."""

COCKPIT = ("base", "cli", "core", "engine", "plans", "transport")
"""Packages of cockpit whose modules are imported for verbs; the app is not."""

_RUNPY = runpy.run_path.__code__.co_filename

STAND_IN = f"""#!{sys.executable} -IS
import array, json, os, socket, sys
words = %r + sys.argv[1:]
with socket.socket(socket.AF_UNIX) as server:
    server.connect(%r)
    fds = array.array("i", (0, 1, 2))
    server.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    asked = {{"words": words, "cwd": os.getcwd(), "env": dict(os.environ)}}
    server.sendall(json.dumps(asked).encode())
    server.shutdown(socket.SHUT_WR)
    code = server.recv(8)
sys.exit(int(code or 1))
"""


class Warm:
    """Programs to start.

    :param folder: they are there, with the socket to the process that they are copies of
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.python = self._write("python")
        """In place of the interpreter, for ``[-u] SCRIPT …`` and ``[-u] -m MODULE …``."""

    def tool(self, name: str) -> str:
        """The path of a program in place of one that is installed beside the interpreter."""
        return self._write(name, os.path.join(os.path.dirname(sys.executable), name))

    def _write(self, name: str, *words: str) -> str:
        path = self._folder / name
        path.write_text(STAND_IN % (list(words), str(self._folder / "socket")))
        path.chmod(0o700)
        return str(path)


@contextlib.contextmanager
def warm(what: str) -> Iterator[Warm]:
    """Programs to start, until the end of the block.

    :param what: ``torch``, ``cockpit`` or the name of a module: what is imported already
    """
    with tempfile.TemporaryDirectory(prefix="warm-") as name:
        made = Warm(Path(name))
        env = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "tests.warm", name, what]
        cwd = Path(__file__).parents[1]
        with subprocess.Popen(command, cwd=cwd, env=env, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout
                assert process.stdout.readline() == b"ready\n"
                yield made
            finally:
                process.kill()


# The process that they are copies of


def modules(what: str) -> Iterator[str]:
    """Names of what is to be imported."""
    if what != "cockpit":
        yield from TORCH if what == "torch" else [what]
        return
    import cockpit

    for found in pkgutil.walk_packages(cockpit.__path__, "cockpit."):
        if found.name.split(".")[1] in COCKPIT:
            yield found.name


def main(folder: str, what: str) -> None:
    """Import, and make copies, one for each connection."""
    for module in modules(what):
        with contextlib.suppress(ModuleNotFoundError):
            import_module(module)
    gc.freeze()  # else the first collection of each copy writes to every page
    # What a launcher starts is a copy as well; a node's agent needs options that only the real one knows.
    python = f"{folder}/python" if what == "torch" else sys.executable
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{folder}/socket")
        server.listen(64)
        os.write(1, b"ready\n")
        while True:
            connection, _ = server.accept()
            if os.fork() == 0:
                server.close()
                _serve(connection, python)
            connection.close()


def _serve(connection: socket.socket, python: str) -> None:
    """Make a copy that becomes what is asked for, and tell how it ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, fds, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("rb") as file:
        asked = json.load(file)
    pid = os.fork()
    if pid:
        waited = select.poll()
        waited.register(os.pidfd_open(pid), select.POLLIN)
        waited.register(connection, select.POLLHUP)  # whoever asked for it was killed
        waited.poll()
        with contextlib.suppress(OSError):
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                os.killpg(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            connection.sendall(b"%d" % (os.waitstatus_to_exitcode(status) & 0xFF))
        os._exit(0)
    os.setsid()
    connection.close()
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.executable = python
    _run(asked["words"])


def _run(words: list[str]) -> None:
    code: object = 0
    try:
        words = words[1:] if words[0] == "-u" else words
        if words[0] == "-m":
            sys.argv = words[1:]
            sys.path.insert(0, os.getcwd())
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = words
            sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as error:
        code = error.code
    except BaseException as error:
        trace = error.__traceback__
        while trace and trace.tb_frame.f_code.co_filename in (__file__, _RUNPY):
            trace = trace.tb_next
        sys.excepthook(type(error), error, trace)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    main(*sys.argv[1:])
