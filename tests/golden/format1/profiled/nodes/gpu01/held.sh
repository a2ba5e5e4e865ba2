#!/bin/bash
# Runs "$@" and leaves pid and status to launch.sh: nsys ends with its window, the launcher goes on.
echo $$ >"$COCKPIT_DIR"/launcher.pid
"$@"
cockpit_status=$?
# No program from here on: with its agent gone, nsys 2022.4 ends some that start under it.
echo $cockpit_status >"$COCKPIT_DIR"/launcher.status
exit $cockpit_status
