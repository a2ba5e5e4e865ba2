"""The verbs, one module each, imported when it is typed.

What several verbs share is in ``cli``.
"""
