"""Ranks on this machine, beside those of other nodes, have the variables that those have."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.transport.sshserver import Place


@pytest.mark.slow
def test_this_machine_and_another_node(tmp_path: Path, quick_cockpit: tuple[str, ...]) -> None:
    """The other node is an ssh server in this process, which has neither of these variables."""
    (tmp_path / ".deepspeed_env").write_text("LIBRARIES=/opt:$LIBRARIES\n")
    program = ["sh", "-c", 'echo "$FOO|$LIBRARIES" >"$RANK.said"']

    async def said(nodes: str) -> list[str]:
        place = Place(tmp_path / "ssh")
        async with place.server("alpha"):
            process = await asyncio.create_subprocess_exec(
                *(*quick_cockpit, "run", "-F", str(place.config), "-w", nodes, "--headless"),
                *("--launcher", "command", "--python", sys.executable, "--", *program),
                cwd=tmp_path,
                env={**os.environ, "PWD": str(tmp_path), "FOO": "bar", "LIBRARIES": "/lib"},
            )
            assert await process.wait() == 0
        return [file.read_text().strip() for file in sorted(tmp_path.glob("*.said"))]

    (tmp_path / "ssh").mkdir()
    assert asyncio.run(said("localhost:1,alpha:1")) == ["|/opt:", "|/opt:"]
    assert asyncio.run(said("localhost:2")) == ["bar|/opt:/lib"] * 2
