"""Cockpit's own launchers: they start any program once per slot, or once on each node."""

from __future__ import annotations

from cockpit.base.record import ENV_RANK
from cockpit.base.shell import fill
from cockpit.plans.command_words import DIR
from cockpit.plans.launch import PlannedNode
from cockpit.plans.launchers.base import Launcher, LauncherCommand, devices, rank_command, wrapped

SLOTS_SH = "slots.sh"

_SLOTS = """\
#!/bin/bash
# Starts "$@" once per slot, waits for all, and exits as the first slot that failed.
export WORLD_SIZE={world:d} LOCAL_WORLD_SIZE={local:d} NODE_RANK={node:d} GROUP_RANK={node:d}
export MASTER_ADDR={addr} MASTER_PORT={port:d}
cockpit_pids=()
# Bash lets background processes ignore SIGINT and SIGQUIT; the ranks get the defaults back.
for ((cockpit_slot = 0; cockpit_slot < {local:d}; cockpit_slot++)); do
  (
    trap - INT QUIT
    export RANK=$(({first:d} + cockpit_slot)) LOCAL_RANK=$cockpit_slot
    exec "$@"
  ) &
  cockpit_pids+=($!)
done
trap 'cockpit_signal=TERM; kill -TERM "${{cockpit_pids[@]}}" 2>/dev/null' TERM
trap 'cockpit_signal=INT' INT USR1 USR2
cockpit_status=0
for cockpit_pid in "${{cockpit_pids[@]}}"; do
  while :; do
    cockpit_signal=
    wait "$cockpit_pid"
    cockpit_one=$?
    # A trap ends the wait, not the process.
    [ -n "$cockpit_signal" ] && kill -0 "$cockpit_pid" 2>/dev/null || break
  done
  [ "$cockpit_status" -ne 0 ] || cockpit_status=$cockpit_one
done
exit "$cockpit_status"
"""


def _command(place: PlannedNode) -> LauncherCommand:
    ranks = place.ranks
    script = fill(
        _SLOTS,
        world=place.job.world_size,
        local=len(ranks),
        node=place.index,
        first=ranks.start,
        addr=place.master_addr,
        port=place.master_port,
    )
    start = ("bash", f"{DIR}/{SLOTS_SH}")
    env, notes = devices(place)
    typed = (*start, *rank_command(place)[1])
    return LauncherCommand(typed, (*start, *wrapped(place)), env=env, files={SLOTS_SH: script}, notes=notes)


COMMAND = Launcher(_command)

ONCE_SH = "once.sh"

_ONCE = """\
#!/bin/bash
# Starts "$@" once, which starts its ranks itself: it would take itself for one by any of these.
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE LOCAL_SIZE
unset GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE MPI_LOCALRANKID
unset ${{!TORCHELASTIC_@}} ${{!OMPI_COMM_WORLD_@}} ${{!MV2_COMM_WORLD_@}} ${{!PMI_@}} ${{!PMIX_@}}
unset SLURM_PROCID SLURM_LOCALID SLURM_NTASKS SLURM_NPROCS SLURM_STEP_NUM_TASKS SLURM_STEP_TASKS_PER_NODE
export NODE_RANK={node:d} NNODES={nodes:d} MASTER_ADDR={addr} MASTER_PORT={port:d}
exec "$@"
"""


def _per_node(place: PlannedNode) -> LauncherCommand:
    script = fill(
        _ONCE,
        node=place.index,
        nodes=len(place.job.hosts),
        addr=place.master_addr,
        port=place.master_port,
    )
    start = ("bash", f"{DIR}/{ONCE_SH}")
    env, notes = devices(place)
    typed = (*start, *rank_command(place)[1])
    run = (*start, "env", f"{ENV_RANK}={place.index}", *wrapped(place))
    return LauncherCommand(typed, run, env=env, files={ONCE_SH: script}, notes=notes)


PER_NODE = Launcher(_per_node)
