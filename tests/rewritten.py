"""A node whose agent says what a test wants: a python that runs the real agent and changes its answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CHANGES = "REWRITTEN_ANSWERS"
"""The variable with the path of the answers; without it the agent is the real one."""

# What the first line starts is `python -I -S -c 'exec("…")'`; everything else is for the real python.
_PROGRAM = """
import json, os, sys
boot = sys.argv[-1]
if "cockpit.node.agent" not in boot or not os.environ.get(%(changes)r):
    os.execv(%(python)r, [%(python)r, *sys.argv[1:]])
exec(json.loads(boot[len("exec("):-1]).rpartition("main()")[0])
from cockpit.node import agent
from cockpit.node.calls import NodeError
with open(os.environ[%(changes)r]) as file:
    changes = json.load(file)
real = agent._function
def function(verb):
    def answer(call):
        change = changes.get(verb, {})
        if "error" in change:
            raise NodeError(*change["error"])
        if "answer" in change:
            return change["answer"]
        return {**real(verb)(call), **change.get("merge", {})}
    return answer
agent._function = function
if "hello" in changes:
    hello = agent.hello
    agent.hello = lambda: {**hello(), **changes["hello"]}
agent.main()
"""


def python(folder: Path) -> Path:
    """Make the python, and return its path."""
    program = folder / "agent.py"
    program.write_text(_PROGRAM % {"changes": CHANGES, "python": sys.executable})
    path = folder / "python"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {program} "$@"\n')
    path.chmod(0o700)
    return path


def answers(path: Path, changes: Mapping[str, Any]) -> dict[str, str]:
    """Write what the agent answers: by verb ``error`` (kind, what, hint), ``answer`` or ``merge``.

    :return: variables for the cockpit
    """
    path.write_text(json.dumps(changes))
    return {CHANGES: str(path)}
