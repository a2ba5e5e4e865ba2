"""The revision of a run's code: what git says, within its time, and nothing else."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from cockpit.engine.launch.code import DIFF, FILE, keep_revision, kept_diff, kept_revision, revision
from cockpit.errors import Exit
from tests import needs
from tests.cli.verbs import Verbs
from tests.waiting import PATIENCE_S, soon, until


def git(tree: Path, *words: str) -> str:
    who = ["-c", "user.name=ada", "-c", "user.email=ada@example.org"]
    return subprocess.run(
        ["git", *who, *words], cwd=tree, check=True, capture_output=True, text=True, timeout=PATIENCE_S
    ).stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    needs.require("git")
    place = tmp_path / "tree"
    place.mkdir()
    git(place, "init", "-q")
    (place / "train.py").write_text("print(1)\n")
    git(place, "add", ".")
    git(place, "commit", "-qm", "one")
    return place


def test_commit_and_changes(tree: Path, tmp_path: Path) -> None:
    asyncio.run(keep_revision(tmp_path, str(tree)))
    clean = kept_revision(tmp_path)
    assert clean is not None
    assert (clean.commit, clean.diff) == (git(tree, "rev-parse", "HEAD"), "")
    (tree / "train.py").write_text("print(2)\n")
    changed, again = (asyncio.run(revision(str(tree))) for _ in range(2))
    assert changed is not None
    assert changed == again
    assert changed.revision.commit == clean.commit
    assert changed.revision.text == f"{clean.commit[:12]} with changes {changed.revision.diff[:8]}"


def test_the_changes_are_kept_if_that_is_asked_for(tree: Path, tmp_path: Path) -> None:
    asyncio.run(keep_revision(tmp_path, str(tree), diff=True))
    assert not (tmp_path / DIFF).exists()  # there are none
    (tree / "train.py").write_text("print(2)\n")
    asyncio.run(keep_revision(tmp_path, str(tree)))
    assert not (tmp_path / DIFF).exists()
    asyncio.run(keep_revision(tmp_path, str(tree), diff=True))
    assert kept_diff(tmp_path) == git(tree, "diff", "HEAD") + "\n"
    assert (tmp_path / DIFF).stat().st_mode & 0o777 == 0o600
    found = kept_revision(tmp_path)
    assert found is not None
    assert found.diff == hashlib.sha256((tmp_path / DIFF).read_bytes()).hexdigest()


def test_of_many_changes_the_first_ones_are_kept(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cockpit.engine.launch.code.KEPT", 5000)
    (tree / "train.py").write_text("".join(f"print({number})\n" for number in range(10_000)))
    asyncio.run(keep_revision(tmp_path, str(tree), diff=True))
    *lines, last = kept_diff(tmp_path).splitlines()
    whole = git(tree, "diff", "HEAD")
    assert last == f"... cut: the first 5 kB of {len(whole) / 1e3:.0f} kB are kept"
    assert lines == whole.splitlines()[: len(lines)]
    assert len("\n".join(lines)) <= 5000 < len("\n".join(lines)) + 20
    found = kept_revision(tmp_path)
    assert found is not None
    assert found.diff == hashlib.sha256(f"{whole}\n".encode()).hexdigest()


def test_a_diff_that_is_no_file_of_ours_is_none(tmp_path: Path) -> None:
    assert kept_diff(tmp_path) == ""
    (tmp_path / DIFF).write_bytes(b"x" * (3 << 20))
    assert kept_diff(tmp_path) == ""
    (tmp_path / DIFF).unlink()
    os.mkfifo(tmp_path / DIFF)
    assert kept_diff(tmp_path) == ""


@pytest.mark.slow
def test_a_launch_keeps_them_by_option_and_by_setting(
    tree: Path, tmp_path: Path, quick_cockpit: tuple[str, ...]
) -> None:
    world = Verbs(tmp_path / "state", tree, quick_cockpit)
    (tree / "train.py").write_text("print(2)\n")
    config = tmp_path / "config" / "cockpit" / "config.toml"
    config.parent.mkdir(parents=True)
    settings = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    asked = {"plain": ([], ""), "asked": (["--git-diff"], ""), "set": ([], "git_diff = true\n")}
    for name, (option, setting) in asked.items():
        config.write_text(setting)
        file = world.runs / name / (FILE if name == "plain" else DIFF)
        verb, *words = world.words(name, f"while [ ! -e {file} ]; do sleep 0.1; done\n")
        done = world.call(verb, *option, *words, env=settings)
        assert done.code == Exit.OK, done.both
        assert kept_revision(world.runs / name) is not None
        assert ("+print(2)" in kept_diff(world.runs / name)) == (name != "plain")


def test_without_a_repository_nothing_is_written(tmp_path: Path) -> None:
    asyncio.run(keep_revision(tmp_path, str(tmp_path)))
    asyncio.run(keep_revision(tmp_path, str(tmp_path / "missing")))
    assert not (tmp_path / FILE).exists()
    assert kept_revision(tmp_path) is None


def test_nothing_of_the_repository_is_run(tree: Path, tmp_path: Path) -> None:
    """Its configuration may name programs; git is told not to start them."""
    ran = tmp_path / "ran"
    script = tmp_path / "evil"
    script.write_text(f"#!/bin/sh\ntouch {ran}\n")
    script.chmod(0o755)
    (tree / ".gitattributes").write_text("*.py diff=evil\n")
    for name in ("core.fsmonitor", "diff.external", "diff.evil.textconv", "diff.evil.command"):
        git(tree, "config", name, str(script))
    (tree / "train.py").write_text("print(3)\n")
    assert asyncio.run(revision(str(tree))) is not None
    assert not ran.exists()


def test_git_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all that it has started."""
    pid = tmp_path / "pid"
    hangs = tmp_path / "bin" / "git"
    hangs.parent.mkdir()
    hangs.write_text(f"#!/bin/sh\nsleep 1000 & echo $! > {pid}.new; mv {pid}.new {pid}; wait\n")
    hangs.chmod(0o755)
    monkeypatch.setenv("PATH", f"{hangs.parent}:{os.environ['PATH']}")

    async def asked() -> None:
        asking = asyncio.create_task(revision(str(tmp_path), limit_s=PATIENCE_S))
        await soon(pid.exists, "git has started something")
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(asked())
    started = Path(f"/proc/{int(pid.read_text())}/stat")
    until(lambda: _is_over(started), "what it has started is ended")
    assert asyncio.run(revision(str(tmp_path), limit_s=0.05)) is None


def _is_over(stat: Path) -> bool:
    try:
        return stat.read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"commit": "x"}', '{"commit": "' + "a" * 40 + '", "diff": "<b>"}', '{"commit": 5}'],
)
def test_a_damaged_file_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(text)
    assert kept_revision(tmp_path) is None
