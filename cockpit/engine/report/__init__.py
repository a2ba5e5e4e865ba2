"""The report of a run: read from its folder here, and packed for somebody else's cockpit."""
