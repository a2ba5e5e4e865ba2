"""Ways back to runs that were started before: by what is known here, or by what their nodes have recorded."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from cockpit.core.events import Event
from cockpit.core.model import RunModel
from cockpit.engine.fleet import Fleet, close_all, settle
from cockpit.engine.link import Link, RemoteError
from cockpit.engine.runs import Manifest, NodeEntry, RunFolder, list_runs, planned
from cockpit.errors import CockpitError
from cockpit.transport.base import LinkError

T = TypeVar("T")
Errors = dict[str, CockpitError]


def fleet_for(manifest: Manifest) -> Fleet:
    """A fleet that reaches the nodes as they were reached when the run was started."""
    return Fleet(manifest.pythons, manifest.transport, manifest.ssh_config)


async def reach(fleet: Fleet, node: NodeEntry) -> Link:
    """A link to a node of a run.

    :raises LinkError: no link, or under that name another machine than the run's answers here
    """
    link = await fleet.open(node.name)
    host = str(link.hello.get("host", ""))
    if node.host and host != node.host:
        await close_all([link])
        what = f"is {host} from here, and the run is on {node.host}"
        raise LinkError(what, where=node.name, hint="ask from the machine that started it", retry=False)
    return link


async def ask_all(
    manifest: Manifest, ask: Callable[[Link, NodeEntry], Awaitable[T]]
) -> tuple[dict[str, T], Errors]:
    """Ask every node of a run the same; answers and errors by node."""
    fleet = fleet_for(manifest)

    async def one(node: NodeEntry) -> T:
        link = await reach(fleet, node)
        try:
            return await ask(link, node)
        finally:
            await close_all([link])

    try:
        return await settle({node.name: one(node) for node in manifest.nodes})
    finally:
        await fleet.close()


async def model_now(manifest: Manifest, *, measure: bool = False) -> tuple[RunModel, Errors]:
    """The state of a run as its nodes tell it now, and an error for each node that did not answer.

    :param measure: take a sample of every node too; it takes a second
    """

    async def ask(link: Link, node: NodeEntry) -> list[Event]:
        events, alive = await recorded(link, node)
        if measure and alive:
            events.append(await _sample(link, node))
        return events

    answers, errors = await ask_all(manifest, ask)
    model = RunModel()
    model.apply(planned(manifest))
    for events in answers.values():
        for event in events:
            model.apply(event)
    for name, error in list(errors.items()):
        state = "gone" if not getattr(error, "retry", False) else "stale"
        model.apply(Event(time.time(), "link", name, {"state": state, "why": error.what}))
        if isinstance(error, RemoteError) and error.kind == "gone":
            model.apply(Event(time.time(), "node_lost", name, {"why": error.what}))
    return model, errors


async def recorded(link: Link, node: NodeEntry) -> tuple[list[Event], bool]:
    """What a node has recorded of a run, and whether its supervisor lives.

    :raises CockpitError: the node cannot say
    """
    answer = await link.call("status", dir=node.dir)
    events = [Event.from_json(line, node.name) for line in answer["events"]]
    await link.measure_clock()
    clock = {"offset_s": link.clock.offset_s, "rtt_s": link.clock.rtt_s}
    events.append(Event(time.time(), "clock", node.name, clock))
    events.append(Event(time.time(), "link", node.name, {"state": "ok"}))
    if not answer["alive"] and not any(event.kind == "ended" for event in events):
        events.append(Event(time.time(), "supervisor_gone", node.name, {}))
    return events, bool(answer["alive"])


async def _sample(link: Link, node: NodeEntry) -> Event:
    """The second sample: CPU shares are those since the first."""
    stream = await link.stream("samples", dir=node.dir, interval=1.0)
    data: dict[str, Any] = {}
    number = 0
    async for item, _ in stream.parts():
        data = {"sample": item["node"], "ranks": item["ranks"], "gpus": item["gpus"]}
        number += 1
        if number == 2:
            break
    await stream.close()
    return Event(time.time(), "sample", node.name, data)


async def adopt(fleet: Fleet, transport: str, ssh_config: str, nodes: Iterable[str], base: str) -> Errors:
    """Make runs known here that are known only to their nodes; afterwards every verb takes them.

    :param base: folder for run folders on the nodes; empty: each node's own temporary folder
    :return: an error for each node that did not answer
    """

    async def one(node: str) -> list[dict[str, Any]]:
        link = await fleet.open(node)
        try:
            where = f"{base}/cockpit-{link.hello['uid']}" if base else link.hello["base"]
            found: list[dict[str, Any]] = (await link.call("runs", base=where))["runs"]
            return [{**run, "host": link.hello["host"]} for run in found]
        finally:
            await close_all([link])

    answers, errors = await settle({node: one(node) for node in nodes})
    known = {folder.name for folder in list_runs()}
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name, runs in answers.items():
        for run in runs:
            # On a shared file system each node shows the folders of all: a node speaks for itself only.
            if run["record"]["node"] == name and run["record"]["run"] not in known:
                found.setdefault(run["record"]["run"], {})[name] = run
    for run_name, parts in found.items():
        ordered = sorted(parts.items(), key=lambda part: int(part[1]["record"]["index"]))
        record = ordered[0][1]["record"]
        entries = [
            NodeEntry(name, part["dir"], part["record"]["ranks"], host=part["host"]) for name, part in ordered
        ]
        RunFolder.create(
            Manifest(
                run=run_name,
                created=float(record["t"]),
                nodes=entries,
                launcher=str(record["launcher"]),
                program=["(found on its nodes)"],
                cwd="",
                pythons=fleet.pythons,
                profile=record["profile"],
                on_failure="wait",
                transport=transport,
                ssh_config=ssh_config,
            )
        ).close()
    return errors
