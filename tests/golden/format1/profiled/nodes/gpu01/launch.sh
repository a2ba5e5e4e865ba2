#!/bin/bash
# @RUN@: gpu01 (node 0 of 2), ranks 0-1 of 4
cd -- @TOP@/work || exit 90
export PATH=@TOP@/bin:"$PATH"
export PYTHONUNBUFFERED=1
mkdir -p "$COCKPIT_DIR"/reports
@TOP@/work/nsys profile -o "$COCKPIT_DIR"/reports/@RUN@-gpu01 -f true \
  --trace=cuda,nvtx,osrt --sample=none --cpuctxsw=none --kill=none bash "$COCKPIT_DIR"/held.sh bash \
  "$COCKPIT_DIR"/slots.sh "$COCKPIT_DIR"/rankwrap 1 ./train end
cockpit_status=$?
# nsys may end before the launcher has begun.
for cockpit_try in {1..20}; do
  [ "$cockpit_status" -ne 0 ] || [ -s "$COCKPIT_DIR"/launcher.pid ] && break
  sleep 0.5
done
while [ ! -s "$COCKPIT_DIR"/launcher.status ] && kill -0 "$(cat "$COCKPIT_DIR"/launcher.pid)"; do
  sleep 0.5
done 2>/dev/null
exit "$(cat "$COCKPIT_DIR"/launcher.status 2>/dev/null || echo $cockpit_status)"
