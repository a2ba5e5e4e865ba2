"""Runs that are ready for nsys, on a stand-in for it; and one that tests share."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from cockpit.base.record import NSYS_SESSION
from tests.profile.training import Training, training

NSYS = Path(__file__).with_name("nsys.sh")


class Nsys:
    """The stand-in, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "nsys"
        folder.mkdir()
        shutil.copy(NSYS, self.path)
        (folder / "sessions").mkdir()

    @property
    def words(self) -> list[str]:
        """Options that launch a run ready for it."""
        return ["--profile", "nsys-ready", "--nsys", str(self.path)]

    def fails(self, *words: str) -> None:
        """What goes wrong from now on."""
        (self.folder / "fails").write_text("".join(f"{word}\n" for word in words))

    @property
    def asked(self) -> list[str]:
        """Verbs, each with the node in whose run it was asked, or ``outside``; and its words."""
        return (self.folder / "asked").read_text().splitlines()

    def records(self, folder: Path) -> bool:
        """Whether it records in the session of a node's run folder."""
        with contextlib.suppress(OSError):
            name = (folder / NSYS_SESSION).read_text().strip()
            return (self.folder / "sessions" / name / "out").exists()
        return False


def keepers(top: Path) -> list[psutil.Process]:
    """Each process that records a window of a run whose folders on nodes are below this one."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[-1:] == ["keep"] and process.status() != psutil.STATUS_ZOMBIE:
                held = [Path(one.path) for one in process.open_files()]
                if any(one.name.endswith(NSYS_SESSION) and top in one.parents for one in held):
                    found.append(process)
    return found


@contextmanager
def ready(folder: Path, nsys: Nsys, *, slots: int = 1, more: Sequence[str] = ()) -> Iterator[Training]:
    """Ranks that step, on two nodes, ready for nsys."""
    with training(folder, kind="stub", slots=slots, more=[*nsys.words, *more]) as made:
        yield made


class Shared:
    """Ranks that tests share as long as they live; those that a test has ended are replaced.

    :param start: starts them, in a folder
    """

    def __init__(
        self,
        factory: pytest.TempPathFactory,
        start: Callable[[Path], AbstractContextManager[tuple[Training, Nsys]]],
    ) -> None:
        self._factory = factory
        self._start = start
        self._open = ExitStack()
        self._made: tuple[Training, Nsys] | None = None

    def get(self, *ranks: int) -> tuple[Training, Nsys]:
        """Some of whom at least these live."""
        if self._made is None or not all(psutil.pid_exists(self._made[0].pid(rank)) for rank in ranks):
            self.close()
            self._made = self._open.enter_context(self._start(self._factory.mktemp("ranks")))
        return self._made

    def close(self) -> None:
        """End them."""
        self._made = None
        self._open.close()
