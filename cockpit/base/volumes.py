"""The ``emptyDir`` volumes of the pod that this process is in, as the transport says it of them.

Each is of this pod alone, though its mode is 0777; and the kubelet evicts the pod once there is more in one
than its ``sizeLimit``, of which its file system shows nothing.
"""

from __future__ import annotations

import json
import os
from typing import Dict

from cockpit.base import record


def volumes() -> Dict[str, int]:
    """Their limits in bytes, by path; 0: it has none."""
    said = os.environ.get(record.ENV_VOLUMES)
    if not said:
        return {}
    from cockpit.base.gate import COUNT, PATH, MapOf  # not where no pod is: who starts waits for it

    try:
        return dict(MapOf(PATH, COUNT, 1000).read(json.loads(said)))
    except (ValueError, RecursionError):  # a variable may have anything
        return {}
