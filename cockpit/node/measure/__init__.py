"""Measurements of ranks, the node and its GPUs.

Facts that a launch needs are in ``node.facts``.
"""
