"""Optimizers."""

import sys

from . import optimizer

SGD = optimizer.SGD
del optimizer


def break_hook(made: object) -> None:
    """Let the hook meet what it does not expect."""
    for hook in sys.modules[__name__ + ".optimizer"].hooks:
        for cell in hook.__closure__:
            if hasattr(cell.cell_contents, "engine"):
                cell.cell_contents.engine(made, "no number")
