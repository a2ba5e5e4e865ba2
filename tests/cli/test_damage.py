"""A damaged run: each verb says so in a line and ends with a code, and other runs do not notice."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cockpit import paths
from cockpit.base.events import Complete, Launched, LinkChanged
from cockpit.cli.main import main
from cockpit.core.run.events import Event
from cockpit.engine.logs.spool import Spool
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry, planned
from tests.engine.test_session import ENDED

BOMBS = {
    "empty": b"",
    "binary": bytes(range(256)) * 40,
    "nested": b"[" * 200_000 + b"\n",
    "digits": b'{"t": ' + b"9" * 400 + b', "e": "ended", "s": {"rank-0.log": ' + b"9" * 5000 + b"}}\n",
    "infinite": b'{"t": 1e400, "e": "ended", "created": 1e400}\n',
    "nan": b'{"t": NaN, "e": "clock", "offset_s": NaN, "s": {"rank-0.log": NaN}}\n',
    "types": b'{"t": [], "e": {}, "s": [1], "run": 5, "nodes": {"a": 1}}\n[]\n5\n"x"\nnull\n',
    "keys": b"{}\n" * 50,
    "names": b'{"t": 1, "s": {"../../x": 5, "rank-x.log": 5, "rank-' + b"1" * 300 + b'.log": 5}}\n',
    "long": b"x" * (9 << 20),
}
"""What a file may hold in place of what it should."""


def _truncated(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def _instead(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.unlink()
        make(path)

    return damage


def _bomb(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


DAMAGE: dict[str, Callable[[Path], object]] = {
    **{name: _bomb(data) for name, data in BOMBS.items()},
    "truncated": _truncated,
    "missing": Path.unlink,
    "directory": _instead(Path.mkdir),
    "fifo": _instead(os.mkfifo),
    "loop": _instead(lambda path: path.symlink_to(path)),
    "device": _instead(lambda path: path.symlink_to("/dev/zero")),
}

SPOOL = "spool/0000-gpu1"
FILES = [
    "manifest.json",
    "journal.jsonl",
    "lock",
    *(f"{SPOOL}/{name}" for name in ("events.jsonl", "sizes.jsonl", "times.jsonl", "rank-0.log")),
    f"{SPOOL}/launcher.log",
]


def ended(name: str) -> Path:
    """A run of one rank on each of two nodes, all of it here."""
    nodes = [NodeEntry(f"gpu{n + 1}", f"/none/gpu{n + 1}", [n], "local") for n in range(2)]
    folder = RunFolder.create(
        Manifest(
            name, 1000.0, nodes, "command", ["train.py"], "/", transport="local", pythons=["/none/python"]
        )
    )
    folder.write(planned(folder.manifest))
    for number, node in enumerate(nodes):
        spool = Spool(folder.spool_dir(node))
        spool.append(f"rank-{number}.log", 0, b"rank %d of %s\n" % (number, name.encode()))
        spool.append("launcher.log", 0, b"launched\n")
        for index in ("sizes.jsonl", "times.jsonl"):
            spool.append(index, 0, b'{"t": 1001.0, "s": {"rank-%d.log": 5}}\n' % number)
        spool.append("events.jsonl", 0, ENDED.replace(b'"rank": 0', b'"rank": %d' % number))
        spool.close()
        for fact in (Launched(node.dir), LinkChanged("ok"), Complete()):
            folder.write(Event(1001.0, node.name, fact))
    folder.close()
    return folder.path


def verb(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run a verb here: what it raises beside errors for people would be a traceback."""
    code = main(words)
    out, err = capsys.readouterr()
    return code, out, err


OUTPUT = f"{SPOOL}/launcher.log"
"""A file that is only printed: what it holds is as good as anything else."""


