"""What py-spy's complaints mean, where a node says it of one process and the table of rules of any."""

from __future__ import annotations

NO_PYTHON = "is not a Python process, is still starting, or has a version unknown to this py-spy"

NEWER = "python3 -m pip install --upgrade py-spy"
"""For a Python that is too new for it."""

ROOT_DENIED = "root may not trace other processes here: a container without SYS_PTRACE"
