"""Profiles: a collection of one window over all ranks, and what it says.

Traces are read where they were taken, in ``node.profile``; collections are kept by ``engine.profile``.
"""
