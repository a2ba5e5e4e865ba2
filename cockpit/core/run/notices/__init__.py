"""Notices: what is wrong while a run is running, before anything fails; one rule a file.

``watch`` feeds the rules and says what is news; ``words`` makes findings of it. Memory, which has facts of
its own, is judged in ``core.run.memory``.
"""
