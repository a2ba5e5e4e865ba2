"""The limit of open files: raised for ourselves, never for what we start."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# The child waits for its input, as a shell that reads the boot line does.
SCRIPT = """
import resource, subprocess, sys
from cockpit.base import openfiles
child = subprocess.Popen(["/bin/sh", "-c", "read line; ulimit -Sn"], stdin=-1, stdout=-1, text=True)
openfiles.give_back(child.pid)
print(child.communicate("go\\n")[0].strip())
print(openfiles.raise_limit())
print(openfiles.raise_limit())
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
asks = ["/bin/sh", "-c", "read line; ulimit -Sn; ulimit -Hn"]
child = subprocess.Popen(asks, stdin=-1, stdout=-1, text=True)
openfiles.give_back(child.pid)
print(child.communicate("go\\n")[0].strip())
"""


@pytest.mark.parametrize(("soft", "hard"), [(128, 256), (200, 200)])
def test_only_this_process_has_more(soft: int, hard: int) -> None:
    shell = f"ulimit -Sn {soft} && ulimit -Hn {hard} && exec {sys.executable} -c '{SCRIPT}'"
    done = subprocess.run(["/bin/bash", "-c", shell], cwd=ROOT, capture_output=True, text=True, check=True)
    assert [int(line) for line in done.stdout.split()] == [soft, hard, hard, hard, soft, hard]


def test_a_limit_beyond_all_needs_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from cockpit.base import openfiles

    asked: list[tuple[int, int]] = []
    infinite = resource.RLIM_INFINITY
    monkeypatch.setattr(openfiles, "_before", None)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1024, infinite))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: asked.append(limits))
    assert openfiles.raise_limit() == openfiles.ENOUGH
    assert asked == [(openfiles.ENOUGH, infinite)]
