"""nsys of Nsight Systems. Facts are those of 2022.4.2."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from cockpit.core.finding import Finding, Step
from cockpit.core.ranks import read_ranks
from cockpit.errors import CockpitError
from cockpit.plans.command_words import split

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

ROOM = 500_000_000
_ROOM_OF_A_RANK = 250_000_000

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
"""Runs between nsys and the launcher, and is waited for."""

PROFILED = """\
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
"""Runs the command that it is filled with, by nsys, and ends as the launcher does."""

LEFT_OUT = "leave it out: cockpit places the reports, and a profiler must not end the job"
_OURS = {
    r"(-f|--(force-overwrite|kill|stop-on-exit)\b)": LEFT_OUT,
    r"(-y|--delay\b)": "use cockpit's own: --delay",
    r"(-d|--duration\b)": "use cockpit's own: --duration",
    r"(-c|--capture-range(=|$))": "use cockpit's own: --capture-range",
}
"""Options that cockpit itself gives to nsys, which refuses duplicates, and what to use instead."""

_TRACE = r"(-t|--trace(=|$))"
_OUTPUT = r"(-o|--output)(=?)(.*)"
_DEFAULTS = {
    r"(-s|--sample\b)": "--sample=none",
    # 2022.4 often never finishes its report on a new kernel with them (6.18: 7 of 12 times; without never).
    r"--cpuctxsw\b": "--cpuctxsw=none",
    r"--kill\b": "--kill=none",  # by default nsys ends the job together with the trace
}
"""What nsys gets unless the user's own words say otherwise."""
_OF_A_RANK = {
    **_DEFAULTS,
    # What a rank leaves running would keep the report from being written.
    r"(-w|--wait\b)": "--wait=primary",
}
"""The same of an nsys around one rank."""
_STARTS = (
    r"(-[bsx]|--(backtrace|cpu-core-|cpuctxsw|enable|event-|export|ftrace|gpu-metrics|gpuctxsw|nic-metrics"
    r"|os-events|sampl|stats|stop-on-exit))"
)
"""Options of ``nsys start``; ``nsys launch`` has the others."""
_RANGE_END = "--capture-range-end=stop"


def refuse(extra: Iterable[str], ours: Mapping[str, str]) -> None:
    """See that the user's words for nsys are none of cockpit's.

    :param ours: patterns of those, and what to do instead
    :raises CockpitError: one is
    """
    for word in extra:
        if hint := next((hint for pattern, hint in ours.items() if re.match(pattern, word)), ""):
            raise CockpitError(f"{word} cannot be given to nsys", where="--nsys-args", hint=hint)


