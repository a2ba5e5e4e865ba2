"""Output on this machine: the spool, and the book that merges all logs of a run into one document.

What lines mean is in ``core.logs``.
"""
