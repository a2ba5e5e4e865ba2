"""Rules of the verdict, by what they read: ends, steps, recorders, stacks.

Their order, and what holds for every verdict, is in ``core.stacks.verdict``.
"""
