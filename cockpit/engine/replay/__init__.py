"""A recorded run, at any moment: what its folder here has up to then.

Order, keyframes and the clock are in ``core.replay``; what is drawn is in ``tui.run``.
"""
