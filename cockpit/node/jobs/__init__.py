"""Jobs that others started, on a node: where their output goes, and what is added to it.

Which process is which rank is found in ``node.stacks``.
"""
