"""What ``cockpit stop`` prints at its end, alike for our own runs and for jobs that others started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cockpit.base.events import Survivor
from cockpit.base.gate import plain
from cockpit.cli.output import out, out_json, say
from cockpit.core.run.event_table import survivor_text
from cockpit.errors import CockpitError, Exit


def tell_object(
    run: str,
    ranks: Mapping[int, str],
    survivors: Mapping[str, Sequence[Survivor]] | None = None,
    not_asked: Sequence[str] = (),
    sent: Mapping[str, str] | None = None,
) -> None:
    """Print the one JSON object.

    :param ranks: what has become of each
    :param survivors: processes that live on, by node
    :param sent: what ranks were sent, ``TERM`` or ``KILL``, by node
    """
    left = plain(dict(survivors or {}))
    told = {"survivors": left, "not_asked": list(not_asked)}
    out_json({"run": run, "ranks": ranks, **told, **({} if sent is None else {"sent": sent})})


def nothing_to_stop(run: str, why: str, *, as_json: bool) -> Exit:
    """Say that there is nothing, and why."""
    if as_json:
        tell_object(run, {})
    else:
        out(f"{run} is already stopped" if why == "stopped" else f"{run}: nothing to stop: {why}")
    return Exit.OK


def tell_survivors(
    run: str,
    ranks: Mapping[int, str],
    survivors: Mapping[str, Sequence[Survivor]],
    errors: Mapping[str, CockpitError],
    sent: Mapping[str, str] | None = None,
    *,
    as_json: bool,
) -> Exit:
    """Name what lives on, or print the one JSON object.

    :param errors: why nodes could not be asked
    """
    if as_json:
        tell_object(run, ranks, survivors, list(errors), sent)
    else:
        for node, processes in survivors.items():
            for process in processes:
                say(survivor_text(node, process))
    return Exit.NODE_UNFIT if errors else Exit.RANK_FAILED if survivors else Exit.OK
