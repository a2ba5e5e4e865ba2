"""Import psutil from the zip we run from: its C module goes through a memfd, nothing touches the disk."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import zipfile
from typing import Any, Optional, Sequence

from cockpit.node.calls import NodeError

_C_MODULE = "psutil._psutil_linux"


class _FromZip(importlib.abc.MetaPathFinder):
    """Finds the one C extension in the archive; Python itself cannot load extensions from a zip."""

    def __init__(self, archive: str) -> None:
        self._archive = archive

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]] = None, target: Any = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if fullname != _C_MODULE:
            return None
        with zipfile.ZipFile(self._archive) as archive:
            names = [name for name in archive.namelist() if name.startswith("psutil/_psutil_linux.")]
            if not names:
                return None
            number = os.memfd_create("psutil")
            data = memoryview(archive.read(names[0]))
            while data:
                data = data[os.write(number, data) :]
        location = "/proc/self/fd/%d" % number
        loader = importlib.machinery.ExtensionFileLoader(fullname, location)
        return importlib.util.spec_from_file_location(fullname, location, loader=loader)


def psutil() -> Any:
    """The psutil module: the one sent along, where it fits this machine.

    :raises NodeError: it does not (another processor architecture, an old libc)
    """
    if "psutil" not in sys.modules:
        archive = next((p for p in sys.path if p.startswith("/proc/self/fd/") or p.endswith(".pyz")), None)
        if archive:
            sys.meta_path.insert(0, _FromZip(archive))
    try:
        import psutil as module
    except (ImportError, OSError) as error:
        raise NodeError("psutil", "no measurements here: psutil does not load: %s" % error) from None
    return module
