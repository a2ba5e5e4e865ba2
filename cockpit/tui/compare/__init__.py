"""Two runs side by side on the screen: their curves over each other, and what differs.

Which run another one is compared with is asked for in ``tui.run``; two profiles are compared in text alone.
"""
