"""The command line: what verbs share, from parsing words to printing. Each verb is a module of ``cli.verbs``.

The app is in ``tui``.
"""
