"""Notes each call into chosen packages in a small file in memory: see :mod:`cockpit.base.progress.calls`.

Read as a file by ``sitecustomize``. On Python 3.12 or newer ``sys.monitoring`` calls us as a function begins;
of one that is in no chosen package it is told never to call again, so such a function costs nothing. Whatever
goes wrong here ends the noting, and nothing else.
"""

from __future__ import annotations

import _thread
import mmap
import os
import struct
import sys
import time
from typing import Any

MAGIC, VERSION = 0x434B5054_43414C4C, 1
FIRST, RECORD_SIZE, CAPACITY = 8 * 16, 8 * 3, 4096
NAMES_SIZE = 256 << 10
NAMES_AT = FIRST + RECORD_SIZE * CAPACITY
RECORD = struct.Struct("=3Q")

TOOLS = (4, 3, 5)
"""Numbers of ``sys.monitoring`` that Python gives to no kind of tool, the last is of optimisers."""


def arm(path: str, rank: int, packages: list[str]) -> None:
    """Note calls from here on, or why none are noted.

    :param packages: names such as ``torch.optim`` or ``data``: code in a folder or a file of that name
    :raises OSError: there is no file
    """
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        # All of it now: a page that a full file system cannot give later is a SIGBUS, and the rank's end.
        os.posix_fallocate(number, 0, NAMES_AT + NAMES_SIZE)
        memory = mmap.mmap(number, NAMES_AT + NAMES_SIZE)
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(number)
    words = memoryview(memory)[:NAMES_AT].cast("Q")
    words[1], words[2], words[3], words[4] = VERSION, rank, os.getpid(), _ticks()
    words[5] = _thread.get_ident()
    why = _watch(memory, words, packages)
    if why:
        _give_up(memory, words, why)
    words[0] = MAGIC


def _watch(memory: Any, words: Any, packages: list[str]) -> str:
    watch: Any = getattr(sys, "monitoring", None)
    if watch is None:
        return "Python %d.%d has no sys.monitoring: 3.12 has" % sys.version_info[:2]
    tool = next((each for each in TOOLS if watch.get_tool(each) is None), None)
    if tool is None:
        return "others use all of sys.monitoring in it"
    places = [name.replace(".", "/") for name in packages]
    wanted = tuple(part for place in places for part in ("/%s/" % place, "/%s.py" % place))
    kept: dict[int, tuple[int, Any]] = {}
    """The number of each chosen function, by where its code is: it is kept, so that no other is there."""
    disable, now, here, write = watch.DISABLE, time.monotonic_ns, _thread.get_ident, RECORD.pack_into

    def began(code: Any, offset: int) -> object:
        try:
            known = kept.get(id(code))
            if known is None:
                file = "/" + code.co_filename
                if not any(part in file for part in wanted):
                    return disable
                known = kept[id(code)] = _name(memory, words, len(kept) + 1, code), code
            count = words[6]
            write(memory, FIRST + count % CAPACITY * RECORD_SIZE, now(), here(), known[0])
            words[6] = count + 1
        except Exception as error:
            watch.set_events(tool, 0)
            _give_up(memory, words, "stopped at an error: %s: %s" % (type(error).__name__, error))
        return None

    watch.use_tool_id(tool, "cockpit")
    watch.register_callback(tool, watch.events.PY_START, began)
    watch.set_events(tool, watch.events.PY_START)
    # A child has the same file.
    os.register_at_fork(after_in_child=lambda: watch.set_events(tool, 0))
    return ""


def _give_up(memory: Any, words: Any, why: str) -> None:
    text = why.replace("\n", " ").encode("utf-8", "replace")[:500]
    memory[NAMES_AT : NAMES_AT + len(text)] = text
    words[7], words[9] = len(text), 1


def _name(memory: Any, words: Any, number: int, code: Any) -> int:
    """Write the name of a function; its number, 0: there is no room."""
    if words[8]:
        return 0
    text = "%s\t%s\t%d" % (code.co_qualname, code.co_filename, code.co_firstlineno)
    line = text.replace("\n", " ").encode("utf-8", "replace")[:1000] + b"\n"
    size = words[7]
    if size + len(line) > NAMES_SIZE:
        words[8] = 1
        return 0
    memory[NAMES_AT + size : NAMES_AT + size + len(line)] = line
    words[7] = size + len(line)
    return number


def _ticks() -> int:
    """Start time of this process, in clock ticks since boot."""
    with open("/proc/self/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])
