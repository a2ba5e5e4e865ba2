"""What torch's flight recorder remembers of one rank: reading its dumps, cutting them down, packing them.

Asking a rank for its dump is in ``node.recorder``; what those of all ranks mean, in ``core.recorder``.
"""
