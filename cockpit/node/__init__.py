"""What is sent to a node and runs there: agent, supervisor, wrapper. Python 3.8; imports only ``base``.

Standard library only. The other end of the link is in ``engine.links``.
"""
