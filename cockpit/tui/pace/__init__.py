"""The pane of ranks × time: curves of the run over a map of who was slow when.

What is drawn is worked out in ``core.pace``.
"""
