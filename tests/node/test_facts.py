"""What a launch learns of a node's python, as it is there."""

from __future__ import annotations

import sys
from pathlib import Path

from cockpit.node.calls import Call
from cockpit.node.facts import facts


def test_folders_that_are_no_packages_are_not_taken_for_them(tmp_path: Path) -> None:
    for name in ("deepspeed", "accelerate"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "zero3.json").touch()
    # Without site-packages: nothing else has these names.
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    asked = {"do": "facts", "cwd": str(tmp_path), "python": str(bare), "base": str(tmp_path)}
    found = facts(Call({"id": 1, **asked}, b"", lambda head, data: None))
    assert (found["deepspeed"], found["accelerate"], found["no_ssh"]) == (None, None, False)
