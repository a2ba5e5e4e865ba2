"""How things look: themes, signs, units, colours and small plots.

Nothing here knows what a run is: what is drawn is in ``tui.run``, ``tui.logs`` and ``tui.stacks``.
"""
