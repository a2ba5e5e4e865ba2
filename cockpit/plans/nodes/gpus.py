"""Slots of nodes for which nobody has named a number: one a GPU, as the node itself counts them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cockpit.base.answers import VisibleGpus
from cockpit.core.ranks import nodes_text, piece_of, ranks_text
from cockpit.errors import CockpitError, Exit
from cockpit.plans.nodes.hostfile import MAX_SLOTS, Host

VISIBLE = "CUDA_VISIBLE_DEVICES"


def how_to_say(name: str) -> str:
    """What to type so that a node's number of slots is known, whatever it has."""
    return f"give it: --slots 8 for all nodes, -w '{name}:8', or slots=8 in the hostfile"


def filled(host: Host, gpus: VisibleGpus | None, launcher: str) -> Host:
    """The host with a slot for each of its GPUs, if it is open.

    The numbers of its slots are those in its CUDA_VISIBLE_DEVICES: launchers set that variable anew.

    :param gpus: what the node answered
    :raises CockpitError: it has none, or the launcher cannot name them (exit code: node unfit)
    """
    if not host.open:
        return host
    if gpus is None or not gpus.count:
        why = f" ({gpus.why})" if gpus and gpus.why else ""
        hidden = f" ({VISIBLE} is empty there)" if gpus and gpus.visible == "" else why
        what = f"no number of slots given, and no GPU is visible there{hidden}"
        raise CockpitError(what, where=host.name, hint=how_to_say(host.name), code=Exit.NODE_UNFIT)
    words = [word.strip() for word in (gpus.visible or "").split(",")]
    if all(word.isascii() and word.isdigit() and len(word) < 5 for word in words):
        # The driver stops at the first that it does not know.
        slots = tuple(sorted({int(word) for word in words[: gpus.count]}))
        if slots[-1] < MAX_SLOTS:
            return replace(host, slots=slots)
    if gpus.visible and launcher == "deepspeed":
        what = f"{VISIBLE}={piece_of(gpus.visible)} there, and DeepSpeed knows GPUs by number alone"
        hint = "use --launcher torchrun, or give numbers: --env CUDA_VISIBLE_DEVICES=0,1"
        raise CockpitError(what, where=host.name, hint=hint, code=Exit.NODE_UNFIT)
    return replace(host, slots=tuple(range(gpus.count)))


def told(hosts: Sequence[Host]) -> str:
    """What the GPUs of nodes that were open came to, in one sentence."""
    alike: dict[tuple[int, ...], list[str]] = {}
    for host in hosts:
        alike.setdefault(host.slots, []).append(host.name)
    groups = []
    for slots, names in alike.items():
        these = "" if slots == tuple(range(len(slots))) else f" ({ranks_text(slots)})"
        groups.append(f"{nodes_text(names)} {len(slots)}{these}")
    return f"slots, one per GPU: {', '.join(groups)}"


def check_known(hosts: Sequence[Host]) -> None:
    """Check that every host has slots, where no node is asked.

    :raises CockpitError: some are open; says what to type
    """
    names = [host.name for host in hosts if host.open]
    if names:
        text = nodes_text(names)
        what = "no number of slots given, and nobody has counted the GPUs there"
        raise CockpitError(what, where=text, hint=how_to_say(text))
