"""torchrun 2.13."""

from __future__ import annotations

from cockpit.plans.launch import PlannedNode
from cockpit.plans.launchers.base import Launcher, LauncherCommand, ambiguous, beside, devices, typed, wrapped

# Long options that argparse there knows, for ambiguous().
_OPTIONS = """
    help nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf standalone max-restarts
    monitor-interval start-method role module no-python run-path log-dir redirects tee local-ranks-filter
    node-rank master-addr master-port local-addr logs-specs numa-binding event-log-handler signals-to-handle
    virtual-local-rank shutdown-timeout duplicate-stdout-filters duplicate-stderr-filters
"""
_OURS = """
    --nnodes --nproc-per-node --node-rank --master-addr --master-port -m --module --no-python --standalone
    --rdzv-backend --rdzv-endpoint --rdzv-id --run-path -r --redirects -t --tee --local-ranks-filter
"""


def _torchrun(place: PlannedNode) -> LauncherCommand:
    job, facts = place.job, place.facts
    program = job.program
    if facts is None:
        start = [beside(place, "torchrun")]
    elif facts.torchrun_tool:
        start = [facts.torchrun_tool]
    else:
        start = [place.python, "-m", "torch.distributed.run"]
    start += ["--nnodes", str(len(job.hosts)), "--node-rank", str(place.index)]
    start += ["--nproc-per-node", str(len(place.host.slots))]
    start += ["--master-addr", place.master_addr, "--master-port", str(place.master_port), *job.launcher_args]
    guard = ["--"] if ambiguous(program, _OPTIONS) else []
    run = ["--no-python", *guard, *wrapped(place)]
    env, notes = devices(place)
    return LauncherCommand(
        (*start, *typed(program, guard, "--no-python")), (*start, *run), env=env, notes=notes
    )


TORCHRUN = Launcher(_torchrun, "torch", _OURS)
