"""What is known and concluded, without I/O: the run and its events, reading logs, merging and judging stacks.

Fetching what it works on is in ``engine``, drawing it in ``tui`` and ``cli``.
"""
