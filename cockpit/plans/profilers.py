"""Command lines of profilers. Facts are those of nsys 2022.4.2."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cockpit.errors import CockpitError

DEFAULT_TRACE = "cuda,nvtx,osrt"
"""Also right without a GPU: nsys then warns and goes on."""

HELD_SH = "held.sh"
HELD = """\
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
"""Runs between nsys and the launcher; :func:`profiled` waits for it."""

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


def profiled(command: str) -> str:
    """Shell text that runs an nsys command around :data:`HELD`, and ends as the launcher does."""
    return _PROFILED % command


@dataclass(frozen=True)
class NsysOptions:
    """One report per node, around the launcher.

    :param trace: what to trace, comma-separated
    :param delay_s: start this many whole seconds after the launch
    :param duration_s: trace this many whole seconds; the job goes on afterwards
    :param capture_range: nsys's own, like ``cudaProfilerApi`` or ``nvtx``
    :param extra: more words for ``nsys profile``
    :param path: nsys on the nodes; None: ask the nodes, else find it on PATH
    """

    trace: str = DEFAULT_TRACE
    delay_s: float = 0
    duration_s: float = 0
    capture_range: str = ""
    extra: tuple[str, ...] = ()
    path: str | None = None


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


def nsys_argv(options: NsysOptions, nsys: str, report: str) -> tuple[str, ...]:
    """The words before the launcher's.

    :param report: path without suffix; nsys adds ``.nsys-rep`` (or ``.qdstrm`` if its importer is missing)
    :raises CockpitError: the extra words disable what cockpit relies on
    """
    for word in options.extra:
        if hint := next((hint for pattern, hint in _OURS.items() if re.match(pattern, word)), ""):
            raise CockpitError(f"{word} cannot be given to nsys", where="--nsys-args", hint=hint)
    for name, value in (("delay", options.delay_s), ("duration", options.duration_s)):
        # 2022.4 reads 0.5 as 0, and refuses it as a duration.
        if value != int(value):
            raise CockpitError("nsys counts whole seconds", where=f"--{name} {value:g}", hint="round it")
    # By default nsys ends the job together with the trace.
    argv = [nsys, "profile", "-o", report, "-f", "true", f"--trace={options.trace}", "--kill=none"]
    argv += [
        word for pattern, word in _DEFAULTS.items() if not any(re.match(pattern, e) for e in options.extra)
    ]
    if options.delay_s:
        argv.append(f"--delay={int(options.delay_s)}")
    if options.duration_s:
        argv.append(f"--duration={int(options.duration_s)}")
    if options.capture_range:
        argv += [f"--capture-range={options.capture_range}", "--capture-range-end=stop"]
    return (*argv, *options.extra)


def report_name(run: str, node: str, index: int) -> str:
    """A file name for a node's report, without suffix; only ``A-Za-z0-9._-`` of the node's name stay."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", node)
    # user@a and user_a must not collide.
    return f"{run}-{safe}" if safe == node else f"{run}-{safe}-n{index}"
