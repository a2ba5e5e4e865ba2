"""Kubernetes as a person's own ``kubectl`` shows it: pods, the places they fill, what its words mean.

Nothing here or elsewhere changes anything in a cluster: ``get``, ``exec`` and ``logs`` are all that is used.
"""
