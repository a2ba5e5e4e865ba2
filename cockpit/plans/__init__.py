"""Hostfile, launchers, profilers, environment: pure functions that give one NodePlan per node."""
