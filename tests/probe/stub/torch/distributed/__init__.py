"""Collectives: none."""
