"""The watch: detects that steps have stopped, when to inspect ranks, and whether they are stalled.

No clock of its own, no I/O: times and the answers of looks are given.
"""
