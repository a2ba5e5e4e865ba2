"""Two runs, or two profiles, read from their folders here.

How they are compared is in ``core.compare``, what a run was in ``engine.report``.
"""
