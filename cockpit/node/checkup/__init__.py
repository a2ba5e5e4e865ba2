"""The condition of a node: what may keep a launch from working, and what may differ from other nodes.

Each check has its own limit of time: a dead file server, name server or GPU driver costs its own answer only.
"""
