"""The screen of stacks: verdict, classes, tree, threads.

Taking stacks is in ``engine.stacks``.
"""
