"""Reading what py-spy says about one process: threads, outermost frame first, without secrets."""

from __future__ import annotations

import json
import os
import re
import stat
import threading
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from cockpit.base import secret
from cockpit.base.stacks.dump import Frame, Thread
from cockpit.base.stacks.file_names import normalise
from cockpit.base.stacks.kinds import source_frame
from cockpit.node.joining import ended

NAME_LIMIT = 300
"""Characters of a function's or a file's name that are reported."""

VALUE_LIMIT = 200
"""Characters of a local variable's value that are reported."""

SOURCE_LIMIT = 160
"""Characters of a line of source code that are reported."""

LOOP_LINES = 60
"""Lines above one that are looked through for the loop that it is in."""

FILE_LIMIT = 2 << 20
"""Bytes of a source file that is read for one line of it."""

FILE_S = 0.5
"""Seconds a source file may take: it may be on a file server that is silent."""

_ADDRESS = re.compile(r"0x[0-9a-f]+\Z")


class UserLine(NamedTuple):
    """Where a line of user code is.

    :param path: as the process knows it, absolute
    """

    path: str
    line: int


class PySpyAnswer(NamedTuple):
    """What py-spy says about a process.

    :param place: where the line of code is that says most about its main thread
    :param places: the same of its other threads, by their ids
    """

    threads: Tuple[Thread, ...]
    place: Optional[UserLine]
    places: Dict[int, UserLine] = {}  # noqa: RUF012 (never changed)


def read(data: bytes, pids: Tuple[int, ...], cwd: str, home: str, known: Sequence[str] = ()) -> PySpyAnswer:
    """The output of ``py-spy dump --json``.

    :param pids: numbers that the main thread may have: in our pid namespace and in its own
    :param cwd: the folder the process works in
    :param home: its user's home
    :param known: secrets that it was given, see :func:`cockpit.base.secret.values`
    :raises ValueError: it is not such output
    """
    try:
        told = json.loads(data.decode("utf-8", "replace"))
        threads = [(_thread(one, pids, cwd, home, known), one) for one in told]
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise ValueError("py-spy's answer is not understood: %s" % error) from None

    def order(pair: Tuple[Thread, Any]) -> Tuple[bool, bool, int]:
        return pair[0].tid not in pids, pair[0].name != "MainThread", pair[0].tid

    threads.sort(key=order)
    place = _place(threads[0][0], threads[0][1], cwd) if threads else None
    places = {thread.tid: found for thread, one in threads[1:] if (found := _place(thread, one, cwd))}
    return PySpyAnswer(tuple(thread for thread, _ in threads), place, places)


def _frames(told: Dict[str, Any]) -> List[Dict[str, Any]]:
    """The frames as py-spy reports them, but outermost first, and without those that Python makes up."""
    return [frame for frame in reversed(told["frames"]) if frame["name"] != "<shim>"]


def _thread(told: Dict[str, Any], pids: Tuple[int, ...], cwd: str, home: str, known: Sequence[str]) -> Thread:
    frames, variables = [], []
    for frame in _frames(told):
        frames.append(_frame(frame, cwd, home))
        variables.append(
            {
                str(one["name"])[:NAME_LIMIT]: value(str(one["name"]), one["repr"], known)
                for one in frame["locals"] or ()
            }
        )
    tid = int(told["os_thread_id"] or 0)
    # Only a program that has imported threading has names.
    name = told["thread_name"] or ("MainThread" if tid in pids else "")
    return Thread(
        name=str(name)[:NAME_LIMIT],
        tid=tid,
        active=told["active"] is True,
        gil=told["owns_gil"] is True,
        frames=tuple(frames),
        locals=tuple(variables) if any(variables) else (),
    )


