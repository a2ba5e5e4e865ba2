"""The engine."""


class DeepSpeedEngine:
    """It counts its steps."""

    def __init__(self) -> None:
        self.global_steps = 0

    def step(self) -> None:
        """One step."""
        self.global_steps += 1
