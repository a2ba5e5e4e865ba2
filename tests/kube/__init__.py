"""Kubernetes: pods as nodes, against a stub of kubectl and against a real control plane."""
