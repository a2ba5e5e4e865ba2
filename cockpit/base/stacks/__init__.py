"""What a dump of one rank is: its parts, how it is packed for a link, what a frame is busy with.

Taking a dump is in ``node.stacks``, merging those of many ranks in ``core.stacks``.
"""
