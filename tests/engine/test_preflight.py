"""The look at nodes before a launch: it says what differs, and it holds nothing up."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

from cockpit.base.checkup_answers import CheckupAnswer
from cockpit.core.doctor.diagnosis import line, told
from cockpit.engine.launch.preflight import PARTS, Diagnosis, Preflight
from cockpit.engine.links.link import Clock
from cockpit.errors import CockpitError
from cockpit.plans.launch import LaunchJob
from cockpit.plans.nodes.hostfile import parse
from tests.core.doctored import NODES, facts, healthy, looks

JOB = LaunchJob("otter", tuple(parse("gpu[01-08] slots=8")), ("train.py",), "/work")
FACTS = {name: look.facts for name, look in looks({3: facts(torch="2.11.0")}).nodes.items() if look.facts}


class Node:
    """A link to a node that answers, fails, or does neither."""

    def __init__(self, name: str, answer: CheckupAnswer | CockpitError | None) -> None:
        self.hello = SimpleNamespace(boot_id=name, host=name, uid=1000, base="/tmp/cockpit-1000")
        self.clock = Clock()
        self.transport = SimpleNamespace(kind="ssh")
        self.asked: list[Any] = []
        self._answer = answer

    async def call(self, request: Any) -> CheckupAnswer:
        self.asked.append(request)
        if self._answer is None:
            await asyncio.sleep(600)
        if isinstance(self._answer, CockpitError):
            raise self._answer
        assert self._answer is not None
        return self._answer


def diagnosed(links: dict[str, Any]) -> Diagnosis:
    async def main() -> Diagnosis:
        preflight = Preflight(JOB, links, "")
        try:
            return await preflight.diagnosis(FACTS, "10.0.0.1")
        finally:
            preflight.close()

    return asyncio.run(main())


def test_what_differs_is_said_with_what_a_launch_has_learned_anyway() -> None:
    nodes = {name: Node(name, healthy(number).condition) for number, name in enumerate(NODES)}
    found = diagnosed(nodes).findings
    assert [line(each) for each in found] == ["gpu03: torch 2.11.0, others 2.13.0"]
    (asked,) = nodes["gpu01"].asked
    assert (asked.parts, asked.script, asked.base) == (PARTS, "train.py", "/tmp/cockpit-1000")


def test_a_node_that_does_not_answer_or_fails_holds_nothing_up() -> None:
    nodes = {name: Node(name, healthy(number).condition) for number, name in enumerate(NODES)}
    nodes |= {"gpu05": Node("gpu05", None), "gpu06": Node("gpu06", CockpitError("no answer to checkup"))}
    began = time.monotonic()
    found = diagnosed(nodes).findings
    assert time.monotonic() - began < 30
    assert [each.nodes for each in found] == [("gpu03",)]


def test_without_it_nobody_is_asked() -> None:
    assert diagnosed({}).findings == ()


def test_a_few_are_said_and_how_to_see_the_rest() -> None:
    found = diagnosed({name: Node(name, healthy(0).condition) for name in NODES}).findings
    assert told(found * 7) == [
        *["warning: gpu03: torch 2.11.0, others 2.13.0"] * 5,
        "2 more; for details: cockpit doctor with the same options",
    ]
    assert told(found)[1:] == ["for details: cockpit doctor with the same options"]
    assert told(()) == []
