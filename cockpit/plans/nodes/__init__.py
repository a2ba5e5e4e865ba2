"""Where nodes come from: hostfiles and other lists, what is left out of them, and slots from GPUs.

Connecting to them is in ``engine.links``.
"""