@pytest.mark.few(24)
@pytest.mark.parametrize(
    ("damage", "file"),
    [
        (damage, file)
        for damage in DAMAGE
        for file in FILES
        if file != OUTPUT or damage not in BOMBS or damage in ("empty", "binary", "long")
    ],
)
def test_a_damaged_file(file: str, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    hurt, healthy = ended("hurt"), ended("healthy")
    DAMAGE[damage](hurt / file)

    code, out, _ = verb(capsys, "ps")
    assert code == 0
    rows = {line.split()[0]: line for line in out.splitlines()[1:]}
    assert rows.keys() >= {"hurt", "healthy"}
    assert " ended " in rows["healthy"]
    code, out, _ = verb(capsys, "ps", "--json")
    assert code == 0
    assert {row["run"] for row in json.loads(out)} == {"hurt", "healthy"}

    code, out, err = verb(capsys, "logs", "hurt")
    if file == "manifest.json":
        assert code == 2
        assert f"{hurt}/manifest.json: manifest cannot be read: " in err
    elif code == 2:
        assert f"{hurt}/{file}: " in err
    else:
        assert "rank 1 of hurt" in out
    for words in (["attach", "--plain", "--give-up", "0.1", "hurt"], ["stacks", "hurt"]):
        code, _, err = verb(capsys, *words)
        assert code in (0, 2, 3)
        assert code == 0 or err

    code, out, err = verb(capsys, "logs", "healthy")
    assert (code, err) == (0, "")
    assert "rank 0 of healthy" in out
    assert verb(capsys, "attach", "--plain", "healthy")[0] == 0
    assert {path.name for path in paths.runs().iterdir()} == {"hurt", "healthy"}
    assert RunFolder(healthy).manifest.run == "healthy"


@pytest.mark.parametrize("damage", ["directory", "fifo", "loop", "device"])
def test_a_log_that_is_none_is_said_and_the_others_are_printed(
    damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = ended("hurt") / SPOOL / "rank-0.log"
    DAMAGE[damage](path)
    code, out, err = verb(capsys, "logs", "hurt")
    assert code == 0
    assert err.count("\n") == 1
    assert f"{path}: cannot read the spool: " in err
    assert err.endswith("; move it away\n")
    assert "rank 1 of hurt" in out
    assert "gpu[1-2]:launcher ×2 | launched" in out


def test_a_folder_of_a_node_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    path = ended("hurt") / SPOOL
    shutil.rmtree(path)
    path.write_text("")
    code, out, err = verb(capsys, "logs", "hurt")
    assert code == 0
    assert f"{path}: cannot read the spool: Not a directory" in err
    assert "rank 1 of hurt" in out
    assert verb(capsys, "ps", "hurt", "--no-connect")[0] == 0


def test_bad_lines_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    path = ended("hurt")
    for file in ("journal.jsonl", f"{SPOOL}/events.jsonl"):
        with (path / file).open("ab") as damaged:
            damaged.write(BOMBS["nested"] + BOMBS["types"])
    folder = RunFolder(path)
    assert folder.model().nodes["gpu1"].damaged == 6
    assert folder.damaged == 6
    code, out, _ = verb(capsys, "ps", "hurt", "--no-connect")
    assert code == 0
    assert "journal.jsonl: 6 damaged lines are ignored" in out


def test_a_torn_line_costs_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    path = ended("hurt")
    whole = (path / "journal.jsonl").read_bytes()
    (path / "journal.jsonl").write_bytes(whole + b'{"t": 1, "e": "li')
    folder = RunFolder(path)
    folder.write(Event(1002.0, "gpu1", LinkChanged("stale")))
    assert folder.model().nodes["gpu1"].link == "stale"
    assert (path / "journal.jsonl").read_bytes().startswith(whole)


def test_a_manifest_of_a_later_version(capsys: pytest.CaptureFixture[str]) -> None:
    file = ended("hurt") / "manifest.json"
    manifest = json.loads(file.read_text())
    file.write_text(json.dumps({**manifest, "format": 2, "version": "9.1"}))
    code, _, err = verb(capsys, "logs", "hurt")
    assert code == 2
    assert "made by cockpit 9.1, which is newer than this one" in err


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("run", "../../x"),
        ("created", "now"),
        ("nodes", []),
        ("nodes", [{"name": "a", "dir": "relative", "ranks": [0]}]),
        ("nodes", [{"name": "a", "dir": "/a", "ranks": [-1]}]),
        ("nodes", [{"name": "a", "dir": "/a", "ranks": [1 << 20]}]),
        ("nodes", [{"name": "a", "dir": "/a", "ranks": [0]}, {"name": "b", "dir": "/b", "ranks": [0]}]),
        ("nodes", [{"name": "a", "dir": "/a", "ranks": [0]}, {"name": "a", "dir": "/b", "ranks": [1]}]),
        ("on_failure", "burn"),
        ("transport", "telnet"),
        ("failure_wait_s", "soon"),
    ],
)
def test_a_manifest_is_refused(field: str, value: object, capsys: pytest.CaptureFixture[str]) -> None:
    file = ended("hurt") / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), field: value}))
    code, _, err = verb(capsys, "attach", "--plain", "hurt")
    assert code == 2
    assert f"manifest cannot be read: .{field}" in err
