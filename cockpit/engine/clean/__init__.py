"""Old runs: what they take here and on their nodes, and their removal.

Which ones go is decided in ``core.run.cleaning``; nodes check once more for themselves.
"""
