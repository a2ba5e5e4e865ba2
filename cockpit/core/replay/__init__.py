"""A run as it was at any moment: its recorded events in their order, and the model after some of them.

Reading its folder is elsewhere (``engine.records``, ``engine.replay``).
"""
