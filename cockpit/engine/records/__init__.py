"""What this machine keeps of runs: the folder of each with its manifest and journal, and who may write there.

The nodes' logs in it are in ``engine.logs``, snapshots of stacks in ``engine.stacks``.
"""
