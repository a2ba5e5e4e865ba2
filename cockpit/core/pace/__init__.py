"""Pace: who has finished which step when, how that compares with the other ranks, and who is slow.

Where the numbers come from is elsewhere: rings of the probe (``base``), lines of logs (``core.logs``).
"""
