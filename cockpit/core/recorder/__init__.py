"""Flight recorders of many ranks, read together: who entered which collective, who is late, who is slow.

A single dump is read in ``base.recorder``.
"""
