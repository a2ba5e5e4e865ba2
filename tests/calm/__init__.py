"""Real runs that are healthy though they make no step for a minute now and then: no alarm is right.

``make calm``; what each kind does is in :mod:`tests.calm.train`, what was said in ``SCORE.md``.
"""
