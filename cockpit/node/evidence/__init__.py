"""Looking at ranks for their supervisor: what is kept of them. When, is decided in ``node.run.evidence``."""
