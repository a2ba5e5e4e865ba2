"""What a launch learns of a node's python, as it is there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from cockpit.node.calls import Call
from cockpit.node.facts import facts, packages
from tests.node.runs import alive
from tests.waiting import until


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


HELP = """
usage: nsys profile [<args>] [application]
\t-b, --backtrace=
\t--nvtx-domain-[include|exclude]=
\t-h, --help=[<tag>]
\t   Use the '--cpu-core-events=help' switch, not half-way --x- or a-b.
"""


def switches(folder: Path, help_: str) -> list[str]:
    """The options that are found where nsys is a script."""
    nsys = folder / "nsys"
    nsys.write_text(f"#!/bin/sh\n{help_}\n")
    nsys.chmod(0o755)
    asked: dict[str, Any] = {"do": "facts", "cwd": str(folder), "python": sys.executable, "base": str(folder)}
    asked["tools"], asked["help"] = {"nsys": [str(nsys)]}, ["nsys", "profile", "--help"]
    found: list[str] = facts(Call({"id": 1, **asked}, b"", lambda head, data: None))["switches"]
    return found


def test_options_are_those_that_the_profilers_help_names(tmp_path: Path) -> None:
    helps = f"[ \"$*\" = 'profile --help' ] && cat <<'END' >&2\n{HELP}END\nexit 1"
    known = ["-b", "--backtrace", "--nvtx-domain-", "-h", "--help", "--cpu-core-events", "--x-"]
    assert switches(tmp_path, helps) == known
    assert switches(tmp_path, "exit 0") == []
    assert switches(tmp_path, "printf '\\377--\\0'") == []


def test_a_help_that_takes_too_long_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "started"
    monkeypatch.setattr("cockpit.node.facts._HELP_S", 5.0)
    assert switches(tmp_path, f"sleep 1000 &\necho $! >{started}\nwait") == []
    pid = int(started.read_text())
    until(lambda: not alive(pid), "what it started is ended")


def test_what_is_installed_has_a_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same where the same is installed, wherever that is; another one with another version."""
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)

    def looked(place: str, *names: str) -> tuple[int, str]:
        for name in names:
            (tmp_path / place / name).mkdir(parents=True)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / place))
        asked = {"do": "facts", "cwd": str(tmp_path), "python": str(bare), "base": str(tmp_path)}
        found = facts(Call({"id": 1, **asked}, b"", lambda head, data: None))
        return found.get("installed", 0), found.get("installed_hash", "")

    first = looked("a", "torch-2.4.0.dist-info", "numpy-2.1.0.dist-info", "torch")
    assert first[0] == 2
    assert looked("b", "numpy-2.1.0.dist-info", "torch-2.4.0.dist-info") == first
    assert looked("c", "numpy-2.1.1.dist-info", "torch-2.4.0.dist-info") not in (first, (0, ""))
    assert looked("d", "torch") == (0, "")

    def listed(digest: str) -> list[str]:
        call = Call({"id": 2, "do": "packages", "digest": digest}, b"", lambda head, data: None)
        return list(packages(call)["names"])

    assert listed(first[1]) == ["numpy-2.1.0.dist-info", "torch-2.4.0.dist-info"]
    assert listed("0" * 16) == []
