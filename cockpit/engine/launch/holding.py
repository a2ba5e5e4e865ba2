"""One process here that holds all supervisors of a run, where nothing outlives what has started it.

It belongs to nobody: it goes on when the cockpit ends, and its end is the end of the run.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Mapping

from cockpit.base import record
from cockpit.engine.files import open_regular, read_small
from cockpit.engine.records.folder import STEP_LINE, STEP_LOG, RunFolder
from cockpit.errors import CockpitError, Exit
from cockpit.transport.base import HeldCommand, Reach
from cockpit.transport.registry import TRANSPORTS

_LOOK_S = 0.1


class Holding:
    """The process, started.

    :raises CockpitError: it cannot be started
    """

    def __init__(self, folder: RunFolder, command: HeldCommand) -> None:
        self.spec = {"held": True, "term_grace_s": max(1.0, command.kill_wait_s * 0.7 - 0.5)}
        """What each launch spec says of it; a supervisor's own SIGKILL comes before that of the cluster."""
        self._path = folder.path / STEP_LOG
        self._program = command.words[0]
        number = open_regular(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            # Not asyncio's: it would end the process together with the event loop.
            self._process = subprocess.Popen(
                command.words,
                stdin=subprocess.DEVNULL,
                stdout=number,
                stderr=number,
                env=command.env,
                start_new_session=True,
            )
        except OSError as error:
            raise CockpitError(f"cannot start {self._program}: {error.strerror}", where=folder.name) from None
        finally:
            os.close(number)
        folder.note_holder(self._process.pid)

    async def ended(self) -> CockpitError:
        """Wait for its end, and say why."""
        while self._process.poll() is None:  # noqa: ASYNC110 (nothing else says it)
            await asyncio.sleep(_LOOK_S)
        lines = read_small(self._path).splitlines()
        words = b" ".join(line for line in lines if not STEP_LINE.match(line)).decode(errors="replace")
        said = " ".join(words.split())[-600:]
        what = f"{self._program} ended with status {self._process.returncode}: {said or 'it said nothing'}"
        return CockpitError(what, code=Exit.NODE_UNFIT)

    def end(self) -> None:
        """End it, and with it what it holds."""
        if self._process.poll() is None:
            self._process.terminate()

    def leave(self) -> None:
        """Let it go on by itself."""
        # Python would warn of a child that nobody has waited for.
        self._process.returncode = self._process.poll() or 0


async def hold(folder: RunFolder, reach: Reach, dirs: Mapping[str, str]) -> Holding | None:
    """Start it; None: supervisors need none, they outlive the connections that start them.

    :param dirs: the run folder on each node
    :raises CockpitError: it cannot be started
    """
    holding = TRANSPORTS[reach.kind].holding
    if holding is None:
        return None
    scripts = {node: os.path.join(dir, record.STEP_SH) for node, dir in dirs.items()}
    return Holding(folder, await asyncio.to_thread(holding, reach.options, scripts))
