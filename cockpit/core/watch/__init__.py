"""The watch: tells that steps stand still, when ranks are to be looked at, and whether they are stalled.

No clock of its own, no I/O: times and the answers of looks are given.
"""
