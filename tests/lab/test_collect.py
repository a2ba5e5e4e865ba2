"""Reports come home whole: verified, resumed, named by us, and one node's trouble is no other's."""

from __future__ import annotations

import hashlib
import json
import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.cockpits import ENV, Cockpits
from tests.lab.fixtures import unused
from tests.lab.lab import Lab
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

PROFILER = """
import os, random, sys
rank = os.environ["RANK"]
folder = os.environ["COCKPIT_DIR"] + "/reports"
def write(name, data):
    with open(os.fsencode(folder) + b"/" + name, "wb") as file:
        file.write(data)
dice = random.Random(rank)
with open(f"{folder}/rank-{rank}.nsys-rep", "wb") as file:
    for _ in range(int(sys.argv[1].split(",")[int(rank)])):
        file.write(dice.randbytes(1 << 20))
    file.write(b"the end of rank %s" % rank.encode())
if rank in sys.argv[2:]:
    names = b"..nsys-rep", b"a b.nsys-rep", b"a_b.nsys-rep", b"screen\\n\\x1b[2J.nsys-rep", b"\\xff.nsys-rep"
    for name in names:
        write(name, b"hostile " + name)
    write(b"run\\x1b[2J.sh", b"echo forbidden")
"""


def profiled(cockpits: Cockpits, sizes: str, *hostile: str) -> None:
    """A run of four ranks whose reports have these megabytes, and ranks that leave hostile names as well."""
    script = cockpits.lab.home() / "profiler.py"
    cockpits.lab.write(None, script, PROFILER)
    done = cockpits.run("--launcher", "command", program=[str(script), sizes, *hostile])
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def finished(lab2: Lab) -> Cockpits:
    """A run that has left a report of each rank, which nobody has collected."""
    cockpits = unused(lab2, "finished")
    profiled(cockpits, "3,4,5,6")
    return cockpits


@pytest.fixture
def uncollected(finished: Cockpits) -> Iterator[Cockpits]:
    """The same run in a state folder of the test's own: what is collected there no other test has."""
    lab = finished.lab
    state = lab.home() / "state-of-a-test"
    runs = state / "cockpit/runs"
    lab.run(["mkdir", "-p", "-m", "700", state, state / "cockpit", runs], check=True)
    lab.run(["cp", "-a", finished.folder, runs], check=True)
    yield Cockpits(lab, finished.name, {"XDG_STATE_HOME": str(state)})
    lab.run(["rm", "-r", state], check=True)


def there(cockpits: Cockpits, node: str) -> dict[str, bytes]:
    """What the node's reports folder has to fetch."""
    folder = cockpits.node_folder(node) / "reports"
    return {path.name: path.read_bytes() for path in folder.glob("*.nsys-rep")}


def here(cockpits: Cockpits) -> Path:
    """Where reports are collected."""
    return cockpits.folder / "reports"


def test_every_report_is_here_and_verified(uncollected: Cockpits) -> None:
    done = uncollected.cockpit("collect", uncollected.name)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("sha256 verified") == 4
    assert "nsys reports hold the whole environment" in done.stderr
    manifest = json.loads((here(uncollected) / "manifest.json").read_text())
    assert manifest["missing"] == {}
    assert manifest["plan"]["run"] == uncollected.name
    assert [node["facts"]["python_version"] for node in manifest["plan"]["nodes"]]
    assert len(manifest["reports"]) == 4
    for report in manifest["reports"]:
        file = here(uncollected) / report["file"]
        data = file.read_bytes()
        assert data == there(uncollected, report["node"])[report["name"]]
        assert report["sha256"] == hashlib.sha256(data).hexdigest()
        assert report["state"] == "collected"
        assert report["size"] == len(data)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    files = sorted(here(uncollected).glob("*/*"))
    before = [(path, path.stat().st_mtime_ns, path.stat().st_ino) for path in files]
    again = uncollected.cockpit("collect", uncollected.name)
    assert again.returncode == 0, again.stderr
    files = sorted(here(uncollected).glob("*/*"))
    assert [(path, path.stat().st_mtime_ns, path.stat().st_ino) for path in files] == before


