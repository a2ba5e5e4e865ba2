"""A run being watched: the session with its nodes, ways back to earlier runs, and what the app shows of it.

How a launch comes about is in ``engine.launch``, what is kept of a run in ``engine.records``.
"""
