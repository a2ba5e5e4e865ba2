"""What a console tells of a failure: who printed what, who broke first and why.

Reading files is the job of ``engine.explain``; what a failure means is a rule of ``core.rules``.
"""
