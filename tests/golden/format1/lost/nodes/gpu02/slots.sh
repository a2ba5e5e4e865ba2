#!/bin/bash
# Starts "$@" once a slot, waits for all, and exits as the first slot that failed.
export WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 NODE_RANK=1 GROUP_RANK=1
export MASTER_ADDR=127.0.0.1 MASTER_PORT=33543
cockpit_pids=()
# Bash lets background processes ignore SIGINT and SIGQUIT; the ranks get the defaults back.
for ((cockpit_slot = 0; cockpit_slot < 2; cockpit_slot++)); do
  (
    trap - INT QUIT
    export RANK=$((2 + cockpit_slot)) LOCAL_RANK=$cockpit_slot
    exec "$@"
  ) &
  cockpit_pids+=($!)
done
trap 'cockpit_signal=TERM; kill -TERM "${cockpit_pids[@]}" 2>/dev/null' TERM
trap 'cockpit_signal=INT' INT
cockpit_status=0
for cockpit_pid in "${cockpit_pids[@]}"; do
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
