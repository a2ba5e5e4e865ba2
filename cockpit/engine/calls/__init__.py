"""Calling a person who does not look: their terminal, and a command of theirs.

When, and what they are told, is in ``core.calls``.
"""
