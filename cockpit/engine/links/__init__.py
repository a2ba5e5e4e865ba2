"""Links to nodes: the agent on each, what is sent to it, and who has answered so far.

How a command is started on a node is in ``transport``.
"""
