"""Taking stacks: of whom, over which links, and where snapshots are kept.

What they mean is in ``core.stacks``.
"""