def test_what_an_earlier_try_left_is_used_or_repaired(uncollected: Cockpits) -> None:
    for node, rank, start in (
        ("0000-node1", 0, b"another file"),
        ("0001-node2", 2, there(uncollected, "node2")["rank-2.nsys-rep"][:2_000_000]),
        ("0001-node2", 3, there(uncollected, "node2")["rank-3.nsys-rep"] + b"and more"),
    ):
        part = here(uncollected) / node / f"rank-{rank}.nsys-rep.part"
        uncollected.lab.write(None, part, "")
        part.write_bytes(start)
    done = uncollected.cockpit("collect", uncollected.name, "--json")
    assert done.returncode == 0, done.stderr
    assert [report["state"] for report in json.loads(done.stdout)["reports"]] == ["collected"] * 4
    for index, node in enumerate(uncollected.lab.nodes):
        files = (here(uncollected) / f"{index:04d}-{node}").iterdir()
        assert {path.name: path.read_bytes() for path in files} == there(uncollected, node)


def test_a_node_that_is_down_costs_only_its_own(uncollected: Cockpits) -> None:
    uncollected.lab.stop_sshd("node2", sessions=True)
    try:
        done = uncollected.cockpit("collect", uncollected.name)
    finally:
        uncollected.lab.start_sshd("node2")
    assert done.returncode == 3
    assert re.search("^node2: no report: connection refused", done.stdout, re.MULTILINE)
    assert done.stdout.count("node1: ") == done.stdout.count("sha256 verified") == 2
    assert f"to try again: cockpit collect {uncollected.name}" in done.stderr
    again = uncollected.cockpit("collect", uncollected.name)
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("sha256 verified") == 4


def connected(address: str) -> bool:
    """Whether this machine has an open ssh connection to the address."""
    wanted = "".join(f"{int(part):02X}" for part in reversed(address.split("."))) + ":0016"
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return any(row[2] == wanted and row[3] == "01" for row in rows)


def test_a_cut_in_mid_transfer_is_resumed_and_names_from_a_node_are_data(cockpits: Cockpits) -> None:
    lab = cockpits.lab
    profiled(cockpits, "0,0,80,0", "1")
    outside = {path for path in cockpits.folder.iterdir() if path.name != "reports"}
    process = lab.popen(
        ["cockpit", "collect", cockpits.name],
        env=ENV,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    part = here(cockpits) / "0001-node2/rank-2.nsys-rep.part"
    until(lambda: part.exists() and part.stat().st_size > 2_000_000, "a part of it is here")
    lab.link_down("node2")
    try:
        so_far = part.stat().st_size  # there is no such file if it came too fast
        until(lambda: not connected(lab.addresses["node2"]), "the cockpit gives up the link")
    finally:
        lab.link_up("node2")
    assert part.stat().st_size >= so_far
    inode = part.stat().st_ino
    said, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said + errors
    for report in json.loads((here(cockpits) / "manifest.json").read_text())["reports"]:
        data = (here(cockpits) / report["file"]).read_bytes()
        assert data == there(cockpits, report["node"])[report["name"]]
        assert report["sha256"] == hashlib.sha256(data).hexdigest()
    assert part.with_name("rank-2.nsys-rep").stat().st_ino == inode

    assert "\x1b" not in said + errors
    assert re.search(r"node1: not fetched.*run.*\.sh", errors)
    found = sorted(path.read_bytes() for path in (here(cockpits) / "0000-node1").iterdir())
    assert found == sorted(there(cockpits, "node1").values())
    assert len(found) == 7
    for path in here(cockpits).rglob("*"):
        name = str(path.relative_to(here(cockpits)))
        assert re.fullmatch(r"manifest\.json|000[01]-node[12](/[A-Za-z0-9_-][A-Za-z0-9._-]*)?", name), name
    assert {path for path in cockpits.folder.iterdir() if path.name != "reports"} == outside
