"""A link over the local transport: the real agent, in a process of its own."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from cockpit.base import verbs
from cockpit.base.answers import Hello
from cockpit.engine.links.link import Link, LinkTimes, RemoteError
from cockpit.transport.base import LinkError, Pipe, Progress
from cockpit.transport.local import LocalTransport

T = TypeVar("T")


def with_link(use: Callable[[Link], Awaitable[T]], pythons: list[str] | None = None) -> T:
    """Open a link to a local agent, use it, close it."""

    async def main() -> T:
        link = Link("here", LocalTransport("here"), pythons or [sys.executable])
        await link.open()
        try:
            return await use(link)
        finally:
            await link.close()

    return asyncio.run(main())


def test_hello_and_clock() -> None:
    async def use(link: Link) -> None:
        assert link.hello.uid == os.geteuid()
        await link.measure_clock()
        assert abs(link.clock.offset_s) <= link.clock.rtt_s

    with_link(use)


def test_errors_come_back_as_sentences() -> None:
    async def use(link: Link) -> None:
        with pytest.raises(RemoteError, match="here: no directory /nowhere; create it"):
            await link.call(verbs.Facts(cwd="/nowhere"))
        with pytest.raises(RemoteError, match="not a request that can be met"):
            await link.call(verbs.Status("not/absolute"))
        assert (await link.call(verbs.Ping())).t > 0

    with_link(use)


def test_a_free_port_and_one_in_use() -> None:
    async def use(link: Link) -> None:
        free = (await link.call(verbs.Port())).port
        with socket.socket() as holder:
            holder.bind(("", free))
            holder.listen()
            with pytest.raises(RemoteError, match=f"port {free}: Address already in use, held by"):
                await link.call(verbs.Port(port=free))

    with_link(use)


def test_a_node_knows_its_addresses() -> None:
    async def use(link: Link) -> None:
        answer = await link.call(verbs.Resolve("localhost"))
        assert {"127.0.0.1", "::1"} & set(answer.addresses)
        interfaces = psutil.net_if_addrs().values()
        firsts = [next((a.address for a in i if a.family == socket.AF_INET), None) for i in interfaces]
        assert sorted(answer.own) == sorted(filter(None, firsts))

    with_link(use)


def test_samples_of_a_node(tmp_path: Path) -> None:
    async def use(link: Link) -> None:
        stream = await link.stream(verbs.Samples(dir=str(tmp_path)))
        async for item, _ in stream.parts():
            assert (item.node.memory_total_bytes or 0) > (item.node.memory_bytes or 0) > 0
            break
        await stream.close()

    with_link(use)


def test_facts_after_the_setup(tmp_path: Path) -> None:
    bin_dir = tmp_path / "with space" / "bin"
    bin_dir.mkdir(parents=True)
    (bin_dir / "python").symlink_to(sys.executable)
    (tmp_path / "run.py").write_text("")

    async def use(link: Link) -> None:
        setup = f'echo noise; PATH="{bin_dir}:$PATH"'
        facts = await link.call(verbs.Facts(cwd=str(tmp_path), setup=setup, script="run.py"))
        assert facts.python == str(bin_dir / "python")
        assert facts.script is True
        assert set(facts.cores) == os.sched_getaffinity(0)
        facts = await link.call(verbs.Facts(cwd=str(tmp_path), setup=setup, script="other.py"))
        assert facts.script is False
        with pytest.raises(RemoteError, match="--setup or python fails"):
            await link.call(verbs.Facts(cwd=str(tmp_path), setup="source /nowhere/activate || exit 5"))
        with pytest.raises(RemoteError, match="no python /nowhere/python"):
            await link.call(verbs.Facts(cwd=str(tmp_path), python="/nowhere/python"))

    with_link(use)


def test_tools_where_they_may_be(tmp_path: Path) -> None:
    for place in ("bin/tool", "v-1/tool", "v-2/tool", "v-3/tool"):
        (tmp_path / place).parent.mkdir()
        (tmp_path / place).touch(0o600 if "v-3" in place else 0o700)
    pattern = f"{tmp_path}/v-*/tool"
    asked = {
        "on the PATH": ("tool", pattern),
        "newest": ("nowhere to be found", pattern),
        "given": (f"{tmp_path}/v-1/tool",),
        "not there": (f"{tmp_path}/v-4/tool", "nowhere to be found"),
        "not to be run": (f"{tmp_path}/v-3/tool",),
    }

    async def use(link: Link) -> None:
        setup = f'PATH="{tmp_path}/bin:$PATH"'
        found = await link.call(verbs.Facts(str(tmp_path), setup, sys.executable, tools=asked))
        there = {"on the PATH": "bin/tool", "newest": "v-2/tool", "given": "v-1/tool"}
        assert found.tools == {name: f"{tmp_path}/{place}" for name, place in there.items()}

    with_link(use)


def test_no_python_at_all() -> None:
    with pytest.raises(LinkError, match=r"no python found \(tried /nowhere/py\); give one"):
        with_link(lambda link: link.call(verbs.Ping()), ["/nowhere/py"])


def test_an_old_python_is_named(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text(
        f"#!/bin/sh\nfor last; do :; done\n"
        f'exec {sys.executable} -I -S -c "import sys; sys.version_info = (3, 6, 8); $last"\n'
    )
    old.chmod(old.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(LinkError, match=r"its python is 3\.6, 3\.8 or newer is needed"):
        with_link(lambda link: link.call(verbs.Ping()), [str(old)])


class Scripted:
    """A transport whose command is another than the one asked for."""

    kind = "scripted"
    job = ""
    progress: Progress

    def __init__(self, command: Callable[[str], str]) -> None:
        self._command = command
        self._local = LocalTransport("here")

    async def open(self, command: str) -> Pipe:
        return await self._local.open(self._command(command))

    async def close(self) -> None:
        await self._local.close()


def opened(
    command: Callable[[str], str], times: LinkTimes | None = None, python: str = sys.executable
) -> Hello:
    """Open a link over a scripted transport and return the hello."""

    async def main() -> Hello:
        link = Link("here", Scripted(command), [python], times)
        try:
            return await link.open()
        finally:
            await link.close()

    return asyncio.run(main())


def test_a_login_shell_that_prints_is_no_trouble() -> None:
    hello = opened(lambda command: f"echo Welcome; printf 'no newline %s' cockpit-; {command}")
    assert hello.uid == os.geteuid()


def test_a_login_shell_that_ends_is_quoted() -> None:
    with pytest.raises(LinkError, match="login shell ended before the agent started: 'account expired'"):
        opened(lambda command: "echo account expired >&2; exit 1")


def test_a_python_that_does_not_start_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "it's python"
    broken.write_text("#!/bin/sh\necho no libpython >&2; exit 127\n")
    broken.chmod(0o755)
    with pytest.raises(LinkError, match=r"its .*/it's python ended before the agent started: 'no libpython'"):
        opened(lambda command: command, python=str(broken))


def test_only_a_python_of_ours_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 127\n")
    broken.chmod(0o755)
    with pytest.raises(LinkError, match="the login shell ended"):
        opened(lambda command: f"{command} | sed 's/^starts-.* /&evil /'", python=str(broken))


def test_a_login_shell_that_waits_is_given_up() -> None:
    with pytest.raises(LinkError, match=r"no answer from the agent within 0\.2 s"):
        opened(lambda command: "exec sleep 60", LinkTimes(start=0.2))


def test_an_agent_that_dies_ends_what_waits_for_it() -> None:
    async def use(link: Link) -> None:
        stream = await link.stream(verbs.Samples("/"))  # which never ends by itself
        os.kill(link.hello.pid, 9)
        with pytest.raises(LinkError, match="the agent ended"):
            async for _ in stream.parts():
                pass
        assert link.lost.done()
        with pytest.raises(LinkError, match="link is down"):
            await link.call(verbs.Ping())

    with_link(use)
