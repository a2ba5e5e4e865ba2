"""Consoles of every launcher: who failed first, and why, is told from their text alone."""
