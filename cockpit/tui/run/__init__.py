"""The screen of a run: nodes and ranks, details, events, the commands of the launch; and the start before it.

Its log view is in ``tui.logs``.
"""
