"""psutil and pynvml, which a cockpit sends when they are first needed: from a zip in memory, not on disk."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import io
import os
import sys
import zipfile
from typing import Any, Dict, Optional, Sequence

from cockpit.node.calls import Call, NodeError

_C_MODULE = "psutil._psutil_linux"


class _FromZip(importlib.abc.MetaPathFinder):
    """Finds the one C extension in the archive; Python itself cannot load extensions from a zip."""

    def __init__(self, archive: bytes) -> None:
        self._archive = archive

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]] = None, target: Any = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if fullname != _C_MODULE:
            return None
        with zipfile.ZipFile(io.BytesIO(self._archive)) as archive:
            names = [name for name in archive.namelist() if name.startswith("psutil/_psutil_linux.")]
            location = _in_memory(archive.read(names[0]))
        loader = importlib.machinery.ExtensionFileLoader(fullname, location)
        return importlib.util.spec_from_file_location(fullname, location, loader=loader)


def _in_memory(data: bytes) -> str:
    """The path of a file that only this process has; it disappears when the process ends."""
    try:
        number = os.memfd_create("cockpit")
    except OSError:
        import tempfile

        number, path = tempfile.mkstemp()
        os.unlink(path)
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(number, rest) :]
    return "/proc/self/fd/%d" % number


def equip(call: Call) -> Dict[str, Any]:
    """Take in the zip with psutil and pynvml; once per link, before anything needs them."""
    sys.path.append(_in_memory(call.payload))
    sys.meta_path.insert(0, _FromZip(call.payload))
    return {}


def psutil() -> Any:
    """The psutil module: the one that was sent, if it fits this machine.

    :raises NodeError: it does not (a different processor architecture, an old libc)
    """
    try:
        import psutil as module
    except (ImportError, OSError) as error:
        raise NodeError("psutil", "no measurements here: psutil does not load: %s" % error) from None
    return module
