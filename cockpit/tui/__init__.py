"""The Textual app: views of the engine's model, and the commands that act on it. No logic of its own.

Screens are in ``tui.run`` and ``tui.stacks``; only this package imports textual.
"""
