"""A run: its events, the model that they make, and its history in sentences; jobs that others started.

What a run printed is in ``core.logs``.
"""
