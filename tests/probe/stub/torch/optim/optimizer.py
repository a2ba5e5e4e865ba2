"""An optimizer, and hooks that are called after each of its steps."""

from __future__ import annotations

from typing import Any

hooks: list[Any] = []


def register_optimizer_step_post_hook(hook: Any) -> None:
    """Call it after each step."""
    hooks.append(hook)


class SGD:
    """It does nothing."""

    def __init__(self) -> None:
        import torch._dynamo  # noqa: F401

    def step(self) -> None:
        """One step."""
        for hook in hooks:
            hook(self, (), {})
