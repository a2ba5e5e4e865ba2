"""Profiles of real training: ranks on this machine, which stands for two nodes."""
