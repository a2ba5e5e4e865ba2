"""Stacks on a node: which process is which rank, and what py-spy and the kernel see of it.

What a dump consists of is in ``base.stacks``.
"""
