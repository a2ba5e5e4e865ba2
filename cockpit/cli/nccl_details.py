"""What NCCL in the ranks of a run says it uses, for people or as JSON."""

from __future__ import annotations

from collections.abc import Mapping

from cockpit import config
from cockpit.cli.awaiting import may_ask, telling
from cockpit.cli.output import out, out_json, out_lines, say
from cockpit.cli.output import table as print_table
from cockpit.core.nccl.findings import found
from cockpit.core.nccl.table import Group, Table, text_lines
from cockpit.core.ranks import mask_text, nodes_text
from cockpit.core.rules.explanation import translated
from cockpit.engine.nccl import table_here, table_now
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.join import Pools
from cockpit.errors import Exit


async def table_of(folder: RunFolder, pools: Pools, *, connect: bool) -> tuple[Table, dict[str, str]]:
    """What is known, and of nodes that could not be asked for more, why.

    :param connect: whether nodes may be asked
    """
    model = folder.model()
    left = [name for name, node in model.nodes.items() if not node.done and not node.lost]
    if not (connect and left and may_ask(folder)) or folder.manifest.foreign is not None:
        return table_here(folder), {}
    pool = pools.of(folder.manifest)
    async with telling(lambda: pools.roll, failures=False):
        return await table_now(folder, pool, left)


def show_nccl(folder: RunFolder, table: Table, errors: Mapping[str, str], *, as_json: bool) -> int:
    """Print it: what is wrong, what differs, what all share.

    :param errors: of nodes that could not be asked, why
    """
    if as_json:
        findings = [one.as_json() for one in found(table)]
        out_json(
            {
                "run": folder.name,
                "findings": findings,
                **table.as_json(),
                "not_asked": dict(sorted(errors.items())),
            }
        )
        return Exit.OK
    for node, why in sorted(errors.items()):
        say(f"{node}: {why}; what follows is based on local data")
    if not table:
        out(f"{folder.name}: no NCCL output recorded")
        if not folder.manifest.nccl_debug:
            out("next time: cockpit run --nccl-debug …")
        return Exit.OK
    print_nccl(table, config.load().language)
    return Exit.OK


def print_nccl(table: Table, lang: str) -> None:
    """A table for people: what is wrong by it, what differs, what all share, then who uses what."""
    wrong = [translated(one, lang) for one in found(table)]
    for one in wrong:
        out(f"{one.severity}: {one.what}")
        steps = (f"→ {step.text}" for step in one.steps)
        out_lines([f"    {text}" for text in (one.meaning, *one.evidence, *steps)])
    if wrong:
        out()
    out_lines(text_lines(table))
    out()
    print_table([_HEAD, *(_line(group) for group in table.alike())])


_HEAD = ("RANKS", "NODES", "VERSION", "NETWORK", "INTERFACE", "GDR", "BETWEEN NODES", "WITHIN", "CHANNELS")


def _line(group: Group) -> tuple[str, ...]:
    """Ranks that say the same."""
    row = group.rows[0]
    over = row.devices if row.network == "IB" else row.interfaces or ((row.provider,) if row.provider else ())
    return (
        mask_text(group.ranks) or "?",
        nodes_text(group.nodes),
        row.version,
        row.network,
        " ".join(over) or row.bootstrap,
        row.gdr,
        " ".join(row.across),
        " ".join(row.inside),
        str(row.channels or ""),
    )
