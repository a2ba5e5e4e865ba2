"""What only a login shell has: ranks are started without one."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
from typing import Dict

from cockpit.base import verbs

TOOLS = ("ninja", "nvcc", "g++", "nsys", "deepspeed", "torchrun")
VARIABLES = ("CUDA_HOME", "LD_LIBRARY_PATH")
_MARK = "cockpit-login:"
_SCRIPT = "; ".join(
    [
        # Without $(…): each is a fork of a shell that has read all its files.
        *("printf '\\n%%s' %s%s=; command -v %s" % (_MARK, tool, tool) for tool in TOOLS),
        *("printf '\\n%%s%%s\\n' %s%s= \"$%s\"" % (_MARK, name, name) for name in VARIABLES),
    ]
)


def login(asked: verbs.Checkup, payload: bytes) -> Dict[str, str]:
    """Programs and variables that an interactive login shell has, and this process has not.

    :raises OSError: the shell did not end in time
    """
    shell = ""
    with contextlib.suppress(KeyError):  # a user without a name
        shell = pwd.getpwuid(os.geteuid()).pw_shell
    if os.path.basename(shell) not in ("bash", "zsh"):
        shell = shutil.which("bash") or ""
    if not shell:
        return {}
    # In a session of its own: an interactive shell may take the terminal, or wait for it.
    child = subprocess.Popen(
        [shell, "-lic", _SCRIPT],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        said = child.communicate(timeout=asked.limit_s)[0].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        raise OSError("a login shell did not start within %g s" % asked.limit_s) from None
    finally:
        # What its start files left in the background is in its group.
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        if child.stdout is not None:
            child.stdout.close()
    lines = [line[len(_MARK) :] for line in said.splitlines() if line.startswith(_MARK)]
    found = dict(line.partition("=")[::2] for line in lines)
    return {name: value[:4096] for name, value in found.items() if value and not _have(name)}


def _have(name: str) -> bool:
    return bool(os.environ.get(name) if name in VARIABLES else shutil.which(name))
