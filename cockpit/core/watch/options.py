"""How a person wants a run watched for stalls."""

from __future__ import annotations

from dataclasses import dataclass

from cockpit.config import Watch as Settings


@dataclass(frozen=True)
class WatchOptions:
    """How a run is watched.

    :param on: whether it is at all
    :param hang_after_s: seconds without a step after which ranks are looked at, unless steps take long
    :param on_hang: ``note``, or ``stop``: the run is stopped once there is proof that it does not go on
    :param stop_after_s: with that, also after so long without a step and without movement; 0: never
    """

    on: bool = True
    hang_after_s: float = Settings.hang_after
    on_hang: str = Settings.on_hang
    stop_after_s: float = Settings.stop_after
