"""Command lines of launchers, one module each; all of them are in ``registry``.

What is the same for every launcher is in ``base``, the shell around a command line in ``plans.script``.
"""
