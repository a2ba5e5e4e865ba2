"""What is measured of the ranks of a node."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from cockpit.node import procfs
from cockpit.node.calls import Call
from cockpit.node.measure import samples
from tests.node import folders
from tests.waiting import until


def measured(folder: Path) -> dict[str, Any]:
    """The ranks of one sample."""
    items: list[dict[str, Any]] = []

    def send(header: dict[str, Any], payload: bytes) -> None:
        items.append(header["item"])
        call.cancel()

    call = Call({"id": 1, "dir": str(folder)}, b"", send)
    call.add_credit(1 << 20)
    samples.samples(call)
    ranks: dict[str, Any] = items[0]["ranks"]
    return ranks


def test_a_process_that_is_ending_is_not_measured(tmp_path: Path) -> None:
    """The memory of a zombie is 0: that is not what the rank had."""
    folders.make(tmp_path, [0])
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        (tmp_path / "rank-0.start.json").write_text(folders.start(0, process.pid))
        assert measured(tmp_path)["0"]["rss_bytes"] > 0
        process.kill()

        def dead() -> bool:
            found = procfs.stat(process.pid)
            return found is not None and found.state == "Z"

        until(dead, "a zombie")
        assert measured(tmp_path) == {}
