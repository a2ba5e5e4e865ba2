"""The last calls of a rank: noted by real Pythons that have ``sys.monitoring``, read after SIGKILL."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.base import record
from cockpit.base.answers import CallsAnswer
from cockpit.base.gate import read
from cockpit.base.progress import calls
from cockpit.base.progress.ring import Malformed
from cockpit.core.stacks import last_calls as shown
from cockpit.node.calls import Call
from cockpit.node.stacks import last_calls
from tests.pythons import python

SOURCES = Path(record.__file__).parents[1] / "node" / "probe"

PROGRAM = """
import os, signal, sys, threading
import chosen, other

def loop():
    for number in range(20):
        other.helper(number)
        chosen.read_shard(number)

thread = threading.Thread(target=chosen.in_thread)
thread.start()
thread.join()
loop()
chosen.Loader().next()
{more}
print("there", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""

CHOSEN = """
def read_shard(number):
    return number

def in_thread():
    pass

class Loader:
    def next(self):
        return read_shard(0)
"""


@pytest.fixture
def rings() -> Iterator[Path]:
    """A folder in memory, as supervisors make it."""
    folder = Path(tempfile.mkdtemp(prefix="cockpit-test-", dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def run(tmp_path: Path, rings: Path) -> Path:
    """A run folder that knows them."""
    folder = tmp_path / "run"
    (folder / "probe").mkdir(parents=True)
    supervisor = {"pid": 1, "ticks": 1}
    known = {"run": "r", "node": "n", "boot_id": "b", "ranks": [3, 4], "supervisor": supervisor}
    told = {"format": record.FORMAT, **known, "rings": str(rings)}
    (folder / "record.json").write_text(json.dumps(told))
    return folder


def killed(version: str, folder: Path, rings: Path, more: str = "", packages: str = "chosen") -> int:
    """Run the program as rank 3 with the probe until it kills itself; its pid."""
    place = folder / "python"
    place.mkdir()
    for name in record.PROBE_SOURCES:
        shutil.copy(SOURCES / name, place / name)
    (folder / "chosen.py").write_text(CHOSEN)
    (folder / "other.py").write_text("def helper(number):\n    return number\n")
    (folder / "train.py").write_text(PROGRAM.format(more=more))
    environ = {**os.environ, "PYTHONPATH": str(place), record.ENV_PROBE: "auto 3 0"}
    environ |= {record.ENV_RINGS: str(rings), record.ENV_CALLS: packages}
    words = [python(version), str(folder / "train.py")]
    process = subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, said = process.communicate()
    assert (process.returncode, out, said) == (-signal.SIGKILL, "there\n", "")
    return process.pid


def asked(run: Path, *ranks: int) -> CallsAnswer:
    call = Call({"id": 1, "do": "calls", "dir": str(run), "ranks": list(ranks)}, b"", lambda head, data: None)
    return read(CallsAnswer, last_calls.calls(call))


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_what_a_killed_rank_called_last_can_be_read(
    version: str, tmp_path: Path, rings: Path, run: Path
) -> None:
    pid = killed(version, tmp_path, rings)
    (found,) = asked(run, 3, 4).ranks
    assert (found.rank, found.pid, found.why) == (3, pid, "")
    names = [call.name for call in found.calls]
    assert names[:3] == ["read_shard", "Loader.next", "read_shard"]
    assert names.count("read_shard") == 21
    assert "helper" not in names
    assert found.calls[0].file.endswith("/chosen.py")
    assert (found.calls[0].line, found.calls[0].main) == (2, True)
    assert [call.main for call in found.calls if call.name == "in_thread"] == [False]
    ages = [call.age_s for call in found.calls]
    assert ages == sorted(ages)
    text = "\n".join(shown.lines({3: shown.harmless(found)}))
    assert f"last calls of rank 3 (pid {pid}), the newest first:" in text
    assert "more with --json" in text
    assert asked(run, 4).ranks == ()


def test_a_child_writes_nothing_and_many_calls_leave_the_last(tmp_path: Path, rings: Path, run: Path) -> None:
    more = f"""
for number in range({calls.CAPACITY + 100}):
    chosen.in_thread()
import warnings
warnings.simplefilter("ignore")  # the system may still count a thread that has just been joined
if not os.fork():
    chosen.read_shard(1)
    os._exit(0)
os.wait()
"""
    killed("3.12", tmp_path, rings, more)
    (path,) = rings.glob("3.*" + record.CALLS)
    found = calls.read(path.read_bytes(), 100_000)
    assert {call.name for call in found.last} == {"in_thread"}
    assert len(found.last) == calls.CAPACITY


def test_names_beyond_their_room_are_none(tmp_path: Path, rings: Path, run: Path) -> None:
    more = """
for number in range(1500):
    name = "f%d_" % number + "x" * 200
    space = {}
    exec(compile("def %s(): pass" % name, "/w/chosen.py", "exec"), space)
    space[name]()
"""
    killed("3.12", tmp_path, rings, more)
    (path,) = rings.glob("3.*" + record.CALLS)
    found = calls.read(path.read_bytes())
    assert (found.last[0].name, found.why) == ("a function without a name here", "")


@pytest.mark.parametrize("version", ["3.8", "3.11"])
def test_an_older_python_says_why_not(version: str, tmp_path: Path, rings: Path, run: Path) -> None:
    killed(version, tmp_path, rings)
    (found,) = asked(run, 3).ranks
    assert found.why == f"Python {version} has no sys.monitoring: 3.12 has"
    assert f"rank 3 notes no calls: {found.why}" in "\n".join(shown.lines({3: found}))


def test_others_that_use_all_of_it_keep_it(rings: Path) -> None:
    code = (
        "import sys\n"
        "for number in (3, 4, 5): sys.monitoring.use_tool_id(number, 'theirs')\n"
        f"space = {{}}\nexec(open({str(SOURCES / 'calls.py')!r}).read(), space)\n"
        f"space['arm']({str(rings / '3.7.calls')!r}, 3, ['chosen'])\n"
    )
    subprocess.run([python("3.12"), "-c", code], check=True)
    found = calls.read((rings / "3.7.calls").read_bytes())
    assert (found.why, found.last) == ("others use all of sys.monitoring in it", ())


def test_bytes_of_anybody_are_calls_or_none(rings: Path, run: Path) -> None:
    dice = random.Random(7)
    for _ in range(200):
        data = bytearray(dice.randbytes(512).ljust(calls.SIZE, b"\t"))
        struct.pack_into("=QQ", data, 0, calls.MAGIC, calls.VERSION)
        assert len(calls.read(bytes(data)).last) <= calls.SHOWN
    with pytest.raises(Malformed):
        calls.read(dice.randbytes(calls.SIZE))
    for odd in (b"", b"\0" * calls.SIZE, b"x" * (calls.SIZE + 1)):
        (rings / "3.9.calls").write_bytes(odd)
        assert asked(run, 3).ranks == ()
    (rings / "3.9.calls").unlink()
    # Whoever writes a number of a process that there can be none of costs no other rank its answer.
    for rank, pid in ((3, 9_999_999_999), (4, 77)):
        data = bytearray(calls.SIZE)
        struct.pack_into("=4Q", data, 0, calls.MAGIC, calls.VERSION, rank, pid)
        (rings / f"{rank}.{pid}.calls").write_bytes(data)
    assert [one.rank for one in asked(run, 3, 4).ranks] == [4]
    os.mkfifo(rings / "3.9.calls")
    (rings / "3.10.calls").symlink_to("/dev/zero")
    assert asked(run, 3).ranks == ()
