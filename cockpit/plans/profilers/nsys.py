"""nsys of Nsight Systems. Facts are those of 2022.4.2."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from cockpit.core.finding import Finding, Step
from cockpit.errors import CockpitError
from cockpit.plans.words import split

DEFAULT_TRACE = "cuda,nvtx,osrt"
"""Also right without a GPU: nsys then warns and goes on."""

_PLACES = (
    "nsys",
    "/usr/local/cuda*/bin/nsys",
    "/opt/nvidia/nsight-systems*/*/bin/nsys",
    "/opt/nvidia/nsight-systems*/*/target-linux-*/nsys",
    "/opt/nvidia/nsight-systems*/bin/nsys",
    "/usr/local/cuda*/nsight-systems*/bin/nsys",
    "/usr/lib/nsight-systems/bin/nsys",
)

_HELD_SH = "held.sh"
_HELD = """\
#!/bin/bash
# Runs "$@" and leaves pid and status to launch.sh: nsys ends with its window, the launcher goes on.
# An nsys that had failed for launch.sh may have started it after all.
[ ! -s "$COCKPIT_DIR"/launcher.pid ] || exit 1
echo $$ >"$COCKPIT_DIR"/launcher.pid
"$@"
cockpit_status=$?
# No program from here on: with its agent gone, nsys 2022.4 ends some that start under it.
echo $cockpit_status >"$COCKPIT_DIR"/launcher.status
exit $cockpit_status
"""
"""Runs between nsys and the launcher, and is waited for."""

_PROFILED = """\
cockpit_profiled() {
%s
}
cockpit_profiled
cockpit_status=$?
# On a busy node nsys 2022.4 fails at times before it has started anything; from 128 on it was a signal.
if [ "$cockpit_status" -gt 0 ] && [ "$cockpit_status" -lt 128 ] && [ ! -s "$COCKPIT_DIR"/launcher.pid ]; then
  echo "cockpit: nsys failed with status $cockpit_status before the launcher started; trying once more" >&2
  cockpit_profiled
  cockpit_status=$?
fi
# nsys may end before the launcher has begun.
for cockpit_try in {1..20}; do
  [ "$cockpit_status" -ne 0 ] || [ -s "$COCKPIT_DIR"/launcher.pid ] && break
  sleep 0.5
done
while [ ! -s "$COCKPIT_DIR"/launcher.status ] && kill -0 "$(cat "$COCKPIT_DIR"/launcher.pid)"; do
  sleep 0.5
done 2>/dev/null
exit "$(cat "$COCKPIT_DIR"/launcher.status 2>/dev/null || echo $cockpit_status)"
"""

_LEFT_OUT = "leave it out: cockpit names the reports, and a profiler must not end the job"
_OURS = {
    r"(-[of]|--(output|force-overwrite|kill|stop-on-exit)\b)": _LEFT_OUT,
    r"(-t|--trace(=|$))": "use cockpit's own: --trace",
    r"(-y|--delay\b)": "use cockpit's own: --delay",
    r"(-d|--duration\b)": "use cockpit's own: --duration",
    r"(-c|--capture-range(=|$))": "use cockpit's own: --capture-range",
}
"""Options that cockpit itself gives to nsys, which refuses duplicates, and what to use instead."""

_DEFAULTS = {
    r"(-s|--sample\b)": "--sample=none",
    # 2022.4 often never finishes its report on a new kernel with them (6.18: 7 of 12 times; without never).
    r"--cpuctxsw\b": "--cpuctxsw=none",
}
"""What nsys gets unless the user's own words say otherwise."""


