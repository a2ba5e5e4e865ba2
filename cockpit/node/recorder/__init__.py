"""Flight recorders on a node: asking torch's own server in each rank for what it remembers.

How an answer is read and cut down is in ``base.recorder``.
"""
