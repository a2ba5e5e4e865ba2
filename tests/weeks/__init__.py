"""Runs of weeks in simulated time: what they tell, what they leave on disk, and what it costs to come back.

``python -m tests.weeks`` plays a month of a whole run through the real follower, session, journal and watch;
``python -m tests.weeks.month`` writes what a month leaves behind, and attaches to it.
"""
