"""A training program for tests: writes its argv, directory and environment to $OUT/$RANK.json."""

import json
import os
import sys

with open(f"{os.environ['OUT']}/{os.environ['RANK']}.json", "w") as file:
    facts = {
        "argv": sys.argv,
        "cwd": os.getcwd(),
        "env": dict(os.environ),
        "unbuffered": getattr(sys.stdout, "write_through", None),
    }
    json.dump(facts, file)
sys.exit(int(os.environ.get("EXIT_%s" % os.environ["RANK"], "0")))
