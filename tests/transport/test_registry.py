"""Which transport leads to a node, by its kind and options."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

import pytest

from cockpit.base.gate import Malformed
from cockpit.base.shell import join
from cockpit.cli.parsing import Parser, add_link_options, reach
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.errors import CockpitError
from cockpit.transport import local
from cockpit.transport.base import Reach
from cockpit.transport.registry import TRANSPORTS

MANIFEST = asdict(Manifest("r", 1.0, [NodeEntry("gpu01", "/d", [0])], "command", ["true"], "/"))


def ways_to(kind: str, *nodes: str) -> list[str]:
    """The transports that lead to nodes."""

    async def main() -> list[str]:
        ways = TRANSPORTS[kind].ways({"config": "/dev/null"}, None)
        try:
            return [(await ways.to(node)).kind for node in nodes]
        finally:
            await ways.close()

    return asyncio.run(main())


def test_this_machine_needs_no_ssh_unless_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_is_here", lambda name: name == "here")
    assert ways_to("auto", "here", "there", "here") == ["local", "ssh", "local"]
    assert ways_to("ssh", "here") == ["ssh"]
    assert ways_to("openssh", "here") == ["openssh"]
    assert ways_to("local", "there") == ["local"]


def test_a_resolver_that_does_not_answer_makes_no_node_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    released = asyncio.Event()

    async def silent(*_: Any) -> bool:
        return await released.wait()

    monkeypatch.setattr(local, "NAMES_S", 0.01)
    monkeypatch.setattr(asyncio, "to_thread", silent)
    assert ways_to("auto", "here") == ["ssh"]


def test_what_a_person_types_to_get_there() -> None:
    options = {"config": "/my config", "job": "12"}
    typed = {name: join(kind.typed(options, "gpu01")) for name, kind in TRANSPORTS.items()}
    by_ssh = "ssh -F '/my config' gpu01"
    by_srun = "srun --overlap --jobid=12 -w gpu01 -N1 -n1"
    by_kubectl = "kubectl exec gpu01 --"
    assert typed == {
        **dict.fromkeys(("auto", "ssh", "openssh"), by_ssh),
        **{"local": "", "srun": by_srun, "kubectl": by_kubectl},
    }
    assert TRANSPORTS["ssh"].typed({}, "gpu01") == ("ssh", "gpu01")


def test_a_manifest_keeps_by_what_auto_reached_a_node() -> None:
    nodes = [asdict(NodeEntry(f"gpu0{i}", "/d", [i], kind)) for i, kind in enumerate(("ssh", "openssh"))]
    written = {**MANIFEST, "nodes": nodes, "transport_options": {"config": "/dev/null"}}
    reach = Manifest.from_json(written).reach
    assert reach.options == {"config": "/dev/null", "openssh": "gpu01"}

    async def kinds() -> list[str]:
        ways = TRANSPORTS[reach.kind].ways(reach.options, None)
        return [(await ways.to(node)).kind for node in ("gpu00", "gpu01")]

    assert asyncio.run(kinds()) == ["ssh", "openssh"]
    assert Manifest.from_json({**written, "transport": "ssh"}).reach.options == {"config": "/dev/null"}


def test_a_manifest_keeps_kind_and_options() -> None:
    reach = Reach("ssh", {"config": "/c", "later": "x"})
    written = {**MANIFEST, "transport": reach.kind, "transport_options": reach.options}
    assert Manifest.from_json(written).reach == reach
    assert Manifest.from_json(MANIFEST).reach == Reach()


def test_a_run_does_not_keep_what_was_wanted_for_one_command() -> None:
    parser = Parser("ps", "")
    add_link_options(parser)
    asked = reach(parser.parse_args(["--accept-new-host-keys", "-F", "/c"]))
    assert asked.options == {"config": "/c", "accept_new": "yes"}
    assert asked.lasting == {"config": "/c"}


def test_pods_are_reached_by_kubectl() -> None:
    parser = Parser("ps", "")
    add_link_options(parser)
    parser.add_argument("-w", "--nodelist", action="append", default=[])

    def asked(*words: str) -> Reach:
        return reach(parser.parse_args(words))

    selected = {"context": "lab", "namespace": "ml", "pods": "job/train:main"}
    assert asked("--k8s", "job/train:main", "-n", "ml", "--context", "lab") == Reach("kubectl", selected)
    assert asked("-w", "pod/train-[0-3]:main") == Reach("kubectl", {})
    assert asked("--transport", "kubectl", "-n", "ml") == Reach("kubectl", {"namespace": "ml"})
    assert asked("-w", "train-0").kind == "auto"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--k8s", "job/x", "--transport", "ssh"], "pods are reached by kubectl, not by --transport ssh"),
        (["--k8s", "job/x", "--slurm", "7"], "--slurm names no pods"),
        (["--k8s", "job/x", "-n", "A b"], "not a namespace"),
        (["-n", "ml"], "-n is for pods"),
        (["--context", "lab"], "--context is for pods"),
    ],
)
def test_options_of_pods_that_make_no_sense(words: list[str], what: str) -> None:
    parser = Parser("ps", "")
    add_link_options(parser)
    with pytest.raises(CockpitError, match=what):
        reach(parser.parse_args(words))


def test_a_manifest_from_before_there_were_options() -> None:
    old = {name: value for name, value in MANIFEST.items() if name != "transport_options"}
    assert Manifest.from_json({**old, "ssh_config": "/c"}).reach == Reach("auto", {"config": "/c"})
    assert Manifest.from_json({**old, "ssh_config": ""}).reach == Reach()


@pytest.mark.parametrize(
    "changes",
    [{"transport": "telepathy"}, {"transport_options": {"config": 1}}, {"transport_options": []}],
    ids=str,
)
def test_a_manifest_that_leads_nowhere(changes: dict[str, Any]) -> None:
    with pytest.raises(Malformed, match=next(iter(changes))):
        Manifest.from_json({**MANIFEST, **changes})
