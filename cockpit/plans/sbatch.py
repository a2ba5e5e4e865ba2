"""The batch script of a plan, for ``sbatch``: ``examples/slurm.sbatch`` is one.

Nodes are asked for by number, since SLURM chooses them; in the job, cockpit takes what SLURM has given.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from cockpit.base.shell import comment, fill, join
from cockpit.core.text import counted
from cockpit.errors import CockpitError
from cockpit.plans.launch import LaunchJob

_TIME = "24:00:00"

_HEAD = """\
#!/bin/bash
{title}
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node={ranks}
#SBATCH --gpus-per-node={ranks}
#SBATCH --exclusive
# Fill in what your site requires and remove one #. Options of the sbatch command override these lines.
##SBATCH --time={time}
##SBATCH --partition=NAME
##SBATCH --account=NAME
# Instead of --exclusive, which takes whole nodes, cores for each rank:
##SBATCH --cpus-per-task=N

# cockpit takes the nodes from the job and starts a rank per GPU, or per task if the job has no GPUs: then
# remove --gpus-per-node. The run ends with this script, so the script waits for it. To watch it from a login
# node with the same home: cockpit attach last
"""


@dataclass(frozen=True)
class Batch:
    """A job that trains on nodes of SLURM's choice.

    :param ranks: on each node
    :param words: the command that trains
    :param cwd: the folder in which it is typed
    :param venv: the virtual environment that is active there, if one is
    """

    name: str
    nodes: int
    ranks: int
    words: Sequence[str]
    cwd: str
    venv: str = ""

    @property
    def script(self) -> str:
        """The text of the script."""
        size = f"{counted(self.nodes, 'node')} of a SLURM cluster, {counted(self.ranks, 'rank')} on each"
        title = comment(f"Train on {size}: sbatch FILE")
        lines = [_HEAD.format(title=title, name=self.name, nodes=self.nodes, ranks=self.ranks, time=_TIME)]
        if self.venv:
            lines.append(fill("source {}\n", os.path.join(self.venv, "bin/activate")))
        lines.append(fill("cd -- {} || exit 90\n", self.cwd))
        lines.append(join(self.words) + "\n")
        return "".join(lines)


def batch(job: LaunchJob, words: Sequence[str], cwd: str, venv: str = "") -> Batch:
    """The batch job of a launch; see :class:`Batch`.

    :raises CockpitError: its nodes are not alike
    """
    slots = sorted({len(host.slots) for host in job.hosts})
    if len(slots) > 1:
        what = f"nodes have {', '.join(map(str, slots))} slots, and SLURM gives each node of a job the same"
        raise CockpitError(what, hint="take nodes that are alike: --include NODES")
    program = os.path.basename(job.program[0])
    name = re.sub(r"[^A-Za-z0-9_.-]", "", program.removesuffix(".py")).lstrip("-.")
    return Batch(name or "train", len(job.hosts), slots[0], words, cwd, venv)