@dataclass(frozen=True)
class Nsys:
    """See :class:`cockpit.plans.profilers.base.Profiler`.

    :param trace: what to trace, comma-separated
    :param delay_s: start this many whole seconds after the launch
    :param duration_s: trace this many whole seconds; the job continues afterwards
    :param capture_range: nsys's own, like ``cudaProfilerApi`` or ``nvtx``
    :param extra: more words for ``nsys profile``
    :param path: nsys on the nodes; None: wherever it is
    """

    name: ClassVar[str] = "nsys"
    # If its importer is missing, it leaves a .qdstrm.
    suffixes: ClassVar[tuple[str, ...]] = (".nsys-rep", ".qdstrm", ".sqlite")
    warning: ClassVar[str] = (
        "nsys reports hold the whole environment of the run, secrets included: share them with care"
    )
    # It wrote 190-220 MB for even a short trace of one node.
    room: ClassVar[int] = 500_000_000
    files: ClassVar[Mapping[str, str]] = {_HELD_SH: _HELD}

    trace: str = DEFAULT_TRACE
    delay_s: float = 0
    duration_s: float = 0
    capture_range: str = ""
    extra: tuple[str, ...] = ()
    path: str | None = None

    @staticmethod
    def add_options(group: argparse._ArgumentGroup) -> None:
        """See :meth:`cockpit.plans.profilers.base.Profiler.add_options`."""
        group.add_argument(
            "--trace", default=DEFAULT_TRACE, help=f"what nsys traces (default: {DEFAULT_TRACE})"
        )
        group.add_argument("--delay", type=int, default=0, metavar="S", help="start tracing after S seconds")
        group.add_argument(
            "--duration", type=int, default=0, metavar="S", help="trace for S seconds; the job continues"
        )
        group.add_argument(
            "--capture-range", default="", metavar="RANGE", help="passed to nsys: cudaProfilerApi, nvtx"
        )
        group.add_argument(
            "--nsys", metavar="PATH", help="nsys on the nodes (default: from PATH or CUDA's folders)"
        )
        group.add_argument(
            "--nsys-args", metavar="'WORDS'", default="", help="extra arguments for nsys profile"
        )

    @classmethod
    def of(cls, args: argparse.Namespace) -> Nsys:
        """See :meth:`cockpit.plans.profilers.base.Profiler.of`."""
        extra = split(args.nsys_args, "--nsys-args")
        return cls(args.trace, args.delay, args.duration, args.capture_range, extra, args.nsys)

    @property
    def places(self) -> tuple[str, ...]:
        """See :attr:`cockpit.plans.profilers.base.Profiler.places`."""
        return (self.path,) if self.path else _PLACES

    @property
    def missing(self) -> Finding:
        """See :attr:`cockpit.plans.profilers.base.Profiler.missing`."""
        anywhere = "nsys is not on PATH, in CUDA's or in Nsight's folders"
        what = f"no nsys {self.path}" if self.path else anywhere
        return Finding("no_nsys", what, certainty="sure", steps=(Step("--nsys PATH", "give its path"),))

    def argv(self, tool: str, folder: str, report: str) -> tuple[str, ...]:
        """See :meth:`cockpit.plans.profilers.base.Profiler.argv`."""
        for word in self.extra:
            if hint := next((hint for pattern, hint in _OURS.items() if re.match(pattern, word)), ""):
                raise CockpitError(f"{word} cannot be given to nsys", where="--nsys-args", hint=hint)
        for name, value in (("delay", self.delay_s), ("duration", self.duration_s)):
            # 2022.4 reads 0.5 as 0, and refuses it as a duration.
            if value != int(value):
                raise CockpitError("nsys counts whole seconds", where=f"--{name} {value:g}", hint="round it")
        argv = [tool, "profile", "-o", f"{folder}/{report}", "-f", "true", f"--trace={self.trace}"]
        argv.append("--kill=none")  # by default nsys ends the job together with the trace
        argv += [
            word for pattern, word in _DEFAULTS.items() if not any(re.match(pattern, e) for e in self.extra)
        ]
        if self.delay_s:
            argv.append(f"--delay={int(self.delay_s)}")
        if self.duration_s:
            argv.append(f"--duration={int(self.duration_s)}")
        if self.capture_range:
            argv += [f"--capture-range={self.capture_range}", "--capture-range-end=stop"]
        return (*argv, *self.extra, "bash", f"{folder}/{_HELD_SH}")

    def script(self, command: str) -> str:
        """See :meth:`cockpit.plans.profilers.base.Profiler.script`."""
        return _PROFILED % command
