"""Profiles of this node's ranks: ordered from their hooks, or taken by py-spy; and summed up here.

What a rank does of it itself is in ``node.probe``; py-spy for stacks is in ``node.stacks``.
"""
