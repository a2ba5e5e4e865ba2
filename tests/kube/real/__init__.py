"""Pods of a real Kubernetes as nodes: what only ``make k8s`` shows."""
