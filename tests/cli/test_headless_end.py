"""A cockpit without a person ends soon after SIGTERM, whatever the links do, and says what it leaves."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from tests.transport.sshserver import Place
from tests.waiting import PATIENCE_S, soon

ARCHIVE = 20_000
"""Bytes that are less than the agent's code, and more than a login."""

BOOT_LINE = 200
"""Bytes that are more than the agent's boot line, encrypted, and less than that and its hello."""

END_S = 60
"""Far more than it may take, on a busy machine too; without deadlines it would never end."""


class Way:
    """The way to a server, which can become bad."""

    def __init__(self, port: int) -> None:
        self.mode = "passes"
        """``passes``; ``flaps``: cut once the agent has said hello; ``hangs``: nothing passes."""
        self.flaps = 0
        """Connections that were cut after the hello."""
        self._port = port
        self._writers: set[asyncio.StreamWriter] = set()

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, other_writer}
        there, back = [0], [0]
        await asyncio.gather(
            self._pass(reader, other_writer, there), self._pass(other_reader, writer, back, there)
        )
        self._writers -= {writer, other_writer}

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        passed: list[int],
        asked: list[int] | None = None,
    ) -> None:
        """Pass bytes on and count them; ``asked`` counts those of the other direction."""
        answered = 0
        try:
            while data := await reader.read(1 << 16):
                if self.mode == "hangs":
                    continue
                passed[0] += len(data)
                writer.write(data)
                # After the agent's code has gone there, its boot line and its hello come back: often in
                # two pieces, at times in one.
                if asked is not None and asked[0] > ARCHIVE:
                    answered += len(data)
                if self.mode == "flaps" and answered > BOOT_LINE:
                    await writer.drain()
                    self.flaps += 1
                    self.cut()
        except OSError:
            pass
        writer.close()

    def cut(self) -> None:
        """Cut every connection."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()


class Run:
    """A run on ``good`` and on ``bad``, which is behind a :class:`Way`."""

    def __init__(self, place: Place, way: Way, name: str) -> None:
        self.way = way
        self.name = name
        self._link = ["--transport", "ssh", "--ssh-config", str(place.config)]
        self._place = place

    async def start(self, *options: str) -> asyncio.subprocess.Process:
        """A headless cockpit; returns once both ranks run and it watches them."""
        hostfile = self._place.folder / "hostfile"
        hostfile.write_text("good slots=1\nbad slots=1\n")
        words = ["run", "--headless", *self._link, "--launcher", "command", "--python", sys.executable]
        words += ["--name", self.name, "--node-dir", str(self._place.folder), "--grace", "1", *options]
        process = await self._cockpit(*words, str(hostfile), "--", "sleep", "600")
        assert process.stderr
        # Before that a signal takes the start back.
        await asyncio.wait_for(process.stderr.readuntil(b" starting\n"), PATIENCE_S)
        await soon(lambda: sorted(self.ranks()) == ["bad", "good"], "both ranks run", 60)
        return process

    async def stop(self) -> asyncio.subprocess.Process:
        """``cockpit stop``."""
        return await self._cockpit("stop", self.name, "--now")

    async def _cockpit(self, *words: str) -> asyncio.subprocess.Process:
        pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "cockpit", *words, stdin=null, stdout=null, stderr=pipe
        )

    def ranks(self) -> list[str]:
        """Nodes of the ranks that live."""
        found = []
        for process in psutil.process_iter():
            try:
                environ = process.environ()
                if environ.get("COCKPIT_RUN") == self.name and process.cmdline() == ["sleep", "600"]:
                    found.append(environ["COCKPIT_NODE"])
            except psutil.Error:
                continue
        return found

    def end(self) -> None:
        """Kill what is left."""
        for process in psutil.process_iter():
            try:
                if process.environ().get("COCKPIT_RUN") == self.name:
                    process.kill()
            except psutil.Error:
                continue


@asynccontextmanager
async def two_nodes(folder: Path, name: str) -> AsyncIterator[Run]:
    """A run that is not started yet."""
    place = Place(folder)
    async with place.server("good"), place.server("straight"):
        way = Way(place.port)
        server = await asyncio.start_server(way.meet, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        known = place.known_hosts.read_text()
        place.known_hosts.write_text(known + known.splitlines()[-1].replace(str(place.port), str(port)))
        place.knows("bad", port)
        run = Run(place, way, name)
        try:
            yield run
        finally:
            run.end()
            server.close()


def waits_for(pid: int, number: signal.Signals) -> bool:
    """Whether a signal was sent to a process and is not delivered yet."""
    (pending,) = re.findall(r"^ShdPnd:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(int(pending, 16) >> number - 1 & 1)


Story = Callable[[Run], Awaitable[None]]


def play(folder: Path, name: str, story: Story) -> None:
    """Have it happen."""

    async def main() -> None:
        async with two_nodes(folder, name) as run:
            await story(run)

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["flaps", "hangs"])
def test_it_ends_and_names_the_node_that_it_could_not_stop(tmp_path: Path, mode: str) -> None:
    async def story(run: Run) -> None:
        # Also for a busy machine to tell that the other node was asked to stop.
        process = await run.start("--give-up", "10")
        run.way.mode = mode
        if mode == "flaps":
            run.way.cut()
            await soon(lambda: run.way.flaps, "the link flaps")
        process.send_signal(signal.SIGTERM)
        assert process.stderr
        said = (await asyncio.wait_for(process.stderr.read(), END_S)).decode()
        assert await process.wait() == 3, said
        left = f"bad: not reachable, its ranks may still be running; to stop them: cockpit stop {run.name}"
        assert left in said, said
        assert "good: not" not in said, said
        await soon(lambda: run.ranks() == ["bad"], "the other node was stopped")
        run.way.mode = "passes"
        stop = await run.stop()
        assert await asyncio.wait_for(stop.wait(), END_S) == 0
        await soon(lambda: not run.ranks(), "what it said to type stops it")

    play(tmp_path, f"ends-{mode}", story)


@pytest.mark.slow
def test_the_third_sigterm_leaves_at_once(tmp_path: Path) -> None:
    async def story(run: Run) -> None:
        process = await run.start()
        run.way.mode = "hangs"
        process.send_signal(signal.SIGTERM)
        await soon(lambda: run.ranks() == ["bad"], "the stop has begun")
        assert process.returncode is None
        process.send_signal(signal.SIGTERM)
        # Two that wait to be delivered would be one.
        await soon(lambda: not waits_for(process.pid, signal.SIGTERM), "the second is delivered")
        process.send_signal(signal.SIGTERM)
        assert process.stderr
        said = (await asyncio.wait_for(process.stderr.read(), END_S)).decode()
        assert await process.wait() == 3
        assert "bad: not reachable, its ranks may still be running" in said

    play(tmp_path, "third", story)
