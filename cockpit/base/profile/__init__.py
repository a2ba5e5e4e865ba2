"""Profiles of ranks: how one is ordered from a rank's hook, and what its node says of it."""
