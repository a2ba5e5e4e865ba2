"""``python -m tests.kube.cluster up|down|env|hold PROGRAM|release PROGRAM``."""

import sys

from tests.kube.cluster.cluster import main

sys.exit(main(sys.argv[1:]))
