"""Node code is imported from its zip without compiling a module twice."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.pythons import VERSIONS, python

COUNTED = """
import builtins, json, sys
counts, real = {}, builtins.compile
def compile(source, filename, *words, **more):
    counts[str(filename)] = counts.get(str(filename), 0) + 1
    return real(source, filename, *words, **more)
builtins.compile = compile
sys.path.insert(0, sys.argv[1])
from cockpit.node import importing
importing.install()
from cockpit.node.run import supervisor
files = {name: module.__file__ for name, module in sys.modules.items() if name.startswith("cockpit")}
frame = supervisor.main.__code__.co_filename
json.dump({"counts": counts, "files": files, "frame": frame}, sys.stdout)
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_each_module_is_compiled_once_and_knows_its_file(tmp_path: Path, pyz: bytes, version: str) -> None:
    archive = tmp_path / "node.pyz"
    archive.write_bytes(pyz)
    words = [python(version), "-I", "-S", "-c", COUNTED, str(archive)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    assert told["frame"] == told["files"]["cockpit.node.run.supervisor"]
    assert told["frame"] == f"{archive}/cockpit/node/run/supervisor.py"
    assert told["files"]["cockpit.node.run"] == f"{archive}/cockpit/node/run/__init__.py"
    late = {path: told["counts"][path] for path in told["files"].values() if "/node/run/" in path}
    assert len(late) > 10
    assert set(late.values()) == {1}
