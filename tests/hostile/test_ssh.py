"""A hostile node behind an ssh server: whole verbs as a person types them, with their own deadlines."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.peer import Plan
from tests.hostile.quick import BAD, REPO, behind
from tests.hostile.verbs import CODES, odd_text
from tests.hostile.world import GOOD, World
from tests.transport.sshserver import Place, run_it


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A run that is over and one that goes on."""
    made = World(tmp_path_factory.mktemp("hostile") / "world")
    try:
        made.make()
        yield made
    finally:
        made.close()


def words(world: World, top: Path, config: Path, name: str) -> dict[str, list[str]]:
    """What is typed, by verb."""
    over = world.over
    run = ["run", str(world.hostfile), "--name", name, "--transport", "ssh", "--ssh-config", str(config)]
    run += ["--launcher", "command", "--python", sys.executable, "--node-dir", str(top / "nodes")]
    return {
        "run": [*run, "--give-up", "1", "--headless", "--", sys.executable, "-c", "print('trained')"],
        "attach": ["attach", over, "--headless", "--give-up", "1"],
        "ps": ["ps", over],
        "stop": ["stop", over],
        "collect": ["collect", over],
        "stacks": ["stacks", world.live, "--samples", "1"],
        "logs": ["logs", over],
    }


async def cockpit(
    start: tuple[str, ...], world: World, top: Path, config: Path, verb: str, name: str
) -> tuple[int, bytes, bytes]:
    """A whole verb; its exit code and what it printed."""
    state = top / verb
    if verb != "run":
        run = world.live if verb == "stacks" else world.over
        world.state(run, state, transport="ssh", transport_options={"config": str(config)})
    process = await asyncio.create_subprocess_exec(
        *(*start, *words(world, top, config, name)[verb]),
        cwd=REPO,
        env={**os.environ, "XDG_STATE_HOME": str(state)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out, err


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutation",
    ["text", "garbage", *(pytest.param(name, marks=pytest.mark.campaign) for name in ("dropped", "retyped"))],
)
def test_every_verb_ends_as_it_may(
    mutation: str, world: World, quick_cockpit: tuple[str, ...], tmp_path: Path
) -> None:
    report = tmp_path / "rewritten"
    plan = Plan(mutation, "ssh", share=0.5, report=str(report))

    async def main() -> None:
        place = Place(tmp_path)
        async with (
            place.server(BAD, serve=lambda process: run_it(process, behind(plan, process.command or ""))),
            place.server(GOOD),
        ):
            verbs = list(words(world, tmp_path, place.config, ""))
            if mutation == "garbage":
                verbs.remove("collect")  # its own deadlines add up to 90 s; `make hostile` has shorter ones
            name = f"{world.over}-{mutation}"
            ended = await asyncio.gather(
                *(cockpit(quick_cockpit, world, tmp_path, place.config, verb, name) for verb in verbs)
            )
        for verb, (code, out, err) in zip(verbs, ended, strict=True):
            assert code in CODES[verb], (verb, code, out, err)
            assert not [*odd_text(out), *odd_text(err)], verb
        assert report.read_text()
        spool = tmp_path / "attach" / "cockpit" / "runs" / world.over / "spool" / f"0001-{GOOD}"
        for log in world.node(world.over, GOOD).glob("rank-*.log"):
            assert (spool / log.name).read_bytes() == log.read_bytes()

    asyncio.run(main())
