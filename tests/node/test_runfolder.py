"""Making run folders: what is refused, and that nothing stays behind."""

from __future__ import annotations

import grp
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cockpit.base import owners
from cockpit.node.run.folder import StartError, start
from cockpit.node.run.place import RunFolderError, trouble
from tests.needs import lacking, require
from tests.node.conftest import Launch
from tests.node.runs import alive
from tests.waiting import until


def spec(base: Path, **facts: Any) -> dict[str, Any]:
    common = {
        "format": 1,
        "run": f"refused-{uuid4().hex}",
        "node": "node1",
        "index": 0,
        "dir": f"{base}/refused/node1",
    }
    rest = {"script": "true", "files": {}, "env": {}, "ranks": [0], "launcher": "command"}
    return {**common, **rest, "profile": None, "grace_s": 1, "finalise_s": 1, **facts}


def test_existing_folder_is_refused(launch: Launch, pyz: bytes) -> None:
    run = launch("true")
    run.ended()
    before = (run.folder / "events.jsonl").read_bytes()
    with pytest.raises(RunFolderError, match="exists already"):
        start(spec(run.folder.parents[1], dir=str(run.folder)), sys.executable, pyz)
    assert (run.folder / "events.jsonl").read_bytes() == before


def test_symbolic_link_is_refused(tmp_path: Path, pyz: bytes) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "base").symlink_to("real")
    with pytest.raises(RunFolderError, match="symbolic link"):
        start(spec(tmp_path / "base"), sys.executable, pyz)
    assert not list((tmp_path / "real").iterdir())


@pytest.mark.parametrize("which", ["base", "base/refused"])
def test_folder_that_others_may_write_is_refused(tmp_path: Path, pyz: bytes, which: str) -> None:
    (tmp_path / "base/refused").mkdir(parents=True, mode=0o700)
    (tmp_path / which).chmod(0o770)
    with pytest.raises(RunFolderError, match=r"others may write .*mode 0770"):
        start(spec(tmp_path / "base"), sys.executable, pyz)


@pytest.mark.root
def test_folder_of_somebody_else_is_refused(tmp_path: Path, pyz: bytes) -> None:
    (tmp_path / "base").mkdir(mode=0o700)
    os.chown(tmp_path / "base", 65534, 65534)
    with pytest.raises(RunFolderError, match=r"base belongs to \w+, not to root"):
        start(spec(tmp_path / "base"), sys.executable, pyz)


def test_what_a_launch_will_refuse_is_known_before_and_nothing_is_made(tmp_path: Path) -> None:
    base = tmp_path / "base"
    assert trouble(str(base)) == ""
    assert not base.exists()
    base.mkdir(mode=0o700)
    assert trouble(str(base)) == ""
    base.chmod(0o770)
    assert "others may write to" in trouble(str(base))
    (tmp_path / "link").symlink_to(base)
    assert trouble(str(tmp_path / "link")) == f"{tmp_path}/link is a symbolic link"
    assert "not an absolute path" in trouble("base")
    (tmp_path / "file").touch()
    assert "file cannot be written" in trouble(str(tmp_path / "file" / "base"))


@pytest.mark.root
@pytest.mark.parametrize(("option", "why"), [("ro", "Read-only file system"), ("size=16k", "disk is full")])
def test_a_file_system_that_takes_no_run_folder(tmp_path: Path, option: str, why: str) -> None:
    place = tmp_path / "mounted"
    place.mkdir()
    options = ["-t", "tmpfs", "-o", f"mode=700,{option}", "none", str(place)]
    if subprocess.run([require("mount"), *options], capture_output=True, check=False).returncode:
        lacking("mounting a tmpfs is not permitted")
    try:
        assert why in trouble(str(place / "base"))
    finally:
        subprocess.run(["umount", str(place)], capture_output=True, check=False)


@pytest.mark.root
def test_what_others_may_change_on_the_way_is_refused(tmp_path: Path, pyz: bytes) -> None:
    above = tmp_path / "tmp"
    above.mkdir()
    above.chmod(0o777)
    with pytest.raises(RunFolderError, match=r"anybody may write to .*tmp \(mode 0777\)"):
        start(spec(above / "base"), sys.executable, pyz)
    assert not list(above.iterdir())


