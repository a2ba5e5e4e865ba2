"""Limits on memory, and what of it is used: cgroups of both versions, made up and real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cockpit.node import cgroups, procfs
from cockpit.node import memory_limits as limits
from cockpit.node.memory_limits import Room
from tests.cgroups import entering, real_group
from tests.node import folders
from tests.node.test_samples import looks

V1_STAT = "active_file 1\ninactive_file 2\ntotal_rss 500\ntotal_active_file 100\ntotal_inactive_file 50\n"
V2_STAT = "anon 600\nfile 400\nshmem 70\nactive_file 200\ninactive_file 30\nslab_reclaimable 20\nslab 90\n"


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Made-up groups; the paths that a process shows are in ``paths`` beside them."""
    read = procfs.contents

    def contents(path: str) -> bytes:
        return read(str(tmp_path / "paths") if path == "/proc/7/cgroup" else path)

    monkeypatch.setattr(procfs, "contents", contents)
    monkeypatch.setattr(cgroups, "ROOT", str(tmp_path / "fs"))
    return tmp_path


def write(group: Path, folder: str, **files: object) -> None:
    place = group / "fs" / folder
    place.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (place / name.replace("memory_", "memory.")).write_text(f"{value}\n")


def rooms(most: int | None = 10_000) -> list[Room]:
    return list(limits.rooms("7", most))


def test_version_2_with_the_limits_of_a_slurm_step(group: Path) -> None:
    """The page cache and slabs that can be freed do not count; memory that is shared does."""
    (group / "paths").write_text("0::/slurm/job_7/step_0/task_0\n")
    write(group, "slurm/job_7/step_0/task_0", memory_max="max", memory_current=900, memory_stat=V2_STAT)
    write(group, "slurm/job_7/step_0", memory_max=2000, memory_current=1000, memory_stat=V2_STAT)
    write(group, "slurm/job_7", memory_max=3000, memory_current=1200, memory_stat=V2_STAT)
    write(group, "slurm", memory_max=20_000, memory_current=1500, memory_stat=V2_STAT)
    assert rooms() == [Room("/slurm/job_7/step_0", 750, 2000), Room("/slurm/job_7", 950, 3000)]


def test_version_1(group: Path) -> None:
    """Numbers of a whole tree are those with ``total_``; no limit is a very large one."""
    (group / "paths").write_text("3:cpu:/other\n4:memory:/job/rank\n0::/elsewhere\n")
    stat = {"memory_stat": V1_STAT}
    none = {"memory_limit_in_bytes": (1 << 63) - 4096, "memory_usage_in_bytes": 5}
    write(group, "memory/job/rank", **none, **stat)
    write(group, "memory/job", memory_limit_in_bytes=4000, memory_usage_in_bytes=700, **stat)
    write(group, "memory", **none, **stat)
    assert rooms() == [Room("/job", 550, 4000)]


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        ("0::/docker/abc\n", [Room("/", 1, 500)]),
        ("0::/\n", [Room("/", 1, 500)]),
        ("0::/../outside\n", []),
        ("", []),
    ],
)
def test_in_a_container(group: Path, paths: str, found: list[Room]) -> None:
    """Its own group is at the root, whatever its host calls it."""
    (group / "paths").write_text(paths)
    write(group, "", memory_max=500, memory_current=231, memory_stat=V2_STAT.replace("20\n", "0\n"))
    assert rooms() == found


def test_kills_are_counted_in_a_process_s_own_group(group: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = procfs.contents
    own = "/proc/self/cgroup"
    monkeypatch.setattr(procfs, "contents", lambda path: read("/proc/7/cgroup" if path == own else path))
    fs = str(group / "fs")
    (group / "paths").write_text("3:cpu:/other\n4:memory:/job/rank\n0::/job\n")
    assert cgroups.oom_kills() == ("", 0)
    write(group, "memory/job/rank", memory_oom_control="oom_kill_disable 0\nunder_oom 0")
    write(group, "memory/job", memory_oom_control="under_oom 0\noom_kill 7")
    assert cgroups.oom_kills() == (f"{fs}/memory/job", 7)
    write(group, "memory/job/rank", memory_oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 2")
    assert cgroups.oom_kills() == (f"{fs}/memory/job/rank", 2)
    (group / "paths").write_text("0::/job/step\n")
    write(group, "job", memory_events="low 0\nmax 3\noom 9\noom_kill 4\noom_group_kill 1")
    assert cgroups.oom_kills() == (f"{fs}/job", 4)
    write(group, "job/step", memory_events="oom 9\noom_kill nonsense")
    assert cgroups.oom_kills() == (f"{fs}/job", 4)


EATS = """
import sys
held = []
while True:
    held.append(bytearray(b"x") * (4 << 20))
"""


KILLED = "import os; os.kill(os.getpid(), 9)"


@pytest.mark.root
@pytest.mark.parametrize(("program", "kills"), [(EATS, 1), (KILLED, 0)])
def test_a_rank_in_a_real_cgroup_that_the_oom_killer_ends(
    tmp_path: Path, pyz: bytes, program: str, kills: int
) -> None:
    """Its wrapper tells it from a rank that somebody else has killed."""
    pack = tmp_path / "node.pyz"
    pack.write_bytes(pyz)
    with real_group(128 << 20) as members:
        wrap = [sys.executable, "-I", "-S", str(pack), "wrap", "1", sys.executable, "-c", program]
        environment = {**os.environ, "RANK": "0", "COCKPIT_DIR": str(tmp_path)}
        assert subprocess.run([*entering(members), *wrap], env=environment, check=False).returncode == -9
    told = json.loads((tmp_path / "rank-0.exit.json").read_text())
    assert (told["signal"], told["oom_kills"]) == (9, kills)


GROWS = """
import sys
held, file = [], open(sys.argv[1], "wb")
for line in sys.stdin:
    held.append(bytearray(b"x") * (32 << 20))
    file.write(bytes(32 << 20))
    file.flush()
    print(len(held), flush=True)
"""


@pytest.mark.root
def test_a_process_that_allocates_in_a_real_cgroup(tmp_path: Path) -> None:
    """What it allocates is seen under the group's limit; what it writes to files is not."""
    folders.make(tmp_path, [0])
    words = [sys.executable, "-c", GROWS, str(tmp_path / "written")]
    pipe = subprocess.PIPE
    with (
        real_group(1 << 30) as members,
        subprocess.Popen(words, text=True, stdin=pipe, stdout=pipe) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        members.write_text(str(process.pid))
        (tmp_path / "rank-0.start.json").write_text(folders.start(0, process.pid))
        used, held = [], []
        for _ in range(3):
            print(file=process.stdin, flush=True)
            process.stdout.readline()
            item = looks(tmp_path, lambda _: True)[0]
            (room,) = (each for each in item["memory"] if each["limit_bytes"] == 1 << 30)
            assert room["of"] == f"/cockpit-test-{os.getpid()}"
            assert room["ranks"] == [0]
            used.append(room["used_bytes"])
            held.append(item["ranks"]["0"]["held_bytes"])
        process.stdin.close()
    for sizes in (used, held):
        grown = sizes[2] - sizes[0]
        assert grown == pytest.approx(64 << 20, rel=0.25)
