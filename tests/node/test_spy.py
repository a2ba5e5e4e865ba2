"""Which py-spy a node uses, and taking one in: only what was announced, where nobody else can change it."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from cockpit.node.calls import Call, NodeError
from cockpit.node.stacks import pyspy as verb
from tests.node import spies

BINARY = b"#!/bin/sh\necho py-spy 0.4.3\n"
OTHER = b"#!/bin/sh\necho py-spy 0.4.4\n"


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An agent on a node without any py-spy; returns an empty folder on its PATH."""
    spies.forget(monkeypatch)
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(verb, "SEARCH_S", 60.0)  # of one that is there and answers
    return folder


def ask(payload: bytes = b"", of: bytes = BINARY, **fields: Any) -> dict[str, Any]:
    """One request of a cockpit that has this binary."""
    header = {"id": 1, "sha256": sha256(of).hexdigest(), **fields}
    return verb.spy(Call(header, payload, lambda head, data: None))


def kept(tmp_path: Path) -> Path:
    """Where the binary is kept."""
    return tmp_path / f"cockpit-{os.geteuid()}" / "bin" / ("py-spy-" + sha256(BINARY).hexdigest()[:16])


def says(path: str) -> bytes:
    """What this py-spy says when run."""
    return subprocess.run([path, "--version"], capture_output=True, check=True).stdout


def test_sent_once_and_found_by_the_next_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask() == {"ready": False}
    with pytest.raises(NodeError, match="not installed on this node"):
        verb.ready()
    assert ask(zlib.compress(BINARY)) == {"ready": True}
    assert kept(tmp_path).stat().st_mode & 0o777 == 0o700
    assert kept(tmp_path).parent.stat().st_mode & 0o777 == 0o700
    spies.forget(monkeypatch)
    assert ask() == {"ready": True}
    # Whoever clears old files out of /tmp does not take it from those who use it.
    kept(tmp_path).unlink()
    assert says(verb.ready()) == b"py-spy 0.4.3\n"


@pytest.mark.parametrize("payload", [zlib.compress(OTHER), b"junk", zlib.compress(BINARY)[:-4]])
def test_something_else_than_announced_is_refused(tmp_path: Path, payload: bytes) -> None:
    with pytest.raises(NodeError, match="not the one"):
        ask(payload)
    assert not kept(tmp_path).exists()
    assert ask()["ready"] is False


@pytest.mark.parametrize("digest", ["../../etc/passwd", "ab", "g" * 64])
def test_a_name_that_is_no_digest_is_refused(digest: str) -> None:
    with pytest.raises(NodeError) as caught:
        ask(zlib.compress(BINARY), sha256=digest)
    assert caught.value.kind == "protocol"


def test_a_binary_that_was_changed_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(zlib.compress(BINARY))
    kept(tmp_path).write_bytes(OTHER)
    spies.forget(monkeypatch)
    assert ask()["ready"] is False
    assert ask(zlib.compress(BINARY)) == {"ready": True}
    assert says(verb.ready()) == b"py-spy 0.4.3\n"
    assert kept(tmp_path).read_bytes() == BINARY


def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    kept(tmp_path).parent.mkdir(parents=True)
    kept(tmp_path).parent.chmod(0o777)
    assert ask(zlib.compress(BINARY))["ready"] is True
    assert list(kept(tmp_path).parent.iterdir()) == []
    assert says(verb.ready()) == b"py-spy 0.4.3\n"


def test_what_does_not_run_here_is_said() -> None:
    binary = b"\x7fELF for another machine"
    with pytest.raises(NodeError, match="does not run on this node"):
        ask(zlib.compress(binary), binary)


def test_the_nodes_own_comes_first(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(zlib.compress(BINARY))
    spies.forget(monkeypatch)
    own = spies.fake(bare / "py-spy", "")
    assert ask() == {"ready": True}
    assert verb.ready() == str(own)


@pytest.mark.parametrize("version", ["py-spy 0.3.14", "py-spy", "", "usage: unknown option"])
def test_an_old_or_strange_one_is_not_used(bare: Path, version: str) -> None:
    (bare / "py-spy").write_text(f"#!/bin/sh\necho '{version}'\n")
    (bare / "py-spy").chmod(0o755)
    assert ask()["ready"] is False
    assert ask(zlib.compress(BINARY)) == {"ready": True}
    assert verb.ready().startswith("/proc/")


@pytest.mark.root
def test_one_that_somebody_else_put_there_is_not_run(bare: Path) -> None:
    os.chown(spies.fake(bare / "py-spy", ""), 4242, -1)
    assert ask()["ready"] is False


def test_a_silent_file_server_holds_nobody_up(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "SEARCH_S", 0.1)
    (bare / "py-spy").write_text("#!/bin/sh\nexec /bin/sleep 1000\n")
    (bare / "py-spy").chmod(0o755)
    assert ask()["ready"] is False


def test_one_that_is_slow_to_answer_is_used_once_it_has(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verb, "SEARCH_S", 0.1)
    os.mkfifo(tmp_path / "go")
    own = spies.fake(bare / "py-spy", "").rename(bare / "behind")
    (bare / "py-spy").write_text(f'#!/bin/sh\nread line <{tmp_path}/go\nexec {own} "$@"\n')
    (bare / "py-spy").chmod(0o755)
    assert ask()["ready"] is False
    (tmp_path / "go").write_text("go\n")
    assert verb.ready() == str(bare / "py-spy")
    assert ask() == {"ready": True}
