"""What failures mean: rules as data, one table, and which of them explains an end.

Which lines of a log report an end is elsewhere: ``core.logs``; what is unfit about a node: ``core.doctor``.
"""
