"""The home screen: the runs known here, the one under the cursor, SLURM jobs, and what is chosen to do.

What is known of runs is in ``engine.known_runs`` and ``engine.briefs``; what is chosen, the verbs carry out.
"""
