"""A terminal cockpit for live multi-node training runs."""

__version__ = "0.1.0"
