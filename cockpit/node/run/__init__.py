"""A run on its node: starting and stopping it, its folder, its ranks, its logs and reports.

Measurements are in ``node.measure``, stacks in ``node.stacks``.
"""
