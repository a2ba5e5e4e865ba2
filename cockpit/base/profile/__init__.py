"""Profiles of ranks: how one is ordered from a rank's hook, and what its node says of it.

Orders are carried out in ``node.probe``; requests and answers are in ``base.verbs`` and ``base.answers``.
"""
