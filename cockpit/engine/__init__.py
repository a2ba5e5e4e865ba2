"""What talks to nodes and writes files here: links, launching, following, the spool, stacks, collecting.

What the data means is in ``core``; screens and verbs are its clients.
"""
