"""Links to nodes: one to each agent, their pool, what is sent to a node, and who has answered so far.

How a command is started on a node is in ``transport``.
"""
