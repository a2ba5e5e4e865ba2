"""Two runs, or two profiles, read from their folders here and compared (``core.compare``)."""
