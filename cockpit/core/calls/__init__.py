"""Calling a person who does not look: when, what they are told, and how a terminal says so.

Whom to call is in ``engine.calls``.
"""
