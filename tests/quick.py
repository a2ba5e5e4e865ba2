"""The tests of what was changed, in a minute, then the slow ones of its layers: ``make quick``.

Changed is what differs from the last commit, or, if nothing does, what the last commit changed. Its tests are
the changed ones and those that import a changed module, nearest first: what a module is imported by at second
hand comes after what imports it itself. What does not fit into the minute is named and left out. If none
fails, the slow tests of each layer that was changed follow, in some minutes.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

MINUTE_S = 50.0
"""Seconds after which no further test begins, so that those under way end within the minute."""

FAR = 3
"""How many imports away from a change a test may be."""

FAST = "not slow and not lab and not launch and not nsys"

BESIDE = {
    "base": ("hostile",),
    "core": ("ends", "faultpool", "recorder", "slowpool", "watch", "whypool"),
    "demo": ("examples",),
    "engine": ("watch", "weeks"),
    "node": ("probe", "recorder"),
}
"""Folders with slow tests of a layer, beside the one that has its name."""


def changed() -> list[Path]:
    """Files that differ from the last commit; if there are none, those of the last commit."""

    def names(*words: str) -> list[str]:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.split("\n")

    found = [*names("diff", "--name-only", "HEAD"), *names("ls-files", "--others", "--exclude-standard")]
    if not any(found):
        found = names("diff", "--name-only", "HEAD~1", "HEAD")
    return [Path(name) for name in found if name and (ROOT / name).exists()]


def imports(path: Path) -> Iterator[Path]:
    """The files of this project that a file imports, wherever in it."""
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            found = Path(*name.split(".")).with_suffix(".py")
            if (ROOT / found).exists():
                yield found


def graph() -> dict[Path, set[Path]]:
    """Which files import a file."""
    importers: dict[Path, set[Path]] = {}
    for folder in ("cockpit", "tests"):
        for each in sorted((ROOT / folder).rglob("*.py")):
            path = each.relative_to(ROOT)
            for imported in imports(path):
                importers.setdefault(imported, set()).add(path)
    return importers


def nearest(paths: Iterable[Path], importers: Mapping[Path, set[Path]]) -> list[Path]:
    """Files of tests, by how many imports they are away from these."""
    reached = list(dict.fromkeys(paths))
    edge = reached
    for _ in range(FAR):
        edge = sorted({each for path in edge for each in importers.get(path, ())} - set(reached))
        reached += edge
    return [path for path in reached if path.name.startswith("test_") and path.suffix == ".py"]


def slow_groups(paths: Iterable[Path]) -> list[str]:
    """The folders with the slow tests of the layers that these files are in."""
    layers = {path.parts[1] for path in paths if path.parts[0] == "cockpit"}
    folders = {folder for layer in layers for folder in (layer, *BESIDE.get(layer, ()))}
    return [f"tests/{folder}" for folder in sorted(folders) if (ROOT / "tests" / folder).is_dir()]


class Minute:
    """Lets no test begin after a minute."""

    def __init__(self) -> None:
        self._ends = time.monotonic() + MINUTE_S
        self.left_out: dict[str, int] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Leave a test out if the time is up."""
        if time.monotonic() < self._ends:
            return None
        name = item.nodeid.partition("::")[0]
        self.left_out[name] = self.left_out.get(name, 0) + 1
        return True


def main() -> int:
    """Run them; return pytest's exit code."""
    paths = changed()
    tests = nearest(paths, graph())
    if not tests:
        print("no test imports what was changed; type: make test")
        return 0
    minute = Minute()
    words = ["-q", "-x", "-m", FAST, "-p", "no:xdist", "-p", "no:cacheprovider", *map(str, tests)]
    code = int(pytest.main(words, plugins=[minute]))
    for name, count in minute.left_out.items():
        print(f"left out after {MINUTE_S:.0f} s: {count} of {name}")
    groups = slow_groups(paths)
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) or not groups:
        return code
    print(f"the slow tests of {', '.join(groups)}; ctrl+c leaves them out", flush=True)
    jobs = os.environ.get("JOBS") or str(min(2 * (os.cpu_count() or 2), 8))
    words = ["-q", "-x", "-n", jobs, "--dist", "worksteal", "-m", "slow and not lab"]
    slow = subprocess.run([sys.executable, "-m", "pytest", *words, *groups], cwd=ROOT, check=False).returncode
    return code if slow == pytest.ExitCode.NO_TESTS_COLLECTED else slow


if __name__ == "__main__":
    sys.exit(main())
