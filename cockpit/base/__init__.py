"""What both sides of a link speak: frames, verbs, answers, events, the gate that checks them, shell, secrets.

Standard library only, Python 3.8 and newer, no I/O. What only nodes do is in ``node``, what only we do above.
"""
