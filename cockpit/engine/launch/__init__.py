"""From a launch request to a running run: ask the nodes, make their plans, launch on all or on none.

What the plans contain is in ``plans``.
"""
