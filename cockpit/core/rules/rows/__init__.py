"""The rows of the table of rules, by area: data only. What says more stands first.

How they are read is in the package above.
"""
