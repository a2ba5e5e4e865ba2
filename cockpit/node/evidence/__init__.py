"""Looking at ranks for their supervisor: what is kept of them.

When, is decided in ``node.run``; what a file consists of is in ``base.evidence_file``.
"""
