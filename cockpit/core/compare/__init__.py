"""Two runs side by side: what differs, their pace, their losses, their profiles, how each ended.

From two reports (``core.report``) and two readings of profiles (``core.profile``), by arithmetic alone.
"""
