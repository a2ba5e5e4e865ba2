"""What is sent to a node, and the one line that receives it there.

The zip holds the sources of our node code but no byte code: that would fit only one version of Python and
make the zip three times as large, while compiling what an agent needs at its start costs a node some 20 ms.
pynvml follows with requests for measurements.
"""

from __future__ import annotations

import asyncio
import importlib.util
import io
import json
import shutil
import sys
import threading
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import cockpit
from cockpit.base.shell import quote_posix
from cockpit.errors import CockpitError

T = TypeVar("T")

COMMAND = "exec /bin/sh -c 'IFS= read -r line && eval \"$line\"'"
"""What every transport runs: constant, and valid in bash, csh and fish alike. All else comes over stdin."""

_MAIN = """
import sys
from cockpit.node import importing
importing.install()
from cockpit.node.__main__ import main
sys.exit(main())
"""

# Becomes one line (JSON escapes are Python's): it passes through `read -r`, `eval` and `-c`, so it must hold
# no single quote. Any Python 3 must be able to parse it, to say that it is too old.
_BOOT = """
import os, sys
def receive(size):
    data = b""
    while len(data) < size:
        more = os.read(0, min(size - len(data), 1 << 20))
        if not more:
            os._exit(3)
        data += more
    return data
version = sys.version_info[:2]
word = "ok" if version >= (3, 8) else "old"
os.write(1, ("@NONCE@ %s %d.%d\\n" % (word, version[0], version[1])).encode())
if word == "old":
    os._exit(3)
archive = receive(int.from_bytes(receive(4), "big"))
try:
    number = os.memfd_create("cockpit")
except OSError:
    import tempfile
    number, path = tempfile.mkstemp()
    os.unlink(path)
rest = memoryview(archive)
while rest:
    rest = rest[os.write(number, rest):]
del archive, rest
sys.path.insert(0, "/proc/self/fd/%d" % number)
from cockpit.node import importing
importing.install()
from cockpit.node.agent import main
main()
"""


def boot_line(nonce: str, pythons: list[str]) -> bytes:
    """The first line to send: tries each python, and answers ``nonce (ok|old X.Y|nopython)`` on stdout.

    Before, it says which one it starts, after :func:`tried_mark`: that one may be broken.

    :raises CockpitError: a path that does not fit on a line
    """
    for python in pythons:
        if "\n" in python or "\0" in python:
            raise CockpitError(f"no python can be at {python!a}", where="--python", hint="give its path")
    tries = " ".join(map(quote_posix, pythons))
    boot = f"exec({json.dumps(_BOOT.replace('@NONCE@', nonce))})"
    line = (
        f'for p in {tries}; do command -v "$p" >/dev/null 2>&1 && '
        f'{{ printf "\\n%s %s\\n" {tried_mark(nonce)} "$p"; exec "$p" -I -S -c \'{boot}\'; }}; done; '
        f"echo; echo '{nonce} nopython'"
    )
    return line.encode("utf-8", "surrogateescape") + b"\n"


def tried_mark(nonce: str) -> str:
    """What the line says before the path of a python that it starts."""
    return "starts-" + nonce.rpartition("-")[2]


_building = threading.Lock()


async def in_thread(build: Callable[[], T]) -> T:
    """What ``build`` (:func:`archive`, :func:`pynvml` or :func:`spy`) makes: once, and off the event loop."""

    def made() -> T:
        with _building:
            return build()

    return await asyncio.to_thread(made)


READ_HERE = (
    "base/answers.py",
    "base/checkup_answers.py",
    "base/events.py",
    "base/recorder/unpacking.py",
    "base/stacks/unpacking.py",
    "base/rehearsal_answers.py",
)
"""Definitions of what nodes write. Only we read it: nodes do not check what they say."""


@lru_cache(maxsize=1)
def archive() -> bytes:
    """The zip of the node code: sources only."""
    package = Path(cockpit.__file__).parent
    sources = {package / "__init__.py", *package.glob("base/**/*.py"), *package.glob("node/**/*.py")}
    sources -= {package / name for name in READ_HERE}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target:
        _add(target, "__main__.py", _MAIN.encode())
        for path in sorted(sources):
            _add(target, f"cockpit/{path.relative_to(package)}", path.read_bytes())
    return out.getvalue()


@lru_cache(maxsize=1)
def pynvml() -> bytes:
    """The source of pynvml, compressed with zlib, for measurements of GPUs."""
    spec = importlib.util.find_spec("pynvml")  # without importing it: that would slow down every start
    assert spec
    assert spec.origin
    return zlib.compress(Path(spec.origin).read_bytes())


_ELF_MACHINES = {3: "i686", 40: "armv7l", 62: "x86_64", 183: "aarch64"}
"""``e_machine`` of elf(5), as ``uname -m`` writes it."""


@dataclass(frozen=True)
class SentPySpy:
    """The py-spy sent to nodes that have none: one static binary.

    :param machine: what it runs on, as ``uname -m`` writes it
    :param packed: the binary, compressed with zlib
    """

    machine: str
    sha256: str
    packed: bytes


@lru_cache(maxsize=1)
def spy() -> SentPySpy | None:
    """The py-spy installed beside this Python, or on the PATH; None if there is none for Linux."""
    beside = Path(sys.executable).parent / "py-spy"
    found = str(beside) if beside.is_file() else shutil.which("py-spy")
    if found is None:
        return None
    data = Path(found).read_bytes()
    if data[:4] != b"\x7fELF":
        return None
    machine = _ELF_MACHINES.get(int.from_bytes(data[18:20], "little"), "")
    # The fastest level: sizes differ by less than a tenth between levels, and a person is waiting.
    return SentPySpy(machine, sha256(data).hexdigest(), zlib.compress(data, 3))


def _add(target: zipfile.ZipFile, name: str, data: bytes) -> None:
    # A fixed date: the same code gives the same bytes.
    target.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
