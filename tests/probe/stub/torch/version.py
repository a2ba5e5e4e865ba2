"""Its version."""

__version__ = '2.13.0+stub'  # fmt: skip
