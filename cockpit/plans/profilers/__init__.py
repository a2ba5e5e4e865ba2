"""Profilers, one module each; all of them are in ``registry``.

What turns their files into reports runs on the node: ``node.run.reports``.
"""
