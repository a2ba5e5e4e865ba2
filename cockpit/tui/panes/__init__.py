"""What several screens share: lists with a cursor, text, bars, questions, the list of commands.

What belongs to one screen is in ``tui.run``, ``tui.logs`` or ``tui.stacks``.
"""
