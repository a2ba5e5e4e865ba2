"""Profiles: a collection of one window over all ranks, and what it says."""
