"""The doctor's screen: findings with their nodes and steps, who is awaited, and that all is well."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from cockpit.base.checkup_answers import GpuUser
from cockpit.config import Config
from cockpit.core.doctor.diagnosis import diagnosis
from cockpit.core.doctor.node_checks import Look, Looks
from cockpit.engine.launch.preflight import Diagnosis
from cockpit.engine.links.roll import Roll
from cockpit.errors import CockpitError
from cockpit.tui.base_app import BaseApp
from cockpit.tui.commands import DOCTOR, in_scope
from cockpit.tui.run.doctor_screen import DoctorScreen
from tests.core.doctored import GB, NODES, disk, facts, gpu, look, looks
from tests.tui.pictures import PICTURES, SMALL, as_designed
from tests.tui.scenes import text_of, until

COMMAND = "cockpit doctor -w 'gpu[01-08]'"


class App(BaseApp):
    """The screen alone."""

    def __init__(
        self,
        examine: Callable[[], Awaitable[Diagnosis]],
        roll: Roll | None = None,
        config: Config | None = None,
    ) -> None:
        super().__init__(config or Config())
        self.doctor = DoctorScreen(examine, lambda: roll or Roll(NODES), COMMAND, root=True)

    def on_mount(self) -> None:
        """Show it."""
        self.push_screen(self.doctor)


def sick() -> Looks:
    unreached = CockpitError("connection refused", where="gpu08", hint="start sshd there")
    busy = gpu(3, memory_bytes=38 * GB, users=(GpuUser(4711, 38 * GB, "python", "ada"),))
    found = looks(
        {
            3: facts(torch="2.11.0"),
            7: facts(torch="2.11.0"),
            5: busy,
            6: disk("/tmp", free_bytes=12_000_000),
            2: look(offset_s=41.0),
            8: look(machine="", errors=(unreached,)),
        }
    )
    return replace(found, nodes={name: h200(one) for name, one in found.nodes.items()})


def h200(one: Look) -> Look:
    """The GPUs of all other pictures."""
    for index in range(8 if one.condition is not None else 0):
        one = gpu(index, name="NVIDIA H200", memory_total_bytes=150 * GB)(one)
    return one


def saying(found: Looks) -> Callable[[], Awaitable[Diagnosis]]:
    async def examine() -> Diagnosis:
        return Diagnosis(found, diagnosis(found))

    return examine


async def never() -> Diagnosis:
    await asyncio.sleep(600)
    raise AssertionError


def asked() -> Roll:
    roll = Roll(NODES)
    for node in NODES[:5]:
        roll.answer(node)
    return roll


SCENES: dict[str, tuple[Callable[[], App], str]] = {
    "doctor-sick": (lambda: App(saying(sick())), "gpu[03,07]"),
    "doctor-fit": (lambda: App(saying(looks())), "8 nodes fit"),
    "doctor-waiting": (lambda: App(never, asked()), "5 of 8 nodes answered"),
}


@pytest.mark.parametrize("name", SCENES)
def test_it_looks_as_designed(name: str) -> None:
    async def main() -> str:
        app = SCENES[name][0]()
        async with app.run_test(size=PICTURES.get(name, SMALL)) as pilot:
            await until(pilot, lambda: SCENES[name][1] in text_of(app), "it has been drawn")
            return text_of(app)

    shown = asyncio.run(main())
    if name in PICTURES:
        as_designed(name, shown)


def test_keys() -> None:
    times = 0

    async def examine() -> Diagnosis:
        nonlocal times
        times += 1
        found = sick() if times == 1 else looks()
        return Diagnosis(found, diagnosis(found))

    async def main() -> None:
        app = App(examine)
        async with app.run_test(size=(140, 45)) as pilot:
            await until(pilot, lambda: "gpu[03,07]" in text_of(app), "findings")
            assert set(app.doctor.handlers) == {command.id for command in in_scope(DOCTOR)}
            await pilot.press("enter")
            await until(pilot, lambda: app.clipboard == "start sshd there", "the first step was copied")
            await pilot.press("Y")
            await until(pilot, lambda: app.clipboard == COMMAND, "the command was copied")
            await pilot.press("j", "f1")
            await until(pilot, lambda: "r checks again" in text_of(app), "help")
            await pilot.press("escape", "r")
            await until(pilot, lambda: "8 nodes fit" in text_of(app), "all is well now")
            await pilot.press("q")
            await until(pilot, lambda: app.return_code is not None, "left")

    asyncio.run(main())
