"""The probe: what runs inside the Python of a rank, put on its path by the wrapper.

``sitecustomize`` and ``hooks`` are programs of their own, which a rank's Python reads as files: they import
nothing of cockpit, and a failure in them is never the rank's. Its supervisor's side is in ``node.run``.
"""
