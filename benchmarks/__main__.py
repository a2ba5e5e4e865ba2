"""``python -m benchmarks [NAME…] [--write]``: measure, print, and with ``--write`` keep in RESULTS.md.

The lab (root, network namespaces, OpenSSH) is needed by connect, launch, doctor, preflight, attach, logs,
collect and stacks, SLURM as well by srun, the cluster of ``make k8s`` by pods; the rest needs nothing.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable

from benchmarks import (
    against,
    attach,
    badnodes,
    bombs,
    causes,
    collect,
    connect,
    disk_growth,
    doctor,
    explain,
    firstframe,
    folding,
    footprint,
    home,
    joined,
    launch,
    logs,
    marks,
    node,
    nsysmodes,
    nsysreports,
    pods,
    probe,
    profiles,
    ranks,
    readings,
    replay,
    reports,
    soak,
    srun,
    stacks,
    tohelp,
    traces,
    uilag,
    watch,
    watched,
    work_of_ranks,
)
from benchmarks.measure import FOLDER, BenchmarkError
from benchmarks.table import Result, compared, page, render
from tests.lab.lab import Lab, LabError

ALL: dict[str, Callable[[], Result]] = {
    "connect": connect.run,
    "launch": launch.run,
    "doctor": doctor.run,
    "preflight": doctor.preflight,
    "attach": attach.run,
    "foreigncost": attach.cost,
    "badnodes": badnodes.run,
    "logs": logs.run,
    "srun": srun.run,
    "pods": pods.run,
    "collect": collect.run,
    "help": tohelp.run,
    "footprint": footprint.run,
    "watched": watched.run,
    "watch": watch.run,
    "probe": probe.run,
    "marks": marks.run,
    "traceml": against.run,
    "node": node.run,
    "uilag": uilag.run,
    "ranks": ranks.run,
    "firstframe": firstframe.run,
    "home": home.run,
    "folding": folding.run,
    "stacks": stacks.run,
    "stackscreen": stacks.screen,
    "dumped": stacks.dumped,
    "bombs": bombs.run,
    "readings": readings.run,
    "profiles": profiles.run,
    "calls": profiles.calls,
    "traces": traces.run,
    "nsysmodes": nsysmodes.run,
    "nsysreports": nsysreports.run,
    "joined": joined.run,
    "works": work_of_ranks.run,
    "causes": causes.run,
    "explain": explain.run,
    "replay": replay.run,
    "kept": disk_growth.run,
    "reports": reports.run,
    "soak": soak.run,
}
QUICK: dict[str, Callable[[], Result]] = {
    "help": tohelp.run,
    "firstframe": lambda: firstframe.run(rounds=5, long=0),
    "connect": lambda: connect.run(sizes=(16,), rounds=3),
    "logs": lambda: logs.run(size=50 << 20, rounds=5),
    "stacks": lambda: stacks.run(rounds=2),
}
"""What shows within three minutes whether something became slow."""
ON_REQUEST = ("soak",)
"""Those that take so long that only who names them gets them."""
IN_LAB = ("connect", "launch", "doctor", "preflight", "attach", "logs", "collect", "stacks")
TRAINS = ("watched", "watch", "probe", "marks", "traceml", "dumped", "profiles", "soak")
_NAMES = ", ".join(ALL) + f" (default: all but {', '.join(ON_REQUEST)})"
RESULTS = FOLDER / "RESULTS.md"


def main() -> int:
    """Run the benchmarks named; return 1 if one of them could not measure."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure cockpit against others."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=_NAMES)
    parser.add_argument("--write", action="store_true", help=f"keep the figures in {RESULTS.name}")
    parser.add_argument(
        "--quick", action="store_true", help=f"a short set ({', '.join(QUICK)}), beside the recorded figures"
    )
    args = parser.parse_args()
    if args.quick:
        return _quick()
    if unknown := [name for name in args.names if name not in ALL]:
        parser.error(f"no such benchmark: {', '.join(unknown)} (there are {', '.join(ALL)})")
    sections: dict[str, str] = {}
    failed = False
    for name in args.names or [name for name in ALL if name not in ON_REQUEST]:
        reason = _unavailable(name)
        if reason:
            print(f"{name}: skipped: {reason}\n", flush=True)
            continue
        try:
            sections[name] = render(ALL[name](), _when())
            print(sections[name], flush=True)
        except (BenchmarkError, LabError, subprocess.SubprocessError) as error:
            failed = True
            print(f"{name}: failed: {error}\n", file=sys.stderr, flush=True)
    if args.write and sections:
        old = RESULTS.read_text() if RESULTS.exists() else ""
        RESULTS.write_text(page(old, HEAD, sections))
    return int(failed)


def _quick() -> int:
    results: list[Result] = []
    for name, measure in QUICK.items():
        if reason := _unavailable(name):
            print(f"{name}: skipped: {reason}", flush=True)
            continue
        try:
            results.append(measure())
        except (BenchmarkError, LabError, subprocess.SubprocessError) as error:
            print(f"{name}: failed: {error}", file=sys.stderr, flush=True)
            return 1
    print(f"{_when()}\n\n{compared(results, RESULTS.read_text())}", end="")
    return 0


def _unavailable(name: str) -> str | None:
    if name in IN_LAB:
        return Lab.unavailable()
    if name == "srun":
        return srun.unavailable()
    if name == "pods":
        return pods.unavailable()
    if name in TRAINS and importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    if name == "traceml":
        return against.unavailable()
    return None


def _when() -> str:
    """Date and machine in one line."""
    with open("/proc/meminfo") as file:
        memory = int(file.readline().split()[1]) / (1 << 20)
    said = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=False).stderr
    parts = [
        f"{len(os.sched_getaffinity(0))} shared cores",
        f"{memory:.0f} GiB",
        f"Linux {platform.release().partition('-')[0]}",
        f"Python {platform.python_version()}",
        f"asyncssh {importlib.metadata.version('asyncssh')}",
        said.partition(",")[0].replace("_", " "),
        f"load {os.getloadavg()[1]:.1f} over the last 5 minutes",
    ]
    return f"{time.strftime('%Y-%m-%d')}: {', '.join(parts)}"


HEAD = """# Results

Ratios of one run on one machine, written by `make bench ARGS=--write`: good or bad, as they came. Each figure
comes from rounds in which both sides ran in turn; the ratio is taken in each round, and shown as the median
with the lowest and the highest. Aims are the project's own. Absolute values say little: the machine is
shared, and runs nodes, sshds and client on the same cores.
"""

if __name__ == "__main__":
    sys.exit(main())
