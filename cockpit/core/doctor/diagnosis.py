"""The doctor's answer: all findings, the worst first, and what the nodes are if nothing is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cockpit.core.doctor import busy_faults, machine_faults, network_faults
from cockpit.core.doctor.differences import DIFFERENCES
from cockpit.core.doctor.nccl_words import typed
from cockpit.core.doctor.node_checks import PARTS, Looks, clean
from cockpit.core.finding import Finding, findings
from cockpit.core.ranks import nodes_text
from cockpit.core.rules.explanation import recognised
from cockpit.core.text import counted
from cockpit.errors import Exit

FAULTS = (*network_faults.FAULTS, *busy_faults.FAULTS, *machine_faults.FAULTS)
"""The rules of what is wrong with a node by itself, whatever the others are like."""

TOLD = 5
"""Findings that are said before a launch."""

_ORDER = ("error", "warning", "info")

_SAID = {
    "differs_shm": ("shm_small", ""),
    "differs_open_files": ("limits_low", "ulimit -n"),
    "differs_processes": ("limits_low", "ulimit -u"),
    "differs_locked_memory": ("locked_memory", ""),
    "differs_ptrace_scope": ("no_stacks", ""),
}
"""Differences that a fault explains where it names the same nodes, and what that fault's words have then."""


def diagnosis(looks: Looks, unfit: Iterable[Finding] = ()) -> tuple[Finding, ...]:
    """Everything that is wrong or differs, the worst first.

    :param unfit: what else is known to keep nodes from a launch
    """
    refused = tuple(recognised(each, typed=typed) for each in unfit)
    missing = {found.id.removeprefix("no_") for found in refused}
    faults = tuple(findings(FAULTS, {"looks": looks}))
    # A package that is missing where it is needed is said once; so is a limit that is too low.
    differ = (
        found
        for found in findings(DIFFERENCES, {"looks": looks})
        if found.id.removeprefix("differs_") not in missing and not _is_said(found, faults)
    )
    return worst_first((*refused, *faults, *differ))


def _is_said(difference: Finding, faults: Iterable[Finding]) -> bool:
    id, words = _SAID.get(difference.id, ("", ""))
    return any(
        fault.id == id
        and set(difference.nodes) <= set(fault.nodes)
        and any(words in text for text in (fault.what, *fault.evidence))
        for fault in faults
    )


def worst_first(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Errors, then warnings; those that are as bad in their order."""
    return tuple(sorted(found, key=lambda each: _ORDER.index(each.severity)))


def code(found: Sequence[Finding]) -> Exit:
    """The exit code: fit, warnings, or unfit."""
    worst = {each.severity for each in found}
    return Exit.NODE_UNFIT if "error" in worst else Exit.RANK_FAILED if "warning" in worst else Exit.OK


def line(found: Finding) -> str:
    """A finding in one line, its nodes in front."""
    return f"{nodes_text(found.nodes)}: {found.what}" if found.nodes else found.what


def told(found: Sequence[Finding]) -> list[str]:
    """The most important findings, a line each, and how to see all of them."""
    lines = [f"{each.severity}: {line(each)}" for each in found[:TOLD]]
    more = f"{len(found) - TOLD} more; " if len(found) > TOLD else ""
    return [*lines, f"{more}for details: cockpit doctor with the same options"] if lines else []


def verdict(looks: Looks, found: Sequence[Finding]) -> str:
    """All of it in one line: ``8 nodes fit: torch 2.13.0, python 3.12.1, 8 x H100``."""
    total = counted(len(looks.nodes), "node")
    unfit = {node for each in found if each.severity == "error" for node in each.nodes}
    untried = sum(look.untried for look in looks.nodes.values())
    warned = sum(each.severity == "warning" and each.id != "not_tried" for each in found)
    if unfit or warned or untried:
        parts = [f"{len(unfit)} unfit"] if unfit else []
        parts += [f"{untried} not tried"] if untried else []
        fit = not parts
        parts += [counted(warned, "warning")] if warned else []
        return f"{total}{' fit, ' if fit else ': '}{', '.join(parts)}"
    return f"{total} fit: {', '.join(_common(looks))}"


def checked(looks: Looks) -> str:
    """What was looked at, so that no finding means that it is well.

    ``checked on 7 of 8 nodes: versions, clocks, GPUs (6 nodes)``; empty if no node has answered
    """
    answered = looks.answered.values()
    asked: dict[str, Sequence[object]] = {
        "versions": [look.facts for look in answered],
        "clocks": [look.offset_s for look in answered],
        "other ranks": [look.ranks for look in answered],
        **{PARTS[part]: [getattr(look.condition, part) for look in answered] for part in PARTS},
        # Of no script there are no files.
        PARTS["code"]: [look.condition.code or None for look in answered],
    }
    told = []
    for words, answers in asked.items():
        known = sum(answer is not None for answer in answers)
        # Ranks meet on one node: only there the port is looked at.
        all_of_them = known == len(answered) or words == PARTS["port"]
        told += [words if all_of_them else f"{words} ({counted(known, 'node')})"] if known else []
    where = "" if len(answered) == len(looks.nodes) else f" on {len(answered)} of {len(looks.nodes)} nodes"
    return f"checked{where}: {', '.join(told)}" if told else ""


def _common(looks: Looks) -> list[str]:
    """What the nodes have in common."""
    first = next(iter(looks.nodes.values()))
    words = []
    if first.facts is not None:
        versions = {
            "python": first.facts.python_version,
            "torch": first.facts.torch,
            "deepspeed": first.facts.deepspeed,
        }
        words += [f"{name} {clean(version)}" for name, version in versions.items() if version]
    gpus = first.condition.gpus or ()
    if gpus:
        words.append(f"{len(gpus)} x {clean(gpus[0].name or 'GPU')}, driver {clean(first.condition.driver)}")
    elif first.condition.gpus is not None:
        words.append("no GPUs")
    return words
