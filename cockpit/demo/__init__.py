"""A small cluster on this machine to try cockpit on: ssh servers on loopback, real launches behind them.

The verb is in ``cli.verbs.demo``.
"""
