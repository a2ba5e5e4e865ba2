"""How this node code is imported from its zip: each module is compiled once.

zipimport compiles a module to tell its file name, and again to run it (CPython 3.8 to 3.13,
``zipimporter.get_filename``): a third of what a process of ours takes to import from sources.
"""

from __future__ import annotations

import os
import sys
from zipimport import zipimporter


class Importer(zipimporter):
    """One that says where a module is by its name."""

    def get_filename(self, fullname: str) -> str:
        """Path of a module's source, which need not be there: byte code can be in its place.

        :raises ZipImportError: there is no such module
        """
        words = [self.archive, self.prefix + fullname.rpartition(".")[2]]
        if self.is_package(fullname):
            words.append("__init__")
        return os.path.join(*words) + ".py"


def install() -> None:
    """Have what is imported from now on imported so."""
    sys.path_hooks[:] = [Importer if hook is zipimporter else hook for hook in sys.path_hooks]
    sys.path_importer_cache.clear()
