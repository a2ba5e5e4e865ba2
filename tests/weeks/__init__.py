"""Runs of weeks in simulated time: what they leave on disk, and what it costs to come back to them."""
