"""Files on this node that a person names: where they are, and why they cannot be had."""

from __future__ import annotations

import glob
import os
import stat
from itertools import islice
from typing import Any, Dict, Iterator, List, Tuple

from cockpit.base import verbs
from cockpit.base.same_file import file_id
from cockpit.node import procfs, safefiles
from cockpit.node.calls import Call
from cockpit.node.jobs.outputs import is_ours

MATCHES = 5000
"""Files that one pattern may match."""

TROUBLES = 100
"""Files that cannot be fetched and are told with their reason."""


def find(call: Call) -> Dict[str, Any]:
    """Find files that a person named: ``files`` [{path, dir, file, size, id}], ``absent``, ``trouble``.

    Request: ``words``, each a path or a pattern as in :mod:`glob`; no shell reads them. Relative ones are
    looked for where the processes in ``targets`` work, or in ``cwd``.
    """
    asked = call.asked(verbs.Find)
    work = [procfs.link("/proc/%d/cwd" % one.pid) for one in asked.targets if is_ours(one.pid, one.ticks)]
    folders = list(dict.fromkeys(folder for folder in work if folder)) or [asked.cwd]
    files: Dict[str, Dict[str, Any]] = {}
    absent: List[str] = []
    trouble: List[str] = []
    for word in asked.words:
        paths = list(islice(_matches(word, folders), MATCHES + 1))
        if len(paths) > MATCHES:
            trouble.append("%s matches more than %d files; the others are not fetched" % (word, MATCHES))
        for path, matched in paths[:MATCHES]:
            try:
                files[path] = _found(path)
            except OSError as error:
                # A pattern is for files: folders that it matches too are not meant.
                if not (matched and isinstance(error, _NoFile)):
                    trouble.append("%s: %s" % (path, error.strerror or error))
        if not paths:
            absent.append(word)
    return {"files": list(files.values())[:MATCHES], "absent": absent, "trouble": trouble[:TROUBLES]}


class _NoFile(OSError):
    """It is something else than a regular file."""


def _matches(word: str, folders: List[str]) -> Iterator[Tuple[str, bool]]:
    """Paths that a word stands for, and whether it is a pattern; a path that is there is taken literally."""
    home = os.path.expanduser(word)
    for folder in folders:
        path = _plain(os.path.join(folder, home))
        if _is_there(path):
            yield path, False
            continue
        for found in glob.iglob(os.path.join(glob.escape(folder), home)):
            yield _plain(found), True


def _plain(path: str) -> str:
    """The same path without links to folders in it: one file, one path."""
    folder, name = os.path.split(path)
    return os.path.realpath(path) if name in ("", ".", "..") else os.path.join(os.path.realpath(folder), name)


def _is_there(path: str) -> bool:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # and why it cannot be had is told when it is looked at
    return True


def _found(path: str) -> Dict[str, Any]:
    """What is told of a file.

    :raises OSError: it cannot be read, or is none
    """
    real = os.path.realpath(path)
    # Before it is opened: that alone may do something to a device.
    mode = os.stat(real).st_mode
    if stat.S_ISDIR(mode):
        raise _NoFile(0, "is a folder; name files in it: %s/*" % path)
    if not stat.S_ISREG(mode) or real.startswith(("/proc/", "/sys/")):
        raise _NoFile(0, "is not a file on a disk")
    number = safefiles.opened(real)
    try:
        info = os.fstat(number)
    finally:
        os.close(number)
    folder, name = os.path.split(real)
    return {"path": path, "dir": folder, "file": name, "size": info.st_size, "id": file_id(info)}
