#!/bin/bash
# @RUN@: gpu02 (node 1 of 2), ranks 2-3 of 4
cd -- @TOP@/work || exit 90
export PATH=@TOP@/bin:"$PATH"
export PYTHONUNBUFFERED=1
exec bash "$COCKPIT_DIR"/slots.sh "$COCKPIT_DIR"/rankwrap 1 ./train wait
