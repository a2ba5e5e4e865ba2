"""Every profiler: to add one, add it here."""

from __future__ import annotations

from cockpit.plans.profilers.nsys import Nsys
from cockpit.plans.profilers.nsys_ready import NsysReady

PROFILERS: dict[str, type[Nsys]] = {Nsys.name: Nsys, NsysReady.name: NsysReady}
"""By name."""

TRACE = ".trace.json.gz"
"""What the name of a trace ends in that a running rank was asked for (`cockpit profile`)."""

LAUNCHED = tuple(dict.fromkeys(suffix for profiler in PROFILERS.values() for suffix in profiler.suffixes))
"""The same of reports of profilers that a run was launched with."""

SUFFIXES = (*LAUNCHED, TRACE)
"""What the name of a report may end in; anything else in the reports folder is named, not fetched."""

WARNING = "; ".join(dict.fromkeys(profiler.warning for profiler in PROFILERS.values()))
"""What a person must know who passes on reports of these."""
