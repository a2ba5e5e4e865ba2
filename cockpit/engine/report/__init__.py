"""The report of a run: read from its folder here, and packed for somebody else's cockpit.

What it says is a model of ``core.report``; bundles are opened in ``engine.records``.
"""
