"""Numbers of training, read from the lines that programs print.

What becomes of them over a run is in ``core.logs.metrics``.
"""
