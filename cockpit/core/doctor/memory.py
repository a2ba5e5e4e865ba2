"""Whether a model's states fit: DeepSpeed's estimates for ZeRO against what the nodes have."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cockpit.core.doctor.node_checks import Looks
from cockpit.core.finding import Finding, Step
from cockpit.core.text import size
from cockpit.errors import CockpitError

BUFFERS = 1.5
"""DeepSpeed's ``additional_buffer_factor``."""

LARGEST = 0.02
"""The part of all parameters that the largest layer is taken to have: an embedding of Llama's."""

_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}


@dataclass(frozen=True)
class Need:
    """What one way of using ZeRO needs for parameters, gradients and optimizer states.

    :param offload: to the CPU: nothing, ``optimizer``, or ``optimizer, params``
    :param gpu_bytes: on each GPU
    :param node_bytes: of each node's memory
    """

    stage: int
    offload: str
    gpu_bytes: int
    node_bytes: int


@dataclass(frozen=True)
class Have:
    """The least that a node, and a GPU, of these has; None: not known, or no GPU."""

    nodes: int
    gpus: int
    gpu_bytes: int | None
    node_bytes: int | None

    def fits(self, need: Need) -> bool | None:
        """Whether it is enough; None: that is not known."""
        pairs = ((need.gpu_bytes, self.gpu_bytes), (need.node_bytes, self.node_bytes))
        if any(there is not None and wanted > there for wanted, there in pairs):
            return False
        return None if any(there is None for _, there in pairs) else True


def needs(params: int, nodes: int, gpus: int) -> tuple[Need, ...]:
    """What each stage needs, without activations.

    After ``estimate_zero2_model_states_mem_needs`` (deepspeed/runtime/zero/stage_1_and_2.py) and
    ``estimate_zero3_model_states_mem_needs`` (stage3.py, with ``zero_init``) of DeepSpeed 0.19.8: Adam in
    mixed precision; 2 bytes of a parameter are its 16 bits, 18 those of gradients and 32-bit states.

    :param gpus: of each node
    """
    total = nodes * gpus
    layer = 4 * int(LARGEST * params)
    return (
        Need(2, "", 2 * params + 18 * params // total, int(4 * gpus * params * BUFFERS)),
        Need(2, "optimizer", 2 * params, int(max(4 * total, 16) * params * BUFFERS)),
        Need(3, "", layer + 18 * params // total, int(layer * gpus * BUFFERS)),
        Need(3, "optimizer", layer + 2 * params // total, int(16 * params / nodes * BUFFERS)),
        Need(3, "optimizer, params", layer, int(18 * params / nodes * BUFFERS)),
    )


def have(looks: Looks, slots: Sequence[int]) -> Have:
    """The least that the nodes which answered have.

    :param slots: of each node, as far as they are given; none, or 0: one for each GPU
    """
    conditions = [look.condition for look in looks.answered.values()]
    gpus = [gpu.memory_total_bytes for each in conditions for gpu in each.gpus or ()]
    memory = [
        min(filter(None, (each.system.memory_bytes, each.system.memory_max_bytes)), default=0)
        for each in conditions
        if each.system
    ]
    counts = [*filter(None, slots)] or [len(each.gpus) for each in conditions if each.gpus]
    return Have(
        max(1, len(conditions)),
        min(counts, default=1),
        min((each for each in gpus if each), default=None),
        min((each for each in memory if each), default=None),
    )


def short(rows: Sequence[Need], there: Have, stage: int | None = None, offload: str = "") -> Finding | None:
    """That the way which was chosen does not fit, or, where none was, that no way does.

    :param stage: of the configuration; None: there is none
    """
    chosen = [row for row in rows if stage is None or (row.stage, row.offload) == (stage, offload)]
    if not chosen or any(there.fits(row) is not False for row in chosen):
        return None
    way = f"ZeRO {stage}{f' with offload of {offload}' if offload else ''}" if stage else "any stage of ZeRO"
    fits = [row for row in rows if there.fits(row)]
    steps = [Step(f"ZeRO {row.stage}, offload: {row.offload or 'none'}", "fits") for row in fits[:2]]
    return Finding(
        "memory_short",
        f"the model states do not fit with {way}",
        severity="warning",
        certainty="likely",
        evidence=tuple(
            f"a GPU needs {size(row.gpu_bytes)} of {told(there.gpu_bytes)}, "
            f"a node {size(row.node_bytes)} of {told(there.node_bytes)}"
            for row in chosen[:1]
        ),
        steps=tuple(steps) or (Step("more nodes, or offload to NVMe"),),
    )


def told(there: int | None) -> str:
    """What there is, in words."""
    return "?" if there is None else size(there)


def parameters(text: str) -> int:
    """A number of parameters: ``70e9``, ``7b``, ``350M``.

    :raises CockpitError: it is none
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?(?:e[0-9]{1,2})?)([kmbt]?)", text.strip().lower())
    value = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not 1 <= value <= 1e15:
        raise CockpitError(f"not a number of parameters: {text[:40]!a}", hint="like 70e9, 7b or 350M")
    return int(value)


def zero_of(config: object) -> tuple[int, str]:
    """Stage and offload of a DeepSpeed configuration, as parsed from JSON.

    :raises CockpitError: it has no stage 2 or 3
    """
    zero = config.get("zero_optimization") if isinstance(config, dict) else None
    stage = zero.get("stage") if isinstance(zero, dict) else None
    if not isinstance(zero, dict) or stage not in (2, 3):
        hint = "the estimates are for ZeRO 2 and 3; leave it out to see all of them"
        raise CockpitError("zero_optimization.stage is neither 2 nor 3", hint=hint)
    names = {"offload_optimizer": "optimizer", "offload_param": "params"}
    there = [
        word
        for name, word in names.items()
        if isinstance(zero.get(name), dict) and zero[name].get("device") == "cpu"
    ]
    return int(stage), ", ".join(there)
