"""What a launch will do on each node, as pure functions: from nodes and options to one NodePlan per node.

Doing it is in ``engine.launch``.
"""
