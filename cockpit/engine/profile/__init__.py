"""Profiles: choosing a window, ordering it from all nodes, keeping what comes."""
