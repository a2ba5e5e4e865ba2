"""The doctor asks nodes: this machine under two of its names, and a run that is known here."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from cockpit.base.answers import VisibleGpus
from cockpit.base.shell import join
from cockpit.cli import launch_options
from cockpit.cli.verbs.doctor import parser
from cockpit.core.doctor.node_checks import Looks
from cockpit.core.run.model import RunModel
from cockpit.engine.doctor import STAND_IN, Wanted, examine, unfit, wanted_again, words_again
from cockpit.engine.links.pool import LinkPool
from cockpit.engine.records.manifest import Foreign, Manifest, NodeEntry
from cockpit.plans.launch import LaunchJob
from cockpit.plans.nodes.hostfile import parse
from cockpit.transport.base import Reach
from tests.core.doctored import NODES, facts, healthy

JOB = LaunchJob("doctor", tuple(parse("localhost slots=1\n127.0.0.1 slots=1\n")), ("train.py",), "/")


def test_all_nodes_are_asked_for_all_of_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    job = LaunchJob("doctor", JOB.hosts, ("train.py",), str(tmp_path), python=sys.executable)

    async def main() -> Looks:
        async with LinkPool([sys.executable], Reach("local")) as pool:
            return (await examine(pool, Wanted(job, "command", timeout_s=90.0))).looks

    looks = asyncio.run(main())
    first, second = looks.nodes.values()
    assert (first.errors, second.errors) == ((), ())
    assert looks.machines == 1
    assert looks.address
    assert first.reached is None
    assert second.reached is not None
    assert second.reached.error == ""
    for look in looks.nodes.values():
        assert look.facts is not None
        assert look.facts.python == sys.executable
        assert set(look.condition.code or {}) == {"train.py"}
        assert look.condition.login is not None or "login" in look.condition.silent
        assert set(look.condition.names or {}) >= {"localhost", "127.0.0.1"}
        assert look.offset_s is not None
    assert first.condition.port is not None
    assert second.condition.port == ()


def test_no_node_is_believed() -> None:
    evil = facts(torch="2.9; touch /tmp/hostile")(healthy(0))
    (found,) = unfit(JOB, {"gpu01": healthy(0), "gpu02": evil})
    assert (found.id, found.nodes, found.severity) == ("bad_facts", ("gpu02",), "error")


def test_what_a_launch_refuses_is_unfit_here_too() -> None:
    """Slots that nobody gives; cores that a node does not allow; no run folder."""
    open_hosts = tuple(parse("gpu01\ngpu02\n"))
    hosts = tuple(parse("gpu01 slots=1\ngpu02 slots=1\n"))
    nodes = {name: facts(gpus=VisibleGpus(0))(healthy(n)) for n, name in enumerate(("gpu01", "gpu02"))}
    (found,) = unfit(replace(JOB, hosts=open_hosts, launcher="command"), nodes)
    assert (found.id, found.nodes, found.severity) == ("no_slots", ("gpu01", "gpu02"), "error")
    (found,) = unfit(replace(JOB, hosts=open_hosts, launcher="command", program=STAND_IN), nodes)
    assert (found.id, found.severity) == ("no_slots", "info")
    nodes["gpu02"] = facts(cores=(0, 1), numactl="/usr/bin/numactl")(nodes["gpu02"])
    (found,) = unfit(replace(JOB, hosts=hosts, bind_cores="0-2"), nodes)
    assert (found.id, found.nodes) == ("no_plan", ("gpu02",))
    assert found.what == "--bind-cores 0-2: it allows 0-1, not 2"
    nodes["gpu01"] = facts(folder="mounted noexec")(nodes["gpu01"])
    assert [each.id for each in unfit(replace(JOB, hosts=hosts, launcher="command"), nodes)] == ["no_folder"]


def test_a_run_that_is_known_here() -> None:
    entries = [NodeEntry(name, "/tmp/x", [number], "ssh", name, {}) for number, name in enumerate(NODES[:2])]
    manifest = Manifest(
        run="otter",
        created=1.0,
        nodes=entries,
        launcher="torchrun",
        program=["train.py"],
        cwd="/work",
        plans=[{"node": "gpu01", "slots": [0, 1], "python": "/opt/python", "setup": "true", "path": "/opt"}],
    )
    wanted = wanted_again(manifest, RunModel())
    assert (wanted.run, wanted.launcher, wanted.port, wanted.scheduler) == ("otter", "torchrun", 0, False)
    assert (wanted.job.python, wanted.job.setup) == ("/opt/python", "true")
    assert [(host.name, host.slots) for host in wanted.job.hosts] == [("gpu01", (0, 1)), ("gpu02", (0,))]
    command = "doctor -w gpu01:2,gpu02:1 --python /opt/python --setup true --launcher torchrun --cwd /work"
    assert join(words_again(manifest)) == f"{command} -- train.py"
    in_job = replace(manifest, transport="srun", transport_options={"job": "4711"})
    assert "--slurm 4711" in join(words_again(in_job))
    in_pods = replace(manifest, transport="kubectl", transport_options={"namespace": "ml", "context": "lab"})
    assert join(words_again(in_pods)).startswith("doctor -w pod/gpu01:2,pod/gpu02:1 -n ml --context lab ")
    selected = replace(in_pods, transport_options={"pods": "job/train"})
    assert join(words_again(selected)).startswith("doctor --k8s job/train --python")
    configured = {"config": "/home/ada/it's"}
    words = words_again(replace(manifest, transport="openssh", transport_options=configured))
    taken = launch_options.parse(parser(), words[1:])
    assert [(host.name, len(host.slots)) for host in taken.job.hosts] == [("gpu01", 2), ("gpu02", 1)]
    assert (taken.job.python, taken.job.setup, taken.job.program) == ("/opt/python", "true", ("train.py",))
    assert (taken.args.transport, taken.args.ssh_config) == ("openssh", "/home/ada/it's")


def test_a_login_node_that_has_output_alone_need_not_be_like_the_others() -> None:
    nodes = [NodeEntry("gpu01", "/work", [0]), NodeEntry("login", "/home/ada", [])]
    manifest = Manifest("otter", 0.0, nodes, "torchrun", ["train.py"], cwd="", foreign=Foreign(["at"]))
    assert [host.name for host in wanted_again(manifest, RunModel()).job.hosts] == ["gpu01"]
    assert join(words_again(manifest)) == "doctor -w gpu01:1"