def test_a_trusted_group_may_change_what_is_on_the_way(
    launch: Launch, tmp_path: Path, pyz: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners, "_is_private", lambda gid: False)
    tmp_path.chmod(0o2770)
    group = grp.getgrgid(tmp_path.stat().st_gid).gr_name
    with pytest.raises(RunFolderError, match=f'set trusted_group = "{group}"'):
        start(spec(tmp_path / "base"), sys.executable, pyz)
    launch("true", trusted_group=group).ended()


@pytest.mark.root
def test_noexec_is_refused(tmp_path: Path, pyz: bytes) -> None:
    mount = require("mount")
    base = tmp_path / "base"
    base.mkdir(mode=0o700)
    try:
        options = ["-t", "tmpfs", "-o", "noexec,mode=700", "none", str(base)]
        if subprocess.run([mount, *options], capture_output=True, check=False).returncode:
            lacking("mounting a tmpfs is not permitted")
        with pytest.raises(RunFolderError, match="noexec"):
            start(spec(base), sys.executable, pyz)
        assert trouble(str(base)) == f"programs cannot be run from {base} (mounted noexec)"
        assert "mounted noexec" in trouble(str(base / "not" / "there"))
        assert not list(base.iterdir())
    finally:
        subprocess.run(["umount", str(base)], capture_output=True, check=False)


@pytest.mark.parametrize(
    ("facts", "said"),
    [({"files": {"../x": ""}}, "not a file name"), ({"files": {"node.pyz": ""}}, "File exists")],
)
def test_nothing_stays_behind(tmp_path: Path, pyz: bytes, facts: dict[str, Any], said: str) -> None:
    with pytest.raises(StartError, match=said):
        start(spec(tmp_path / "base", **facts), sys.executable, pyz)
    assert not list((tmp_path / "base").iterdir())


@pytest.mark.slow
def test_a_supervisor_that_says_nothing_is_ended(tmp_path: Path) -> None:
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nsleep 1000 & echo $! >$0.pid; cat >/dev/null; wait\n")
    silent.chmod(0o700)
    with pytest.raises(StartError, match="did not start within"):
        start(spec(tmp_path / "base"), str(silent), b"", timeout_s=5)
    assert not list((tmp_path / "base").iterdir())
    pid = int(Path(f"{silent}.pid").read_text())
    until(lambda: not alive(pid), "what it has started is ended too")


def test_node_code_that_a_run_starts_with_is_compiled_for_this_python(launch: Launch) -> None:
    run = launch("true")
    run.ended()
    pyz = str(run.folder / "node.pyz")
    loads = (
        f"import sys; sys.path.insert(0, {pyz!r}); from cockpit.node.run import supervisor, wrapper; "
        "print(*(module.__spec__.cached or module.__file__ for name, module in sys.modules.items() if "
        "name.startswith('cockpit')))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", loads], capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    assert f"{pyz}/cockpit/node/run/wrapper.pyc" in loaded
    assert [name for name in loaded if name.endswith(".py")] == []
    with zipfile.ZipFile(pyz) as archive:
        assert "cockpit/node/stacks/dump.py" in archive.namelist()


def test_another_python_gets_the_sources(tmp_path: Path, pyz: bytes) -> None:
    other = tmp_path / "other python"
    other.symlink_to(sys.executable)
    started = start(spec(tmp_path / "base"), str(other), pyz)
    folder = Path(started["dir"])
    assert (folder / "node.pyz").read_bytes() == pyz
    until(lambda: '"ended"' in (folder / "events.jsonl").read_text(), "the run ended")


def test_python_that_is_not_there(tmp_path: Path, pyz: bytes) -> None:
    with pytest.raises(OSError, match="no-such-python"):
        start(spec(tmp_path / "base"), "/no-such-python", pyz)
    assert not list((tmp_path / "base").iterdir())
