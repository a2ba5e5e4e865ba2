"""The log view and its filter.

Reading logs is in ``engine.logs``.
"""
