"""Home: the runs known here, the one under the cursor, the user's SLURM jobs; what to type next."""

from __future__ import annotations
