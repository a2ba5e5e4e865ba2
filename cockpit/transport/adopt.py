"""What a node says that lets in only those whose SLURM job runs there.

Sources: SLURM 22.05, ``pam_slurm_adopt.c``; its older ``pam_slurm.c``, as documented. sshd sends such words
ahead of its own end (OpenSSH 9.2, ``auth2.c``).
"""

from __future__ import annotations

import re

from cockpit.transport.base import NotBySsh

_WORDS = re.compile(
    r"Access denied by pam_slurm_adopt: ([^\r\n\0]{1,200})"
    r"|Access denied: user \S{1,100} \(uid=\d{1,10}\) (has no active jobs on this node)"
)


def barred(said: str, node: str) -> NotBySsh | None:
    """What a node's words mean; None: they are none of SLURM's."""
    found = _WORDS.search(said)
    if found is None:
        return None
    return NotBySsh(
        f"SLURM refuses logins without a job on that node: {found[1] or found[2]}",
        where=node,
        hint="allocate the node first (salloc, sbatch), then use its job: --slurm JOBID",
        retry=False,
        about="job",
    )
