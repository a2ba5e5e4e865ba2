"""The screen of a profile: what to profile, how far it is, and where the steps of each rank go.

What it says is computed in ``core.profile``; taking one is in ``engine.profile``.
"""
