"""Plans: command lines, ranks, notes and mistakes, with nothing started."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.base.answers import FactsAnswer
from cockpit.errors import CockpitError, Exit
from cockpit.plans.launchers import deepspeed, torchrun
from cockpit.plans.launchers.base import ambiguous
from cockpit.plans.nodes import sources
from cockpit.plans.nodes.hostfile import parse
from cockpit.plans.plan import DIR, LaunchJob, NodeFacts, NodePlan, build_plans, host_of, report_name
from cockpit.plans.profilers.nsys import Nsys
from cockpit.plans.profilers.nsys_ready import NsysReady
from cockpit.plans.script import launch_script, paste_script, plan_json, profile
from tests.needs import require_module

HOSTS = parse("node[1-2] slots=2")
JOB = LaunchJob("run-1", HOSTS, ("train.py", "--steps", "5"), "/work")
FACTS = NodeFacts(
    address="10.0.0.1",
    port=4321,
    cores="0-3",
    numactl="/usr/bin/numactl",
    profiler="/opt/nsys",
    python="/v/bin/python",
    deepspeed="0.19.8",
    deepspeed_tool="/v/bin/deepspeed",
    torch="2.13",
    torchrun_tool="/v/bin/torchrun",
    accelerate="1.15.0",
    accelerate_tool="/v/bin/accelerate",
)


def second(facts: NodeFacts | None = None, **changes: Any) -> NodePlan:
    job = replace(JOB, **changes)
    return build_plans(job, [facts] * len(job.hosts))[1]


def test_deepspeed_as_typed_and_as_run() -> None:
    plan = second(FACTS)
    start = f"/v/bin/deepspeed --hostfile={DIR}/hostfile --no_ssh --node_rank 1"
    start += " --master_addr 10.0.0.1 --master_port 4321"
    assert " ".join(plan.argv) == f"{start} train.py --steps 5"
    run = f"{start} --no_python {DIR}/rankwrap 3 /v/bin/python -u train.py --steps 5"
    assert " ".join(plan.run_argv) == run
    assert plan.files == {"hostfile": "node1 slots=2\nnode2 slots=2\n"}
    assert plan.ranks == (2, 3)
    assert not plan.notes


def test_once_a_node_as_typed_and_as_run() -> None:
    plan = second(FACTS, launcher="per-node", hosts=parse("node[1-2] slots=4"))
    start = f"bash {DIR}/once.sh"
    assert " ".join(plan.argv) == f"{start} /v/bin/python -u train.py --steps 5"
    run = f"{start} env COCKPIT_RANK=1 {DIR}/rankwrap 3 /v/bin/python -u train.py --steps 5"
    assert " ".join(plan.run_argv) == run
    assert (plan.ranks, plan.world_size, plan.slots) == ((1,), 2, (0, 1, 2, 3))
    assert "NODE_RANK=1 NNODES=2 MASTER_ADDR=10.0.0.1 MASTER_PORT=4321" in plan.files["once.sh"]
    some = second(FACTS, launcher="per-node", hosts=(HOSTS[0], replace(HOSTS[1], slots=(1,))))
    assert some.env["CUDA_VISIBLE_DEVICES"] == "1"


def test_torchrun_as_typed_and_as_run() -> None:
    plan = second(FACTS, launcher="torchrun", launcher_args=("--max-restarts", "3"))
    start = "/v/bin/torchrun --nnodes 2 --node-rank 1 --nproc-per-node 2"
    start += " --master-addr 10.0.0.1 --master-port 4321"
    assert " ".join(plan.argv) == f"{start} --max-restarts 3 train.py --steps 5"
    run = f"{start} --max-restarts 3 --no-python {DIR}/rankwrap 3 /v/bin/python -u train.py --steps 5"
    assert " ".join(plan.run_argv) == run


def test_accelerate_as_typed_and_as_run() -> None:
    plan = second(FACTS, launcher="accelerate", launcher_args=("--mixed_precision", "bf16"))
    start = "/v/bin/accelerate launch --num_machines 2 --machine_rank 1 --num_processes 4"
    start += " --main_process_ip 10.0.0.1 --main_process_port 4321 --deepspeed_multinode_launcher standard"
    start += " --multi_gpu --mixed_precision bf16"
    assert " ".join(plan.argv) == f"{start} train.py --steps 5"
    run = f"{start} --no_python {DIR}/rankwrap 3 /v/bin/python -u train.py --steps 5"
    assert " ".join(plan.run_argv) == run
    plan = second(replace(FACTS, accelerate_tool=None), launcher="accelerate")
    assert plan.argv[:4] == ("/v/bin/python", "-m", "accelerate.commands.launch", "--num_machines")


@pytest.mark.parametrize("word", ["--config_file=a.yaml", "--config-file", "--use_deepspeed", "--use_fsdp"])
def test_accelerate_distributes_as_a_person_says(word: str) -> None:
    assert "--multi_gpu" not in second(FACTS, launcher="accelerate", launcher_args=(word, "x")).argv


def test_accelerate_on_cpus_needs_no_mpi() -> None:
    plan = second(FACTS, launcher="accelerate", launcher_args=("--cpu", "--debug"))
    assert " ".join(plan.argv).endswith(" --multi_gpu --debug train.py --steps 5")
    assert plan.env["ACCELERATE_USE_CPU"] == "true"
    assert not plan.notes


def test_command_as_typed_and_as_run() -> None:
    plan = second(launcher="command", program=("./prog", "x"))
    assert plan.argv == ("bash", f"{DIR}/slots.sh", "./prog", "x")
    assert plan.run_argv == ("bash", f"{DIR}/slots.sh", f"{DIR}/rankwrap", "1", "./prog", "x")


@pytest.mark.parametrize(
    ("launcher", "program", "typed", "run"),
    [
        ("deepspeed", ("-m", "a.b", "x"), "--module a.b x", "4 python -u -m a.b x"),
        ("deepspeed", ("./p", "x"), "--no_python ./p x", "1 ./p x"),
        ("torchrun", ("-m", "a.b", "x"), "--module a.b x", "4 python -u -m a.b x"),
        ("torchrun", ("./p", "x"), "--no-python ./p x", "1 ./p x"),
        ("accelerate", ("-m", "a.b", "x"), "--module a.b x", "4 python -u -m a.b x"),
        ("accelerate", ("./p", "--", "x"), "--no_python -- ./p -- x", "1 ./p -- x"),
        ("command", ("-m", "a.b", "x"), "python -u -m a.b x", "4 python -u -m a.b x"),
    ],
)
def test_modules_and_other_programs(launcher: str, program: tuple[str, ...], typed: str, run: str) -> None:
    plan = second(launcher=launcher, program=program)
    assert " ".join(plan.argv).endswith(typed)
    assert " ".join(plan.run_argv).endswith(f"{DIR}/rankwrap {run}")
    assert not {"--module", "--no_python"} <= set(plan.run_argv)


def test_without_facts_the_notes_say_what_run_asks() -> None:
    plan = second(bind_cores="auto")
    assert (plan.master_addr, plan.master_port) == ("node1", 29500)
    text = "\n".join(plan.notes)
    assert "if the nodes cannot resolve that name, run asks node1 for its address" in text
    assert "run asks node1 for a free one" in text
    assert "run asks each node" in text
    given_both = second(master_addr="10.1.1.1", master_port=5)
    assert (given_both.master_addr, given_both.master_port, given_both.notes) == ("10.1.1.1", 5, ())


def test_tools_beside_the_python() -> None:
    assert second(python="/v/bin/python").argv[0] == "/v/bin/deepspeed"
    assert second(python="/v/bin/python", launcher="torchrun").argv[0] == "/v/bin/torchrun"
    assert second().argv[0] == "deepspeed"


def test_a_subset_of_slots() -> None:
    hosts = sources.apply(HOSTS, include="node1:1@node2")
    first, other = build_plans(replace(JOB, hosts=hosts))
    assert "--include=node1:1@node2" in first.argv
    assert first.files["hostfile"] == "node1 slots=2\nnode2 slots=2\n"
    assert (first.ranks, first.slots, other.ranks) == ((0,), (1,), (1, 2))
    torchrun = build_plans(replace(JOB, hosts=hosts, launcher="torchrun"))
    assert [plan.env.get("CUDA_VISIBLE_DEVICES") for plan in torchrun] == ["1", None]


def test_launch_py_where_deepspeed_cannot_say_it() -> None:
    plan = second(replace(FACTS, no_ssh=False, deepspeed="0.5"))
    assert plan.argv[:4] == ("/v/bin/python", "-u", "-m", "deepspeed.launcher.launch")
    world = plan.argv[4].removeprefix("--world_info=")
    assert json.loads(base64.urlsafe_b64decode(world)) == {"node1": [0, 1], "node2": [0, 1]}
    assert "0.5 has no --no_ssh" in plan.notes[0]
    hosts = sources.apply(parse("me@a slots=2\nb slots=2"), include="me@a:1@b")
    assert "deepspeed.launcher.launch" in second(hosts=hosts).argv


def test_binding() -> None:
    words = ("--bind_cores_to_rank", "--bind_core_list")
    plan = second(FACTS, bind_cores="auto")
    place = plan.argv.index(words[0])
    assert plan.argv[place : place + 3] == (*words, "0-3")
    none = second(replace(FACTS, numactl=None), bind_cores="auto")
    assert words[0] not in none.argv
    assert "node2: no numactl" in none.notes[0]
    few = second(replace(FACTS, cores="3"), bind_cores="auto")
    assert "1 cores for 2 ranks" in few.notes[0]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"program": ()}, "no program"),
        ({"program": ("-m",)}, "no program"),
        ({"program": ("train.py", f"{DIR}/x")}, "own placeholder"),
        ({"program": ("train.py", "\0")}, "NUL"),
        ({"program": ("python3", "train.py")}, "write `-- train.py"),
        ({"hosts": ()}, "no host"),
        ({"cwd": "work"}, "--cwd"),
        ({"python": "python3"}, "--python"),
        ({"master_port": 70000}, "--master-port"),
        ({"master_addr": "-x"}, "--master-addr"),
        ({"launcher": "mpi"}, "deepspeed, torchrun, accelerate, command"),
        ({"launcher_args": ("--enable_each_rank_log=x",)}, "its own log"),
        ({"launcher_args": ("--nproc_per_node=1",), "launcher": "torchrun"}, "--nproc_per_node"),
        ({"launcher_args": ("--num-processes=1",), "launcher": "accelerate"}, "--num-processes"),
        ({"launcher_args": ("--tpu",), "launcher": "accelerate"}, "leave it out"),
        ({"hosts": parse("a slots=2\nb slots=3"), "launcher": "accelerate"}, "2 to 3 slots"),
        ({"launcher_args": ("-x",), "launcher": "command"}, "no arguments of its own"),
        ({"bind_cores": "auto", "launcher": "torchrun"}, "--bind-cores"),
        ({"bind_cores": "3-1"}, "ascending"),
        ({"bind_cores": "auto", "env": {"KMP_AFFINITY": "x"}}, "KMP_AFFINITY"),
        ({"profiler": Nsys(duration_s=1.5)}, "whole seconds"),
        ({"profiler": NsysReady(extra=("-o", "x"))}, "nothing is recorded until"),
        ({"profiler": NsysReady(extra=("--session-new=x",))}, "cannot be given to nsys"),
        ({"profiler": NsysReady(extra=("--sample=none",))}, "samples nothing"),
        ({"profiler": Nsys(extra=("-o", "../x"))}, "-o ../x: not a file name"),
        ({"profiler": Nsys(extra=("--output=",))}, "not a file name"),
        ({"profiler": Nsys(extra=("-o",))}, "not a file name"),
        ({"profiler": Nsys(sampler=("-o", "x"))}, "-o belongs to --nsys-args"),
        ({"profiler": Nsys(extra=("--force-overwrite=false",))}, "cockpit places the reports"),
        ({"profiler": Nsys(sampler=("--kill=sigkill",))}, "cockpit places the reports"),
        ({"profiler": Nsys(per_rank=True), "launcher": "per-node"}, "starts its own ranks"),
        ({"profiler": Nsys(per_rank=True, ranks=frozenset({3, 9}))}, "no rank 9: the run has ranks 0-3"),
        ({"profiler": Nsys(extra=("--duration=3",))}, "use cockpit's own: --duration"),
        ({"profiler": Nsys(extra=("--capture-range=nvtx",))}, "use cockpit's own: --capture-range"),
    ],
)
def test_mistakes(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(CockpitError) as caught:
        second(**changes)
    assert says in str(caught.value)
    assert caught.value.code is Exit.USAGE


@pytest.mark.parametrize(
    ("extra", "kept"),
    [
        ((), ["--sample=none", "--cpuctxsw=none"]),
        (("--sample=cpu",), ["--cpuctxsw=none"]),
        (("-s", "cpu", "--cpuctxsw=process-tree"), []),
        (("--capture-range-end=repeat", "--sampling-period=1", "--trace-fork-before-exec=true"), None),
    ],
)
def test_words_of_a_person_stand_for_our_defaults(extra: tuple[str, ...], kept: list[str] | None) -> None:
    """nsys refuses an option that is given twice."""
    words = second(profiler=Nsys(extra=extra)).argv
    wanted = ["--sample=none", "--cpuctxsw=none"] if kept is None else kept
    assert [word for word in words if word in ("--sample=none", "--cpuctxsw=none")] == wanted
    assert " ".join(extra) in " ".join(words)


@pytest.mark.parametrize(
    ("facts", "changes", "says"),
    [
        (replace(FACTS, deepspeed=None), {}, "no deepspeed"),
        (replace(FACTS, torch=None), {"launcher": "torchrun"}, "no torch"),
        (replace(FACTS, accelerate=None), {"launcher": "accelerate"}, "no accelerate"),
        (FACTS, {"bind_cores": "2-5"}, "--bind-cores 2-5: it allows 0-3, not 4-5"),
        (replace(FACTS, profiler=None), {"profiler": Nsys()}, "nsys is not on PATH"),
    ],
)
def test_unfit_nodes_are_all_named(facts: NodeFacts, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(CockpitError) as caught:
        second(facts, **changes)
    lines = str(caught.value).splitlines()
    assert caught.value.code is Exit.NODE_UNFIT
    assert [line.split(":")[0] for line in lines] == ["node1", "node2"]
    assert says in lines[0]


def test_nsys_is_around_the_launcher() -> None:
    plan = second(FACTS, profiler=Nsys(delay_s=2, duration_s=1, capture_range="nvtx", extra=("-p", "x")))
    head = plan.argv[: plan.argv.index("/v/bin/deepspeed")]
    assert head[:6] == ("/opt/nsys", "profile", "-o", f"{DIR}/reports/run-1-node2", "-f", "true")
    assert "--kill=none" in head
    assert "--capture-range-end=stop" in head
    assert head[-4:] == ("-p", "x", "bash", f"{DIR}/held.sh")
    assert (plan.tool, plan.report) == ("/opt/nsys", "reports/run-1-node2")


def test_nsys_that_waits_is_told_later() -> None:
    plan = second(FACTS, profiler=NsysReady("nvtx", extra=("--wait=primary",)))
    launch = " ".join(plan.argv[: plan.argv.index("bash") + 2])
    assert launch == (
        "/opt/nsys launch --session-new=%q{COCKPIT_NSYS_SESSION} --trace=nvtx --wait=primary bash "
        f"{DIR}/held.sh"
    )
    assert 'echo "$COCKPIT_NSYS_SESSION" >"$COCKPIT_DIR"/nsys.session' in plan.files["held.sh"]
    assert profile(plan) == {"nsys": "/opt/nsys", "report": plan.report, "ready": "yes"}
    assert "report:" not in paste_script(plan)


def test_words_of_a_person_name_and_trace() -> None:
    for extra in (
        ("-o", "mine_%h", "-t", "mpi"),
        ("--output=mine_%h", "--trace=mpi"),
        ("-omine_%h", "-tmpi"),
    ):
        plan = second(FACTS, profiler=Nsys(extra=extra))
        words = plan.argv
        assert plan.report == "reports/mine_%h"
        assert 'report: $COCKPIT_DIR"/reports/mine_%h.nsys-rep' in paste_script(plan)
        assert words[:4] == ("/opt/nsys", "profile", "-o", f"{DIR}/reports/mine_%h")
        assert not any(word.startswith("--trace=cuda") for word in words)
        assert sum(word.startswith("-o") or word.startswith("--output") for word in words) == 1


def test_the_suffix_of_a_name_is_there_once() -> None:
    plan = second(FACTS, profiler=Nsys(extra=("-o", "mine.nsys-rep")))
    assert plan.argv[3] == f"{DIR}/reports/mine"
    assert (profile(plan) or {})["report"] == "reports/mine"


def test_nsys_is_around_each_rank() -> None:
    listed = frozenset({0, 2, 3})
    nsys = Nsys(delay_s=2, per_rank=True, ranks=listed, sampler=("--nic-metrics=true",))
    plan = second(FACTS, profiler=nsys)
    assert plan.argv[0] == "/v/bin/deepspeed"
    around = json.loads(plan.files["around.json"])
    assert around["before"][:2] == ["/opt/nsys", "profile"]
    assert {"--sample=none", "--cpuctxsw=none", "--kill=none", "--wait=primary", "--delay=2"} <= set(
        around["before"]
    )
    assert (around["sampler"], around["samplers"]) == (["--nic-metrics=true"], [2])
    assert around["report"] == "run-1.node2.rank-%q{RANK}"
    assert "held.sh" not in plan.files
    assert profile(plan) == {"nsys": "/opt/nsys", "report": "reports/run-1.node2", "ranks": "0,2-3"}
    assert plan_json(plan)["ranks"] == [2, 3]
    text = launch_script(plan)
    assert "nsys" not in text.partition("export ")[2]
    assert "exec /v/bin/deepspeed" in text


def test_no_rank_of_a_node_is_listed() -> None:
    plan = second(FACTS, profiler=Nsys(per_rank=True, ranks=frozenset({1})))
    assert "around.json" not in plan.files


def test_options_are_those_that_the_nodes_nsys_has() -> None:
    known = (
        "-t",
        "--trace",
        "--sample",
        "--cpuctxsw",
        "--nvtx-domain-",
        "-e",
        "--env-var",
        "--delay",
        "-f",
        "-o",
    )
    facts = replace(FACTS, switches=known)
    plan = second(facts, profiler=Nsys(extra=("--nvtx-domain-include=x", "-e", "A=b", "--env"), delay_s=1))
    assert "--kill=none" not in plan.argv
    assert "its nsys does not know --kill=none: left out" in plan.notes
    for nsys, word in (
        (Nsys(extra=("--enable", "efa_metrics")), "--enable"),
        (Nsys(sampler=("--nic-metrics=true",)), "--nic-metrics"),
        (Nsys(duration_s=1), "--duration"),
        (Nsys(extra=("-q",)), "-q"),
    ):
        with pytest.raises(CockpitError) as caught:
            second(facts, profiler=nsys)
        assert f"nsys there does not know {word}" in str(caught.value)
        assert caught.value.code is Exit.NODE_UNFIT


def test_report_names() -> None:
    assert report_name("r", "a@b:22", 3) == "r-a_b_22-n3"


def test_host_part() -> None:
    got = [host_of(name) for name in ("a", "u@a", "a:22", "[::1]", "[fe80::1]:22", "u@::1")]
    assert got == ["a", "a", "a", "::1", "fe80::1", "::1"]


def test_facts_from_a_node() -> None:
    facts = NodeFacts.of("n", FactsAnswer("/p", "3.11", (0, 1, 5), deepspeed="1", no_ssh=True))
    assert (facts.cores, facts.deepspeed, facts.port, facts.torch) == ("0-1,5", "1", None, None)


def test_a_plan_does_not_show_its_secrets() -> None:
    plan = second(env={"HF_TOKEN": "hush", "A": "1"}, secrets=frozenset({"HF_TOKEN"}))
    assert dict(plan.env) == {"A": "1"}
    assert dict(plan.secrets) == {"HF_TOKEN": "hush"}
    assert "hush" not in repr(plan)


WORD = st.builds(
    "--{}{}".format,
    st.sampled_from(deepspeed._OPTIONS.split() + torchrun._OPTIONS.split()).flatmap(
        lambda name: st.integers(1, len(name)).map(lambda n: name[:n])
    ),
    st.sampled_from(["", "=3", "=a b"]),
)


@given(WORD)
def test_words_that_argparse_stumbles_on_are_known(word: str) -> None:
    """Without a guard, the real parsers must get everything that we do not guard."""
    require_module("deepspeed")
    from deepspeed.launcher.runner import parse_args
    from torch.distributed.run import get_args_parser

    if not ambiguous(("t.py", word), deepspeed._OPTIONS):
        assert parse_args(["--no_ssh", "t.py", word]).user_args == [word]
    if not ambiguous(("t.py", word), torchrun._OPTIONS):
        assert get_args_parser().parse_args(["t.py", word]).training_script_args == [word]
