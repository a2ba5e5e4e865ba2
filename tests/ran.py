"""Which tests ran, over several runs of pytest as different users; those that ran in none of them are named.

``pytest -p tests.ran --ran=FILE`` adds to a file what ran and what was skipped; with ``--but=FILE`` it leaves
out what ran according to others. ``python -m tests.ran [OPTIONS] FILES`` then names what ran according to
none.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.needs import BEYOND

UNSELECTED = "it was selected nowhere"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--ran", type=Path, help="add to this file which tests ran, and which were skipped")
    parser.addoption("--but", type=Path, action="append", help="leave out what ran according to this file")


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("--ran")
    if file is not None and not hasattr(config, "workerinput"):  # workers report to who started them
        config.pluginmanager.register(_Writer(file))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what ran."""
    files = config.getoption("--but")
    if files:
        ran, _ = read(files)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in ran])
        items[:] = [item for item in items if item.nodeid not in ran]


class _Writer:
    def __init__(self, file: Path) -> None:
        self._file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        elif report.when == "call":
            reason = ""
        else:
            return
        with self._file.open("a", encoding="utf-8") as file:
            file.write(f"{report.nodeid!a}\t{' '.join(reason.split())}\n")


class _Collected:
    def __init__(self) -> None:
        self.names: list[str] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.names = [item.nodeid for item in session.items]


def read(files: Iterable[Path]) -> tuple[set[str], dict[str, str]]:
    """The tests that ran, and why others were skipped."""
    ran, skipped = set(), {}
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            name, _, reason = line.partition("\t")
            if reason:
                skipped[ast.literal_eval(name)] = reason.removeprefix("Skipped: ")
            else:
                ran.add(ast.literal_eval(name))
    return ran, skipped


def nowhere(names: Sequence[str], files: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """The tests that ran according to none of the files, and why, but for what is beyond this machine."""
    ran, skipped = read(files)
    for name in names:
        reason = skipped.get(name, UNSELECTED)
        if name not in ran and not reason.startswith(BEYOND):
            yield name, reason


def main(*words: str) -> int:
    """Print them; the exit code.

    :param words: options of pytest, which say what should have run, and files
    """
    collected = _Collected()
    options = ["--collect-only", "-qq", "--no-header", "--no-summary"]
    options += [word for word in words if word.startswith("-")]
    if code := pytest.main(options, plugins=[collected]):
        return int(code)
    found = list(nowhere(collected.names, [Path(word) for word in words if not word.startswith("-")]))
    for name, reason in found:
        print(f"ran nowhere: {name}: {reason}")
    print(f"{len(collected.names)} tests, of which {len(found)} ran nowhere")
    return 1 if found or not collected.names else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
