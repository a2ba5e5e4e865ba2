"""Real cgroups with a limit on memory, of either version, for whoever may make one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from tests.needs import lacking
from tests.waiting import until


@contextlib.contextmanager
def real_group(limit: int) -> Iterator[Path]:
    """The file that has the processes of a cgroup with a limit; skips where none can be made."""
    for root, file in (
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        ("/sys/fs/cgroup", "memory.max"),
    ):
        place = Path(root) / f"cockpit-test-{os.getpid()}"
        with contextlib.suppress(OSError):
            place.mkdir()
            (place / file).write_text(str(limit))
            break
        remove(place)
    else:
        lacking("no cgroup can be made here")
    try:
        yield place / "cgroup.procs"
    finally:
        until(lambda: remove(place), "the end of its processes")


def remove(place: Path) -> bool:
    """Whether a group is gone."""
    with contextlib.suppress(OSError):
        place.rmdir()
    return not place.exists()


def entering(members: Path) -> list[str]:
    """What to put before a command so that it runs in a group."""
    return ["/bin/sh", "-c", 'echo $$ >"$0" && exec "$@"', str(members)]


def kills(members: Path) -> int:
    """How many processes of a group the kernel has killed for memory."""
    place = members.parent
    first = place / "memory.oom_control"
    lines = (first if first.exists() else place / "memory.events").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
