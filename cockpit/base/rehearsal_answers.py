"""What a node says of trials of torch, small process groups: answers to ``rehearse`` and ``trial``."""

from __future__ import annotations

from typing import Dict, Optional, Tuple

from cockpit.base import gate
from cockpit.base.gate import Definition, ListOf, MapOf, Maybe, Number, Text, Whole, bound, maybe
from cockpit.base.shared_fields import TRIAL_ROUNDS

_NAME = Text(255, cut=True)


class RehearseItem(Definition):
    """torch is imported; `cuda` is the version that it was built for, empty without"""

    torch: str = bound(_NAME)
    cuda: str = bound(_NAME, "")
    nccl: bool = bound(gate.FLAG, False)


class TrialItem(Definition):
    """the step that the rank has begun; `port`: where rank 0 listens"""

    step: str = bound(gate.WORD)
    port: Optional[int] = maybe(Whole(1, 65535))


class TrialAnswer(Definition):
    """the last step that was begun, `done` if all went well; else why not; what the rank took and printed"""

    step: str = bound(gate.WORD)
    error: str = bound(gate.SENTENCE, "")
    address: str = bound(_NAME, "")
    interface: str = bound(_NAME, "")
    said: str = bound(Text(16 << 10, cut=True), "")
    took_s: Dict[str, float] = bound(MapOf(gate.WORD, Number(0, 1e9), 16), {})
    rates: Tuple[Optional[float], ...] = bound(ListOf(Maybe(Number(0, 1e15)), TRIAL_ROUNDS), ())
