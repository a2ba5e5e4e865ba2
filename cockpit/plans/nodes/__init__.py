"""Where nodes come from: the hostfile, and what is left out of it.

Connecting to them is in ``engine.links``.
"""
