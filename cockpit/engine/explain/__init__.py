"""Reads what is to be explained: files of any size, compressed or not, folders, pipes, runs.

What consoles tell is judged in ``core.explain``.
"""
