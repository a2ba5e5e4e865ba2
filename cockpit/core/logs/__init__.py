"""Reading output: lines, levels, folding, progress, causes. Bytes in, values out.

Where the bytes come from is in ``engine.logs``.
"""
