"""A look at the nodes' condition beside all else that is asked before a launch; it holds nothing up."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from cockpit.base.answers import FactsAnswer
from cockpit.base.checkup_answers import CheckupAnswer
from cockpit.core.doctor.diagnosis import diagnosis
from cockpit.core.doctor.node_checks import Looks
from cockpit.core.finding import Finding
from cockpit.engine.launch.prelaunch import base_of, checkup_request, seen
from cockpit.engine.links.link import Link
from cockpit.plans.launch import LaunchJob

PARTS = ("system", "limits", "disks", "network", "driver", "gpus", "session", "leftovers", "code")
"""What is looked at: nothing that starts a process or asks another machine."""

WAIT_S = 0.1
"""How much longer a launch takes for it, at most."""

_LIMIT_S = 3.0


@dataclass(frozen=True)
class Diagnosis:
    """What was learned of the nodes, and what it shows."""

    looks: Looks
    findings: tuple[Finding, ...]


class Preflight:
    """Asks all nodes at once, from its making on.

    :param links: to the nodes; of those without one nothing is known
    :param node_dir: as given to the launch
    """

    def __init__(self, job: LaunchJob, links: Mapping[str, Link], node_dir: str) -> None:
        self._job = job
        self._links = links
        self._asked = {
            name: asyncio.ensure_future(
                link.call(checkup_request(job, PARTS, base_of(link, node_dir), _LIMIT_S))
            )
            for name, link in links.items()
        }

    async def diagnosis(self, facts: Mapping[str, FactsAnswer], address: str) -> Diagnosis:
        """What the answers that are here by now show, with what a launch has learned anyway.

        :param address: at which the nodes reach the first one
        """
        if self._asked:
            await asyncio.wait(self._asked.values(), timeout=WAIT_S)
        nodes = {name: seen(link, facts.get(name), self._answer(name)) for name, link in self._links.items()}
        scheduler = any(link.transport.kind == "srun" for link in self._links.values())
        looks = Looks(nodes, address=address, env=self._job.env, scheduler=scheduler)
        return Diagnosis(looks, diagnosis(looks) if nodes else ())

    def _answer(self, name: str) -> CheckupAnswer | None:
        asked = self._asked[name]
        return None if not asked.done() or asked.cancelled() or asked.exception() else asked.result()

    def close(self) -> None:
        """Ask no more."""
        for asked in self._asked.values():
            asked.cancel()
            asked.add_done_callback(lambda done: done.cancelled() or done.exception())