def _frame(told: Dict[str, Any], cwd: str, home: str) -> Frame:
    name = str(told["name"])
    if told["module"] is not None:
        # Addresses differ from rank to rank even at the same place.
        name = _ADDRESS.sub("?", name)
        return Frame(name[:NAME_LIMIT], os.path.basename(str(told["module"]))[:NAME_LIMIT], 0, True)
    return Frame(
        name[:NAME_LIMIT],
        normalise(_absolute(str(told["filename"]), cwd), cwd, home)[:NAME_LIMIT],
        max(0, int(told["line"])),
    )


def _absolute(path: str, cwd: str) -> str:
    """Before Python 3.9 the main script is named as it was typed."""
    return path if path.startswith(("/", "<")) or not cwd else os.path.normpath(os.path.join(cwd, path))


def _place(thread: Thread, told: Dict[str, Any], cwd: str) -> Optional[UserLine]:
    wanted = source_frame(thread.frames)
    for frame, raw in zip(reversed(thread.frames), reversed(_frames(told))):
        if frame == wanted:
            return UserLine(_absolute(str(raw["filename"]), cwd), frame.line)
    return None


# -- without secrets ---------------------------------------------------------------------------------


def value(name: str, text: Optional[str], known: Sequence[str] = ()) -> str:
    """The value of a local variable, without secrets and of bounded length."""
    text = text or ""
    # Cut first, leaving room for what a name at the cut may belong to: texts may be long.
    shown = secret.local(name, text[: 4 * VALUE_LIMIT], known)
    return shown if len(shown) <= VALUE_LIMIT else shown[: VALUE_LIMIT - 1] + "…"


# -- source code -------------------------------------------------------------------------------------


class Sources:
    """Lines of source files; each file is read once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: Dict[str, Callable[[], List[str]]] = {}

    def line(self, path: str, number: int, known: Sequence[str] = ()) -> str:
        """One line, without secrets and of bounded length; empty if it cannot be read, or not soon enough.

        :param known: secrets that the program was given
        """
        found = self._of(path)
        return _cut(found[number - 1], known) if 0 < number <= len(found) else ""

    def loop(self, path: str, number: int, known: Sequence[str] = ()) -> str:
        """The head of the ``while`` that a line is in, or is; empty: it is in none, or that is not known."""
        found = self._of(path)
        if not 0 < number <= len(found):
            return ""
        depth = _depth(found[number - 1]) + 1
        for line in reversed(found[max(0, number - LOOP_LINES) : number]):
            if not line.strip() or _depth(line) >= depth:
                continue
            depth = _depth(line)
            if line.lstrip().startswith("while "):
                return _cut(line, known)
            if line.lstrip().startswith(("def ", "async def ", "class ")):
                break
        return ""

    def _of(self, path: str) -> List[str]:
        with self._lock:
            lines = self._files.get(path)
            if lines is None:
                lines = self._files[path] = _soon(path)
        return lines()


def _cut(line: str, known: Sequence[str]) -> str:
    text = secret.without(line.strip()[: 4 * SOURCE_LIMIT], known, code=True)
    return text if len(text) <= SOURCE_LIMIT else text[: SOURCE_LIMIT - 1] + "…"


def _depth(line: str) -> int:
    return len(line.expandtabs()) - len(line.expandtabs().lstrip())


def _soon(path: str) -> Callable[[], List[str]]:
    """The lines of a file, read in a thread that may hang without anybody waiting for it."""
    found: List[List[str]] = []
    thread = threading.Thread(target=lambda: found.append(_lines(path)), daemon=True)
    thread.start()

    def lines() -> List[str]:
        ended(thread, FILE_S)
        return found[0] if found else []

    return lines


def _lines(path: str) -> List[str]:
    try:
        # Opening a pipe would wait for its writer.
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        with os.fdopen(number, "rb") as file:
            status = os.fstat(number)
            if not stat.S_ISREG(status.st_mode) or status.st_size > FILE_LIMIT:
                return []
            return file.read(FILE_LIMIT).decode("utf-8", "replace").split("\n")
    except OSError:
        return []
