"""Rules: samples of every failure, and what must not be taken for one."""
