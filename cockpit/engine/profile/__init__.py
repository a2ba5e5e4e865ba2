"""Profiles: choosing a window, ordering it from all nodes, keeping what comes.

What they say is computed in ``core.profile``; their traces are fetched by ``engine.collect``.
"""
