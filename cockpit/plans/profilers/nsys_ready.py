"""nsys that waits: the launcher runs in a session in which `cockpit profile --kind nsys` records.

Facts are those of 2022.4.2.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from cockpit.base.record import NSYS_SESSION
from cockpit.core.finding import Finding
from cockpit.core.ranks import read_ranks
from cockpit.errors import CockpitError
from cockpit.plans.command_words import split
from cockpit.plans.profilers.nsys import HELD, HELD_SH, LEFT_OUT, PROFILED, Nsys, refuse

SESSION = "COCKPIT_NSYS_SESSION"
"""The variable by which launch.sh tells nsys and held.sh the name of the session."""

# A session that nsys has failed to launch in may stay for a while: each try has a name of its own.
_NAMED = f"""\
{SESSION}=cockpit-$(cat /proc/sys/kernel/random/uuid)
export {SESSION}
%s"""

_HELD = HELD.replace(
    '"$@"\ncockpit_status',
    f'echo "${SESSION}" >"$COCKPIT_DIR"/{NSYS_SESSION}\nunset {SESSION}\n"$@"\ncockpit_status',
)

_LATER = "leave it out: nothing is recorded until: cockpit profile RUN --kind nsys"
_OURS = {
    r"(-t|--trace(=|$))": "use cockpit's own: --trace",
    r"--session(-new)?\b": LEFT_OUT,
    r"(-[ofcdxy]|--(output|force-overwrite|capture-range|delay|duration|stop-on-exit|kill)\b)": _LATER,
    # They belong to `nsys start`; 2022.4 warns of them at each launch.
    r"(-s|--(sample|cpuctxsw)\b)": "leave it out: cockpit profile --kind nsys samples nothing",
}
"""Options that `nsys launch` gets from cockpit, or has not."""
_OF_WINDOWS = (
    "delay",
    "duration",
    "capture_range",
    "profile_steps",
    "step_ranges",
    "node_sampler",
)
"""Options of a profiler that records what it is told at the launch."""


@dataclass(frozen=True)
class NsysReady(Nsys):
    """nsys that records only on request, during the run."""

    name: ClassVar[str] = "nsys-ready"
    ready: ClassVar[bool] = True
    help: ClassVar[tuple[str, ...]] = ("nsys", "launch", "--help")

    @staticmethod
    def add_options(group: argparse._ArgumentGroup) -> None:
        """It has those of :class:`Nsys`."""

    @classmethod
    def of(cls, args: argparse.Namespace) -> NsysReady:
        """See :meth:`Nsys.of`."""
        for name in _OF_WINDOWS:
            if getattr(args, name):
                what = f"--{name.replace('_', '-')} goes with: --profile {Nsys.name}"
                raise CockpitError(what, hint="later: cockpit profile RUN --kind nsys --seconds S")
        ranks = read_ranks(args.profile_ranks) if args.profile_ranks else None
        per_rank = args.per_rank or ranks is not None
        extra = split(args.nsys_args, "--nsys-args")
        return cls(args.trace, extra=extra, path=args.nsys, per_rank=per_rank, ranks=ranks)

    def room(self, ranks: int) -> int:
        """Whether there is room is seen when it is to record."""
        return 0

    def files(self) -> dict[str, str]:
        """See :meth:`Nsys.files`."""
        return {} if self.per_rank else {HELD_SH: _HELD}

    def lacking(self, switches: Collection[str]) -> tuple[Finding | None, tuple[str, ...]]:
        """See :meth:`Nsys.lacking`."""
        return super().lacking(switches)[0], ()

    def argv(self, tool: str, folder: str, report: str, switches: Collection[str]) -> tuple[str, ...]:
        """See :meth:`Nsys.argv`."""
        refuse(self.extra, _OURS)
        if self.per_rank:
            return ()
        words = (tool, "launch", f"--session-new=%q{{{SESSION}}}", f"--trace={self.trace}", *self.extra)
        return (*words, "bash", f"{folder}/{HELD_SH}")

    def around(
        self, tool: str, report: str, ranks: Collection[int], switches: Collection[str]
    ) -> dict[str, object]:
        """See :meth:`Nsys.around`."""
        # What a rank leaves running would keep its wrapper's nsys from ending.
        words = (tool, "launch", "--wait=primary", f"--trace={self.trace}", *self.extra)
        return {"before": words, "report": "", "sampler": (), "samplers": (), "ready": True}

    def script(self, command: str) -> str:
        """See :meth:`Nsys.script`."""
        return "exec " + command if self.per_rank else PROFILED % (_NAMED % command)
