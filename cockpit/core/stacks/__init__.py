"""Stacks of many ranks: snapshot, tree, classes, evidence, verdict; and pages, text and files made of them.

One rank's dump is in ``base.stacks``, taking a snapshot in ``engine.stacks``.
"""
