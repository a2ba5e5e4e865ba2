"""Has failures happen: in a run of cockpit's, and once more without it, as by ``srun --label``.

``python -m tests.rules.happening FOLDER PROCS NAMES`` has some happen, one after the other, where it is
started: in a namespace, or in a cgroup of which PROCS has the processes. It prints what is told of each.
"""

from __future__ import annotations

import itertools
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.cgroups import kills
from tests.ports import free_port
from tests.rules.failures import KILLED_FOR_MEMORY, PRELUDE, WITHOUT_SHARED_MEMORY, Failure
from tests.waiting import PATIENCE_S
from tests.warm import warm

REPO = Path(__file__).parents[2]
NUMBERS = itertools.count()
ENDS: dict[int, str] = {
    signal.SIGKILL: "Killed",
    signal.SIGSEGV: "Segmentation fault",
    signal.SIGBUS: "Bus error",
    signal.SIGINT: "Interrupt",
}
"""In srun's words."""
SOME = "Some of the step tasks have been OOM Killed."


class Told(NamedTuple):
    """What three answers say of one failure, as findings for programs."""

    over: dict[str, Any]
    ps: dict[str, Any]
    explain: dict[str, Any]


class Programs(NamedTuple):
    """What is started.

    :param cockpit: its words
    :param python: has imported torch; a signal that ends what it runs does not end it
    """

    cockpit: tuple[str, ...]
    python: str

    def of(self, failure: Failure) -> str:
        """The Python for it."""
        return self.python if failure.torch else sys.executable


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Of what is started in a test."""
    here = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPO), "XDG_STATE_HOME": str(folder / "state")}
    return {**os.environ, **here, **more}


def cockpit(programs: Programs, *words: str, cwd: Path, ends: Sequence[int] = (0, 1)) -> str:
    """Run it; its output.

    :param ends: the exit codes that it may have
    """
    done = subprocess.run(
        [*programs.cockpit, *words],
        cwd=cwd,
        env=environment(cwd),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode in ends, done.stdout + done.stderr
    return done.stdout


def run(programs: Programs, python: str, folder: Path, *options: str, ends: int = 1) -> list[dict[str, Any]]:
    """Have ``train.py`` run by two ranks; the events."""
    # Two that start in one second may draw the same name.
    name = f"failure-{os.getpid()}-{next(NUMBERS)}"
    words = ("--name", name, "-w", "localhost:2", "--launcher", "command", "--no-preflight")
    # Root of a namespace may be nobody outside of it, and /tmp have a folder of the real one's.
    place = ("--node-dir", str(folder / "nodes"))
    more = (*place, "--headless", "--json", *options, "--", python, "train.py")
    out = cockpit(programs, "run", *words, *more, cwd=folder, ends=[ends])
    return [json.loads(line) for line in out.splitlines()]


def happen(programs: Programs, failure: Failure, folder: Path, killed: Callable[[], int] = int) -> Told:
    """Have it happen in a run, and once more without cockpit.

    :param killed: how many processes the kernel has killed for memory
    """
    folder.mkdir()
    (folder / "train.py").write_text(PRELUDE + failure.body)
    python = programs.of(failure)
    events = run(programs, python, folder)
    ps = json.loads(cockpit(programs, "ps", "last", "--json", cwd=folder))
    alone = folder / "alone"
    alone.mkdir()
    shutil.copy(folder / "train.py", alone)
    before = killed()
    labelled(python, alone, folder / "console.log", lambda: killed() - before)
    return Told(events[-1]["failed"], judged(ps), explained(programs, folder))


def explained(programs: Programs, folder: Path) -> dict[str, Any]:
    """What ``explain`` says of the console there."""
    out = cockpit(programs, "explain", "console.log", "--json", cwd=folder, ends=[1])
    told: dict[str, Any] = json.loads(out)
    return told


def labelled(
    python: str,
    folder: Path,
    console: Path,
    killed: Callable[[], int] = int,
    count: int = 2,
    **more: str,
) -> None:
    """Run ranks; what they print goes to one file, as by ``srun --label``, and how they ended."""
    here = {"PYTHONUNBUFFERED": "1", "WORLD_SIZE": str(count)}
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    env = environment(folder, **here, **rendezvous, **more)
    run = f"{shlex.quote(python)} train.py 2>&1"
    ranks = [
        subprocess.Popen(
            ["bash", "-c", f"set -o pipefail; {run} | sed -u 's/^/{rank}: /' >>\"$0\"", str(console)],
            cwd=folder,
            env={**env, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(count)
    ]
    for rank, one in enumerate(ranks):
        if code := one.wait(100):
            how = ENDS.get(code - 128, f"Exited with exit code {code}")
            with console.open("a") as file:
                if number := killed():
                    file.write(f"slurmstepd: error: Detected {number} oom_kill event in StepId=1.0. {SOME}\n")
                    how = how.replace("Killed", "Out Of Memory")
                file.write(f"srun: error: node{rank}: task {rank}: {how}\n")


def judged(told: dict[str, Any]) -> dict[str, Any]:
    """The finding about the failure, of a run's state."""
    return next(found for found in told["findings"] if found["id"] == "failed")


def elsewhere(within: Sequence[str], folder: Path, names: Sequence[str], procs: str = "") -> dict[str, Told]:
    """Have failures happen inside what a command enters, a namespace or a cgroup; what is reported of each.

    :param procs: the file that has the processes of the cgroup there
    """
    words = [*within, sys.executable, "-m", "tests.rules.happening", str(folder), procs, *names]
    done = subprocess.run(words, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told: Mapping[str, Sequence[dict[str, Any]]] = json.loads(done.stdout.splitlines()[-1])
    return {name: Told(*three) for name, three in told.items()}


@contextmanager
def _warmed(torch: bool) -> Iterator[Programs]:
    with ExitStack() as stack:
        python = stack.enter_context(warm("torch.utils.data")).python if torch else sys.executable
        yield Programs((stack.enter_context(warm("cockpit")).python, "-m", "cockpit"), python)


def main(folder: str, procs: str, *names: str) -> None:
    """Have them happen here."""
    failures = [(KILLED_FOR_MEMORY | WITHOUT_SHARED_MEMORY)[name] for name in names]
    killed = (lambda: kills(Path(procs))) if procs else int
    with _warmed(any(failure.torch for failure in failures)) as programs:
        told = [
            happen(programs, failure, Path(folder, str(number)), killed)
            for number, failure in enumerate(failures)
        ]
    print(json.dumps(dict(zip(names, told, strict=True))))


if __name__ == "__main__":
    main(*sys.argv[1:])
