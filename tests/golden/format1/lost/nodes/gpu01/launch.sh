#!/bin/bash
# @RUN@: gpu01 (node 0 of 2), ranks 0-1 of 4
cd -- @TOP@/work || exit 90
export PATH=@TOP@/bin:"$PATH"
export PYTHONUNBUFFERED=1
exec bash "$COCKPIT_DIR"/slots.sh "$COCKPIT_DIR"/rankwrap 1 ./train wait
