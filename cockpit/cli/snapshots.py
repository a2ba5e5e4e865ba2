"""The snapshots of a run, as ``cockpit stacks RUN --list`` shows them, those that its nodes took included."""

from __future__ import annotations

import time

from cockpit.base.shell import quote
from cockpit.cli.awaiting import may_ask, telling
from cockpit.cli.output import complain, out, out_json, table
from cockpit.core.run.model import RunModel
from cockpit.engine.links.pool import LinkPool
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.current_state import model_now
from cockpit.engine.run.join import pool_for
from cockpit.engine.stacks.evidence import Shown, gather, lacking
from cockpit.engine.stacks.listed import listed
from cockpit.errors import CockpitError, Exit

NODES = "the nodes"
COCKPIT = "cockpit"


async def show(folder: RunFolder, *, as_json: bool) -> int:
    """List the snapshots of a run, the oldest first, after fetching what its nodes have kept."""
    if may_ask(folder):
        async with pool_for(folder.manifest) as pool:
            model = folder.model()
            async with telling(lambda: pool.roll, failures=False):
                if not model.over:
                    model, _ = await model_now(pool, folder.manifest)
                await fetched(folder, model, pool)
    found = listed(folder.path / "stacks")
    if as_json:
        out_json([one.as_json() for one in found])
    elif not found:
        out(f"no snapshots of {folder.name} yet; take one: cockpit stacks {quote(folder.name)}")
    else:
        rows = [("SNAPSHOT", "TAKEN", "BY", "RANKS", "VERDICT")]
        for one in found:
            at = "" if one.head.at is None else time.strftime("%m-%d %H:%M:%S", time.localtime(one.head.at))
            by = NODES if one.head.by_nodes else COCKPIT
            rows.append((one.path.name, at, by, str(one.head.ranks), one.found.what))
        table(rows, cut=True)
        out()
        out(f"see: cockpit stacks {quote(str(found[-1].path))}")
    return Exit.OK


async def fetched(folder: RunFolder, model: RunModel, pool: LinkPool) -> list[Shown]:
    """The evidence that the nodes of a run kept; prints a warning for each node that cannot send it."""
    shown, errors = await gather(folder, model, pool.lend, lacking(folder, model))
    for name, error in errors.items():
        complain(CockpitError(f"cannot get its evidence: {error.what}", where=name))
    return shown