@dataclass(frozen=True)
class Nsys:
    """nsys around the launcher or around each rank, with the options of one run.

    :param trace: what to trace, comma-separated
    :param delay_s: start this many whole seconds after the launch
    :param duration_s: trace this many whole seconds; the job continues afterwards
    :param capture_range: nsys's own, like ``cudaProfilerApi`` or ``nvtx``
    :param extra: more words for ``nsys profile``
    :param path: nsys on the nodes; None: wherever it is
    :param per_rank: around each rank, instead of the launcher of each node
    :param ranks: those that are profiled, each on its own; None: all
    :param sampler: more words for one nsys on each node, that of its lowest rank
    :param steps: the first and the last one to record, of each rank on its own; None: all
    :param step_ranges: whether each of these gets an NVTX range (on GPUs)
    """

    name: ClassVar[str] = "nsys"
    tool: ClassVar[str] = "nsys"
    """The program's name."""
    ready: ClassVar[bool] = False
    """Whether it records only on request, during the run: a run may then leave no report."""
    help: ClassVar[tuple[str, ...]] = ("nsys", "profile", "--help")
    """Its name, and the words that make it print its options."""
    # If its importer is missing, it leaves a .qdstrm.
    suffixes: ClassVar[tuple[str, ...]] = (".nsys-rep", ".qdstrm", ".sqlite")
    """What names of its files end in, those of a report first; nothing else is fetched."""
    warning: ClassVar[str] = (
        "nsys reports hold the whole environment of the run, secrets included: share them with care"
    )
    """What a person must know who passes a report on."""

    trace: str = DEFAULT_TRACE
    delay_s: float = 0
    duration_s: float = 0
    capture_range: str = ""
    extra: tuple[str, ...] = ()
    path: str | None = None
    per_rank: bool = False
    ranks: frozenset[int] | None = None
    sampler: tuple[str, ...] = ()
    steps: tuple[int, int] | None = None
    step_ranges: bool = False

    def _check(self) -> None:
        refuse((*self.extra, *self.sampler), _OURS)
        if any(re.match(_OUTPUT, word) for word in self.sampler):
            raise CockpitError("-o belongs to --nsys-args", where="--node-sampler", hint="move it there")
        name, _ = self._output()
        if name is not None and (not name or "/" in name or "\0" in name or name.startswith("-")):
            hint = "give a file name: reports go into the run folder, where cockpit collect finds them"
            raise CockpitError(f"-o {name}: not a file name", where="--nsys-args", hint=hint)
        for option, value in (("delay", self.delay_s), ("duration", self.duration_s)):
            # 2022.4 reads 0.5 as 0, and refuses it as a duration.
            if value != int(value):
                where = f"--{option} {value:g}"
                raise CockpitError("nsys counts whole seconds", where=where, hint="round it")
        if self.steps is None:
            if self.step_ranges:
                raise CockpitError("--step-ranges goes with --profile-steps", hint="say which: 10-15")
        elif self.delay_s or self.duration_s or self.capture_range:
            what = "--profile-steps does not go with --delay, --duration and --capture-range"
            raise CockpitError(what, hint="leave these out: the steps are the window")

    @staticmethod
    def add_options(group: argparse._ArgumentGroup) -> None:
        """Add its options to a parser."""
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
        group.add_argument(
            "--per-rank", action="store_true", help="nsys around each rank: one report per rank, not per node"
        )
        group.add_argument(
            "--profile-ranks", metavar="SET", default="", help="only these ranks, such as 0,8-15 (--per-rank)"
        )
        group.add_argument(
            "--profile-steps",
            metavar="A-B",
            type=_steps,
            help="record only these steps of each rank, as the probe counts them (--per-rank)",
        )
        group.add_argument(
            "--step-ranges", action="store_true", help="an NVTX range for each of these steps (on GPUs)"
        )
        group.add_argument(
            "--node-sampler",
            metavar="'WORDS'",
            default="",
            help="extra arguments for one nsys per node, such as '--nic-metrics=true'",
        )

    @classmethod
    def of(cls, args: argparse.Namespace) -> Nsys:
        """The one that these options ask for.

        :raises CockpitError: they make no sense
        """
        extra = split(args.nsys_args, "--nsys-args")
        sampler = split(args.node_sampler, "--node-sampler")
        ranks = read_ranks(args.profile_ranks) if args.profile_ranks else None
        per_rank = args.per_rank or ranks is not None or args.profile_steps is not None
        windows = args.trace, args.delay, args.duration, args.capture_range
        steps = args.profile_steps, args.step_ranges
        return cls(*windows, extra, args.nsys, per_rank, ranks, sampler, *steps)

    @property
    def waits_for(self) -> str:
        """What begins its window, unless time does; empty: time."""
        return "steps {}-{}".format(*self.steps) if self.steps else self.capture_range

    @property
    def until_s(self) -> float:
        """Seconds after its start when its window is over; 0: time does not end it."""
        return self.delay_s + self.duration_s if self.duration_s else 0.0

    def room(self, ranks: int) -> int:
        """Free bytes that a node with so many ranks must have."""
        # It wrote 190-220 MB for even a short trace of one node, most of that for each process it is around.
        listed = min(ranks, len(self.ranks)) if self.ranks is not None else ranks
        return ROOM + (_ROOM_OF_A_RANK * (max(1, listed) - 1) if self.per_rank else 0)

    @property
    def places(self) -> tuple[str, ...]:
        """Where it may be on a node, the best first: a name to look for on PATH, or a pattern of paths."""
        return (self.path,) if self.path else _PLACES

    @property
    def missing(self) -> Finding:
        """What to say where it is in none of these places, and what would help."""
        anywhere = "nsys is not on PATH, in CUDA's or in Nsight's folders"
        what = f"no nsys {self.path}" if self.path else anywhere
        return Finding("no_nsys", what, certainty="sure", steps=(Step("--nsys PATH", "give its path"),))

    def named(self, report: str) -> str:
        """The path of a node's report as the user's own options name it.

        :param report: what it is without them, without suffix
        """
        name, _ = self._output()
        return report if name is None else f"{os.path.dirname(report)}/{name.removesuffix(self.suffixes[0])}"

    def argv(self, tool: str, folder: str, report: str, switches: Collection[str]) -> tuple[str, ...]:
        """The words before the launcher's; none: it is around each rank.

        :param tool: its path on the node
        :param folder: the run folder there
        :param report: the report's path in it, without suffix
        :param switches: the options it knows there; none: not known
        :raises CockpitError: the options make no sense
        """
        self._check()
        if self.per_rank:
            return ()
        words = self._words((*self._output()[1], *self.sampler), _DEFAULTS, switches)
        return (tool, "profile", "-o", f"{folder}/{report}", *words, "bash", f"{folder}/{HELD_SH}")

    def around(
        self, tool: str, report: str, ranks: Collection[int], switches: Collection[str]
    ) -> dict[str, object]:
        """What :mod:`cockpit.node.run.rank_profiler` reads: the words before those of a rank, ``before`` and,
        of the ranks in ``samplers``, ``sampler``; ``report``, how a rank's report is called.

        :param ranks: ranks of the node that are profiled
        """
        name, extra = self._output()
        steps = self._windows(tool, extra, switches) if self.steps else {}
        return {
            **steps,
            "before": (tool, "profile", *self._words(extra, _OF_A_RANK, switches)),
            "report": f"{os.path.basename(report)}.rank-%q{{RANK}}" if name is None else name,
            "sampler": self.sampler,
            "samplers": sorted(ranks)[:1],
        }

    def _windows(self, tool: str, extra: tuple[str, ...], switches: Collection[str]) -> dict[str, object]:
        """What begins and ends a window of steps: cudaProfilerStart, or a session that others start."""
        starts: list[str] = []
        launches: list[str] = []
        words = launches
        for word in extra:
            if word.startswith("-"):
                words = starts if re.match(_STARTS, word) else launches
            words.append(word)
        if not any(re.match(_TRACE, word) for word in extra):
            launches.insert(0, f"--trace={self.trace}")
        ours = [word for word in self._defaults(_DEFAULTS, extra) if re.match(_STARTS, word)]
        ends = [_RANGE_END] if knows(switches, _RANGE_END) else []
        return {
            "steps": self.steps,
            "ranges": self.step_ranges,
            "range": ["--capture-range=cudaProfilerApi", *ends],
            "launch": (tool, "launch", "--wait=primary", *launches),
            "start": (tool, "start", "-f", "true", *ours, *starts),
            "stop": (tool, "stop"),
        }

    def files(self) -> dict[str, str]:
        """What it needs in the run folder, by name."""
        return {} if self.per_rank else {HELD_SH: HELD}

    def lacking(self, switches: Collection[str]) -> tuple[Finding | None, tuple[str, ...]]:
        """What the user asked for that it does not know, and what of ours is left out.

        :param switches: the options it knows on a node; none: not known
        """
        asked = [word.partition("=")[0] for word in (*self.extra, *self.sampler) if word.startswith("-")]
        asked += [f"--{name}" for name in ("delay", "duration") if getattr(self, f"{name}_s")]
        asked += ["--capture-range"] if self.capture_range else []
        for word in asked:
            if not knows(switches, word):
                step = Step(f"nsys {self.help[1]} --help", "see what it knows there")
                what = f"nsys there does not know {word}"
                return Finding("no_switch", what, certainty="sure", steps=(step,)), ()
        ours = [*self._defaults(_OF_A_RANK if self.per_rank else _DEFAULTS, self.extra)]
        ours += [_RANGE_END] if self.capture_range else []
        return None, tuple(word for word in ours if not knows(switches, word))

    def _output(self) -> tuple[str | None, tuple[str, ...]]:
        """The name that the user's own words give to a report, and the other words."""
        name: str | None = None
        rest: list[str] = []
        words = iter(self.extra)
        for word in words:
            match = re.fullmatch(_OUTPUT, word, re.DOTALL)
            if match is None:
                rest.append(word)
            else:
                name = match[3] if match[2] or match[3] else next(words, "")
        return name, tuple(rest)

    def _words(
        self, extra: tuple[str, ...], defaults: Mapping[str, str], switches: Collection[str]
    ) -> tuple[str, ...]:
        argv = ["-f", "true"]
        if not any(re.match(_TRACE, word) for word in extra):
            argv.append(f"--trace={self.trace}")
        argv += [word for word in self._defaults(defaults, extra) if knows(switches, word)]
        if self.delay_s:
            argv.append(f"--delay={int(self.delay_s)}")
        if self.duration_s:
            argv.append(f"--duration={int(self.duration_s)}")
        if self.capture_range:
            ends = [_RANGE_END] if knows(switches, _RANGE_END) else []
            argv += [f"--capture-range={self.capture_range}", *ends]
        return (*argv, *extra)

    @staticmethod
    def _defaults(defaults: Mapping[str, str], extra: Collection[str]) -> Iterator[str]:
        for pattern, word in defaults.items():
            if not any(re.match(pattern, each) for each in extra):
                yield word

    def script(self, command: str) -> str:
        """Shell text that runs the whole command, and ends as the launcher does."""
        return "exec " + command if self.per_rank else PROFILED % command


def _steps(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,12})(?:-([0-9]{1,12}))?", text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first <= last:
        raise argparse.ArgumentTypeError(f"not steps: {text[:40]!r} (like 10-15, the first is 1)")
    return first, last


def knows(switches: Collection[str], word: str) -> bool:
    """Whether nsys knows an option, which may be cut short; of an nsys that was not asked: yes."""
    if not switches:
        return True
    if not word.startswith("--"):
        return word[:2] in switches
    word = word.partition("=")[0]
    # Help has "--nvtx-domain-[include|exclude]=", which ends with its dash in what was read of it.
    return any(each.startswith(word) or (each.endswith("-") and word.startswith(each)) for each in switches)
