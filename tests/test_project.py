"""The project keeps its own rules: layers, light imports, old Pythons on nodes, a complete wheel."""

from __future__ import annotations

import ast
import io
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import cockpit
from cockpit.base import record
from cockpit.engine.links import payload
from cockpit.node import agent
from cockpit.node.checkup import look
from tests.needs import require_module

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
NODE_SIDE = sorted([*ROOT.glob("cockpit/base/**/*.py"), *ROOT.glob("cockpit/node/**/*.py")])
TEXT = sorted(
    path
    for path in [
        *ROOT.glob("*.*"),
        ROOT / ".ci" / "run",
        *(
            found
            for folder in ("cockpit", "tests", "examples", "benchmarks", "docs", "themes")
            for found in (ROOT / folder).rglob("*")
        ),
    ]
    if path.suffix in {".py", ".md", ".toml", ".txt", ".sh", ".fish", ""} and path.is_file()
)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def python(*argv: str) -> str:
    """Run python in the checkout, and return what it printed."""
    done = subprocess.run(
        [sys.executable, *argv],
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the full name of every module that a file imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_imports_point_one_way() -> None:
    require_module("importlinter")
    code = "import sys; from importlinter.cli import lint_imports as run; sys.exit(run(no_cache=True))"
    assert "0 broken" in python("-c", code)


def test_the_command_line_starts_light() -> None:
    heavy = python(
        "-c",
        "import sys, cockpit.cli.main\n"
        "print(*({'asyncio', 'asyncssh', 'textual', 'torch', 'ClusterShell'} & set(sys.modules)))\n"
        "from cockpit import config\n"
        "from cockpit.tui.look import themes\n"
        "config.load(), themes.defaults()\n"
        "print(*({'pydantic'} & set(sys.modules)))",
    )
    assert heavy.split() == []


def test_node_side_is_found() -> None:
    assert len(NODE_SIDE) > 5


def run_time_imports(path: Path) -> Iterator[str]:
    """Yield what a file may import while it runs, wherever in it; not what only the type checker sees."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


def test_a_node_gets_what_it_imports_and_nothing_else() -> None:
    sent = set(zipfile.ZipFile(io.BytesIO(payload.archive())).namelist()) - {"__main__.py"}
    needed: set[str] = set()
    waiting = ["cockpit.node.__main__", *(f"cockpit.node.{module}" for module in agent.VERBS.values())]
    waiting += [f"cockpit.node.checkup.{module}" for module in look.CHECKS.values()]
    waiting += ["cockpit.node.checkup.rehearser"]  # read as text
    waiting += [f"cockpit.node.probe.{name.removesuffix('.py')}" for name in record.PROBE_SOURCES]
    while waiting:
        words = waiting.pop().split(".")
        module, package = Path(*words).with_suffix(".py"), Path(*words, "__init__.py")
        path = next((each for each in (module, package) if (ROOT / each).exists()), None)
        if words[0] != "cockpit" or path is None or str(path) in needed:
            continue
        needed.add(str(path))
        waiting += [".".join(words[:end]) for end in range(1, len(words))]
        waiting += run_time_imports(ROOT / path)
    assert sent == needed


@pytest.mark.parametrize("path", NODE_SIDE, ids=name_of)
def test_node_side_is_python_3_8_and_the_standard_library(path: Path) -> None:
    tree = ast.parse(path.read_text(), filename=str(path), feature_version=(3, 8))
    top = {name.partition(".")[0] for name in imported(tree)}
    # These run in the ranks' own Python.
    theirs = {"torch"} if path.name in ("rehearser.py", "hooks.py") else set()
    assert top <= sys.stdlib_module_names | {"cockpit"} | theirs
    # New names for old things, which parse everywhere and then fail on the node.
    assert not top & {"tomllib", "zoneinfo", "graphlib"}


def test_the_wheel_is_complete(tmp_path: Path) -> None:
    require_module("hatchling")
    python("-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path))
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {name_of(path) for path in ROOT.glob("cockpit/**/*.py")}
    wanted |= {f"cockpit/{name_of(path)}" for path in ROOT.glob("themes/*.toml")}
    wanted |= {f"cockpit/{name_of(path)}" for path in ROOT.glob("examples/*.py")}
    assert "cockpit/themes/dark.toml" in wanted
    assert wanted <= names
    assert not [name for name in names if name.startswith(("tests/", "examples/", "benchmarks/"))]
    assert wheel.name.split("-")[:2] == ["cockpit", cockpit.__version__]
    text = zipfile.ZipFile(wheel).read(f"cockpit-{cockpit.__version__}.dist-info/entry_points.txt").decode()
    assert "cockpit = cockpit.cli.main:main" in text


def canonical(requirement: str) -> str:
    """Return the normalised name in front of a requirement."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found, requirement
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def test_constraints_pin_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {canonical(r) for r in project["dependencies"]}
    wanted |= {canonical(r) for extra in project["optional-dependencies"].values() for r in extra}
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert wanted <= {canonical(line) for line in lines}
    pinned = re.compile(r'[A-Za-z0-9._-]+==[0-9][0-9a-z.]*(; python_version (<|>=) "3\.11")?')
    assert [line for line in lines if not pinned.fullmatch(line)] == []


_RUNS_WHAT_IT_READS = {"pickle", "marshal", "shelve", "dill", "tarfile", "yaml", "cloudpickle"}
_UNPACKS = {"extract", "extractall", "unpack_archive", "loads_pickle", "eval"}


def test_nothing_is_unpickled_or_unpacked() -> None:
    """What a node sends is read as JSON and bytes, never in a format that can hold code or paths."""
    here = [path for path in ROOT.glob("cockpit/**/*.py") if "node" not in path.parts]
    assert here
    for path in here:
        tree = ast.parse(path.read_text())
        top = {name.partition(".")[0] for name in imported(tree)}
        assert not top & _RUNS_WHAT_IT_READS, path
        called = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
        names = {f.attr if isinstance(f, ast.Attribute) else getattr(f, "id", "") for f in called}
        assert not names & _UNPACKS, path


@pytest.mark.parametrize("path", TEXT, ids=name_of)
def test_text_is_clean(path: Path) -> None:
    text = path.read_bytes().decode()
    lines = text.splitlines()
    if path.name != "Makefile":
        assert "\t" not in text, "a tab"
    assert not [line for line in lines if re.match("(<{7}|>{7})( |$)", line)], "a merge marker"
    assert not [number for number, line in enumerate(lines, 1) if line != line.rstrip()], "space at line end"
    assert "\r" not in text
    assert not text or text.endswith("\n")
