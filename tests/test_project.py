"""The project keeps its own rules: layers, light imports, old Pythons on nodes, a complete wheel."""

from __future__ import annotations

import ast
import functools
import io
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import cockpit
from cockpit.base import record
from cockpit.base.verbs import VERBS
from cockpit.engine.links import payload
from cockpit.node.checkup import checkup
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
    waiting = ["cockpit.node.__main__", *(f"cockpit.node.{asks.at}" for asks in VERBS.values())]
    waiting += [f"cockpit.node.checkup.{module}" for module in checkup.CHECKS.values()]
    waiting += ["cockpit.node.checkup.rehearser"]  # read as text
    waiting += ["cockpit.node.importing"]  # by what starts all others
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


def test_node_side_is_python_3_8_and_the_standard_library() -> None:
    for path in NODE_SIDE:
        tree = ast.parse(path.read_text(), filename=str(path), feature_version=(3, 8))
        top = {name.partition(".")[0] for name in imported(tree)}
        # These run in the ranks' own Python.
        theirs = {"torch"} if path.name in ("rehearser.py", "hooks.py") else set()
        if path.name == "gate.py":
            theirs = {"typing_extensions"}  # for type checkers alone
        assert top <= sys.stdlib_module_names | {"cockpit"} | theirs, path
        # New names for old things, which parse everywhere and then fail on the node.
        assert not top & {"tomllib", "zoneinfo", "graphlib"}, path


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
    shared = {name.partition(".data/data/share/")[2] for name in names}
    assert shared >= {
        "man/man1/cockpit.1",
        "bash-completion/completions/cockpit",
        "zsh/site-functions/_cockpit",
        "fish/vendor_completions.d/cockpit.fish",
    }
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
    assert here()
    for path, used in here().items():
        assert not used.imports & _RUNS_WHAT_IT_READS, path
        assert not used.calls & _UNPACKS, path


class Used(NamedTuple):
    """What a module uses: top packages that it imports, names that it calls, how many calls open a file."""

    imports: set[str]
    calls: set[str]
    opens: int


@functools.cache
def here() -> dict[str, Used]:
    """The modules that do not run on nodes; each is read once for all tests."""
    package, found = ROOT / "cockpit", {}
    for path in package.glob("**/*.py"):
        if "node" in path.relative_to(package).parts:
            continue
        tree = ast.parse(path.read_text())
        called = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
        found[str(path.relative_to(package))] = Used(
            {name.partition(".")[0] for name in imported(tree)},
            {each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in called},
            opens(tree),
        )
    return found


OPENS = {
    "base/regular.py": 1,  # the opener
    "base/owners.py": 2,  # /proc
    "base/trees.py": 2,  # folders, never by a link
    "cli/terminal_prompts.py": 2,  # the terminal
    "cli/main.py": 2,  # /dev/null
    "cli/narration.py": 1,  # /dev/null
    "cli/node_options.py": 1,  # the terminal
    "base/same_file.py": 1,  # /proc
    "cli/output.py": 1,  # a file that a person named: a FIFO may be meant
    "cli/profiled.py": 2,  # by the opener; a file that a person named
    "cli/topics.py": 1,  # of this package
    "cli/verbs/completion.py": 1,  # of this package
    "cli/verbs/plan.py": 1,  # written, and no link is followed
    "config_file.py": 1,  # a new file, exclusively
    "demo/cluster.py": 2,  # a hostfile in a folder that it has just made; a pipe
    "demo/server.py": 1,  # in a folder that it has just made
    "engine/explain/sources.py": 2,  # files that a person named: a FIFO may be meant; stdin
    "engine/files.py": 1,  # a new file, exclusively
    "engine/links/payload.py": 3,  # our own code
    "engine/records/bundles.py": 1,  # a file that a person named: a link may be meant
    "engine/records/lock.py": 1,  # /proc
    "plans/nodes/hostfile.py": 1,  # a file that a person named: a FIFO may be meant
    "plans/python.py": 1,  # a program on PATH
    "transport/hostkeys.py": 1,  # ssh's files, as ssh opens them
    "transport/knownhosts.py": 2,
    "transport/openssh_asking.py": 4,
    "transport/openssh_config.py": 3,
}
"""Files that are opened otherwise, by module (but on nodes), and why that is harmless."""

_OPENS = {"read_text", "read_bytes", "write_text", "write_bytes"}


def opens(tree: ast.AST) -> int:
    """How many calls in a module open a file by its path."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    count = 0
    for call in calls:
        called, mode = call.func, call.args[0] if call.args else None
        if isinstance(called, ast.Name):
            count += called.id == "open"
        elif isinstance(called, ast.Attribute):
            module = called.value.id if isinstance(called.value, ast.Name) else ""
            path = (
                called.attr == "open"
                and isinstance(mode, ast.Constant)
                and mode.value in ("r", "rb", "w", "wb")
            )
            taken = called.attr in _OPENS and (module, called.attr) != ("hostfile", "read_text")
            count += taken or path or (called.attr == "open" and module in ("os", "io"))
    return count


def test_files_are_opened_by_the_one_opener() -> None:
    """Where others may lay files: not a FIFO, a device, a link or an endless file in place of one of ours."""
    assert {name: used.opens for name, used in here().items() if used.opens} == OPENS


@pytest.mark.parametrize(
    ("code", "count"),
    [("open(p)", 1), ("p.read_text()", 1), ("os.open(p, 0)", 1), ('p.open("rb")', 1), ("pool.open()", 0)],
)
def test_what_opens_a_file_is_seen(code: str, count: int) -> None:
    assert opens(ast.parse(code)) == count


def unclean(path: Path) -> Iterator[str]:
    """What is wrong with the text of a file."""
    text = path.read_bytes().decode()
    if text and not text.endswith("\n"):
        yield f"{name_of(path)}: no line end at its end"
    for number, line in enumerate(text.split("\n"), 1):
        where = f"{name_of(path)}:{number}"
        if "\t" in line and path.name != "Makefile":
            yield f"{where}: a tab"
        if re.match("(<{7}|>{7})( |$)", line):
            yield f"{where}: a merge marker"
        if line != line.rstrip():
            yield f"{where}: space at line end"


def test_text_is_clean() -> None:
    assert len(TEXT) > 1000
    assert [wrong for path in TEXT for wrong in unclean(path)] == []


def test_unclean_text_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    file = tmp_path / "a.py"
    file.write_bytes(b"a\tb\n<<<<<<< x\nend \nline\r\nlast")
    assert list(unclean(file)) == [
        "a.py: no line end at its end",
        "a.py:1: a tab",
        "a.py:2: a merge marker",
        "a.py:3: space at line end",
        "a.py:4: space at line end",
    ]
