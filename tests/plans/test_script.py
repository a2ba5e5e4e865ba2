"""Rendered scripts, run by a real bash: argv, directory and variables arrive byte for byte."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cockpit.base.shell import quote
from cockpit.plans.command_words import split
from cockpit.plans.environment import gather
from cockpit.plans.launchers.command import SLOTS_SH
from cockpit.plans.nodes.hostfile import Host, parse
from cockpit.plans.plan import LaunchJob, NodeFacts, NodePlan, build_plans
from cockpit.plans.profilers.nsys import Nsys
from cockpit.plans.script import launch_script, paste_script, plan_json, secrets_text
from tests.needs import lacking, require, require_module
from tests.ports import free_port
from tests.waiting import PATIENCE_S, until
from tests.warm import Warm

RANK_PY = str(Path(__file__).with_name("rank.py"))
HERE = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}

# What a supervisor's rankwrap does to the command line, without its bookkeeping.
RANKWRAP = f"""#!{sys.executable} -IS
import os, sys
argv, local = sys.argv[1:], []
if argv[0].startswith("--local_rank="):
    local = [argv.pop(0)]
k = int(argv.pop(0))
os.execvp(argv[0], argv[:k] + local + argv[k:])
"""


def job(tmp: Path, program: tuple[str, ...], **more: Any) -> LaunchJob:
    values: dict[str, Any] = {"launcher": "command", "hosts": (Host("n", (0,)),), "python": sys.executable}
    values.update(more)
    env = {"OUT": str(tmp), **values.pop("env", {})}
    return LaunchJob("r", program=program, cwd=values.pop("cwd", str(tmp)), env=env, **values)


def execute(plan: NodePlan, folder: Path, wrapped: bool, env: dict[str, str] | None = None) -> int:
    """What a supervisor does with a plan."""
    folder.mkdir()
    for name, text in {**plan.files, "launch.sh": launch_script(plan, wrapped)}.items():
        (folder / name).write_text(text, "utf-8")
    (folder / "rankwrap").write_text(RANKWRAP)
    (folder / "rankwrap").chmod(0o700)
    env = {**HERE, **plan.secrets, "COCKPIT_DIR": str(folder), **(env or {})}
    return subprocess.run(["bash", folder / "launch.sh"], env=env, check=False, timeout=PATIENCE_S).returncode


def paste(text: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """What a person does with it, in an interactive shell that must survive."""
    return subprocess.run(
        ["bash", "--norc", "-i"],
        input=text + 'echo "alive in $PWD with $?"\n',
        env={**HERE, **(env or {})},
        cwd="/",
        check=False,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=PATIENCE_S,
    )


def seen(folder: Path) -> dict[int, dict[str, Any]]:
    """What the ranks wrote, by rank; then gone. Variables that differ by nature are left out."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        facts = json.loads(path.read_text())
        env = facts["env"]
        facts["env"] = {k: v for k, v in env.items() if not k.startswith(("COCKPIT_", "TORCHELASTIC_", "_"))}
        found[int(path.stem)] = facts
        path.unlink()
    return found


RAW = st.binary(max_size=12).map(lambda data: data.replace(b"\0", b"").decode("utf-8", "surrogateescape"))
NASTY = st.text(st.sampled_from("ab $'\"\\\n\t!`#~*?{};&|<>()=é€\x1b\x7f\r%"), max_size=12)
VALUE = RAW | NASTY | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)


@pytest.mark.slow
@settings(max_examples=20)
@given(args=st.lists(VALUE, max_size=4), values=st.lists(VALUE, max_size=4), folder=NASTY)
def test_everything_arrives_unchanged(args: list[str], values: list[str], folder: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        tmp = Path(name)
        cwd = tmp / ("d" + folder.replace("/", ""))
        cwd.mkdir()
        env = gather({}, [], [f"V{i}={value}" for i, value in enumerate(values)]).values
        [plan] = build_plans(job(tmp, (RANK_PY, *args), env=dict(env), cwd=str(cwd)))
        for wrapped in (True, False):
            assert execute(plan, tmp / f"run{wrapped}", wrapped) == 0
            got = seen(tmp)[0]
            assert got["argv"] == [RANK_PY, *args]
            assert got["cwd"] == str(cwd)
            assert {k: v for k, v in got["env"].items() if k in env} == env
            assert got["unbuffered"]


@settings(max_examples=15)
@given(args=st.lists(VALUE, max_size=3), value=VALUE)
def test_pasting_gives_the_same(args: list[str], value: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        tmp = Path(name)
        [plan] = build_plans(job(tmp, (RANK_PY, *args), env={"V": value}))
        done = paste(paste_script(plan))
        assert done.stdout == "alive in / with 0\n", done.stderr
        got = seen(tmp)[0]
        assert (got["argv"][1:], got["env"]["V"]) == (args, value)


@given(VALUE)
def test_words_are_harmless_on_a_terminal(text: str) -> None:
    word = quote(text)
    assert word.isprintable()
    assert "!" not in word


def test_setup_path_and_explicit_values(tmp_path: Path) -> None:
    setup = 'export A=setup B=setup\n[ -n "$PATH" ] # a comment'
    [plan] = build_plans(job(tmp_path, (RANK_PY,), setup=setup, env={"A": "mine"}))
    assert execute(plan, tmp_path / "run", True) == 0
    env = seen(tmp_path)[0]["env"]
    assert (env["A"], env["B"]) == ("mine", "setup")
    assert env["PATH"].split(":")[0] == os.path.dirname(sys.executable)


def test_failures_before_the_launch(tmp_path: Path) -> None:
    [plan] = build_plans(job(tmp_path, (RANK_PY,)))
    assert execute(replace(plan, cwd="/nonexistent"), tmp_path / "1", True) == 90
    assert execute(replace(plan, setup="source /nonexistent"), tmp_path / "2", True) == 91
    assert not seen(tmp_path)
    done = paste(paste_script(replace(plan, cwd="/nonexistent")))
    assert "/nonexistent" in done.stderr
    assert done.stdout == "alive in / with 90\n"


def test_slots_of_the_command_launcher(tmp_path: Path) -> None:
    env = {"EXIT_2": "3", "EXIT_3": "5", "pid": "x", "cockpit_slot": "y"}
    hosts = parse("a slots=1\nb slots=3")
    plans = build_plans(job(tmp_path, (RANK_PY,), hosts=hosts, env=env, master_addr="h", master_port=7))
    assert execute(plans[1], tmp_path / "run", True) == 3
    found = seen(tmp_path)
    assert sorted(found) == [1, 2, 3] == list(plans[1].ranks)
    got = found[2]["env"]
    expected = {
        "RANK": "2",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "3",
        "NODE_RANK": "1",
        "GROUP_RANK": "1",
        "MASTER_ADDR": "h",
        "MASTER_PORT": "7",
        "pid": "x",
    }
    assert {name: got.get(name) for name in expected} == expected


def test_a_signal_reaches_every_slot(tmp_path: Path) -> None:
    [plan] = build_plans(job(tmp_path, ("x",), hosts=parse("n slots=2")))
    (tmp_path / "slots.sh").write_text(plan.files[SLOTS_SH])
    # One write a line: print makes two, which those of the other slot may come between.
    ready = "import os, signal, time; ok = signal.getsignal(2) is signal.default_int_handler; "
    ready += "os.write(1, b'%s\\n' % str(ok).encode())"
    command = ["bash", str(tmp_path / "slots.sh"), sys.executable, "-c", f"{ready}; time.sleep(60)"]
    # Where this test runs in the background of a script, SIGINT is ignored, and a shell cannot change that.
    default = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=default) as process:
        assert process.stdout
        assert [process.stdout.readline() for _ in range(2)] == ["True\n"] * 2
        # It has its traps once it waits: its slots may be there before.
        until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S")
        process.terminate()
        assert process.wait(PATIENCE_S) == 143


def test_secrets(tmp_path: Path) -> None:
    value = "hu'sh $x\n"
    secret = job(tmp_path, (RANK_PY,), env={"A_TOKEN": value}, secrets=frozenset({"A_TOKEN"}))
    [plan] = build_plans(secret)
    assert "sh $x" not in launch_script(plan) + paste_script(plan) + json.dumps(plan_json(plan))
    assert plan_json(plan)["env"]["A_TOKEN"] == "(secret, 9 characters)"
    file = tmp_path / "the secrets"
    file.write_text(secrets_text(plan.secrets))
    for text in (paste_script(plan, str(file)), paste_script(plan, show_secrets=True)):
        assert paste(text).stdout == "alive in / with 0\n"
        assert seen(tmp_path)[0]["env"]["A_TOKEN"] == value
    done = paste(paste_script(plan, str(tmp_path / "missing")))
    assert "cannot read the secrets (A_TOKEN)" in done.stderr
    assert done.stdout == "alive in / with 2\n"
    done = paste(paste_script(plan))
    assert "A_TOKEN: is a secret: set it first" in done.stderr
    assert "alive in /" in done.stdout
    assert paste(paste_script(plan), {"A_TOKEN": value}).stdout == "alive in / with 0\n"
    assert seen(tmp_path)[0]["env"]["A_TOKEN"] == value


def test_secrets_among_the_words_of_the_program(tmp_path: Path) -> None:
    value = "hu'sh $x"
    given = job(
        tmp_path,
        (RANK_PY, "--key=" + value, value, "a" + value + "b"),
        env={"A_TOKEN": value},
        secrets=frozenset({"A_TOKEN"}),
    )
    [plan] = build_plans(given)
    assert "sh $x" not in launch_script(plan) + paste_script(plan) + json.dumps(plan_json(plan))
    paste(paste_script(plan, show_secrets=True))
    assert seen(tmp_path)[0]["argv"][1:] == ["--key=" + value, value, "a" + value + "b"]


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    [plan] = build_plans(job(tmp_path, (RANK_PY,)))
    paste(paste_script(plan), {"TMPDIR": str(tmp_path)})
    assert [path.name for path in tmp_path.iterdir()] == ["0.json"]


@pytest.mark.parametrize("launcher", ["deepspeed", "torchrun", "accelerate"])
def test_words_for_the_launcher_arrive_unchanged(tmp_path: Path, launcher: str) -> None:
    tool = tmp_path / "tool"
    tool.write_text('#!/bin/bash\nprintf \'%s\\0\' "$@" >"$OUT"/words\n')
    tool.chmod(0o700)
    words = split("""--log_level debug -q --venv_script='/a b/$HOME/x' --role "it's; $(id)" --x=é\\!""", "")
    tools: dict[str, Any] = {f"{launcher}_tool": str(tool)}
    asked = job(tmp_path, ("t.py", "--deepspeed_config", "$x"), launcher=launcher, launcher_args=words)
    [plan] = build_plans(asked, [replace(FACTS, **tools)])
    for wrapped in (True, False):
        assert execute(plan, tmp_path / str(wrapped), wrapped) == 0
        found = (tmp_path / "words").read_text().split("\0")[:-1]
        place = found.index("--log_level")
        assert found[place : place + len(words)] == list(words)
        assert found[-2:] == ["--deepspeed_config", "$x"]


AWKWARD = ("--n", "3", "--", "--local_rank", "a b", "--master_port=1", "-m", "$x")
DEEPSPEED = {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
FACTS = NodeFacts(python=sys.executable, deepspeed="x", torch="x", accelerate="x", numactl="/x")


# Of deepspeed and torchrun another quick test has a real launch: tests/node/test_launchers.py.
@pytest.mark.few(1)
@pytest.mark.launch
@pytest.mark.parametrize(
    ("launcher", "hosts", "program", "no_ssh"),
    [
        ("accelerate", (Host("b", (0,)),), (RANK_PY, *AWKWARD), True),
        ("accelerate", (Host("b", (1, 3)),), ("-m", "rank", "--", "--no"), True),
        ("torchrun", (Host("b", (0, 1)),), (RANK_PY, *AWKWARD), True),
        ("torchrun", (Host("b", (0,)),), ("-m", "rank", "--", "--no"), True),
        ("deepspeed", (Host("a", (0,)), Host("b", (1, 3))), (RANK_PY, *AWKWARD), True),
        ("deepspeed", (Host("a", (0,)), Host("b", (1, 3))), (RANK_PY, *AWKWARD), False),
        ("deepspeed", (Host("b", (0, 1)),), (RANK_PY, "--", "--x"), True),
        ("deepspeed", (Host("b", (0,)),), ("-m", "rank", "--steps=1"), True),
        ("deepspeed", (Host("b", (0,)),), (sys.executable + "-program", "x"), True),
    ],
)
def test_real_launchers(
    tmp_path: Path,
    warmed: Warm,
    launcher: str,
    hosts: tuple[Host, ...],
    program: tuple[str, ...],
    no_ssh: bool,
) -> None:
    """The program sees the same under the command as typed and as run: argv, directory, variables, ranks."""
    require_module("torch" if launcher == "torchrun" else launcher)
    tool = warmed.tool(launcher)
    facts = replace(FACTS, no_ssh=no_ssh, deepspeed_tool=tool, torchrun_tool=tool, accelerate_tool=tool)
    facts = replace(facts, python=warmed.python)
    if program[0].endswith("-program"):
        script = tmp_path / "program"
        script.write_text(f"#!{sys.executable} -u\n" + Path(RANK_PY).read_text())
        script.chmod(0o700)
        program = (str(script), *program[1:])
    # One port and one folder each: both run at the same time.
    jobs = []
    for name in ("run", "typed"):
        (tmp_path / name).mkdir()
        asked = job(
            tmp_path / name, program, launcher=launcher, hosts=hosts, env=DEEPSPEED, python=warmed.python,
            cwd=os.path.dirname(RANK_PY), master_addr="127.0.0.1", master_port=free_port(),
        )  # fmt: skip
        jobs.append(asked)
    plans = [build_plans(asked, [facts] * len(hosts))[-1] for asked in jobs]
    with ThreadPoolExecutor() as pool:
        folders = [tmp_path / "run" / "node", tmp_path / "typed" / "node"]
        assert list(pool.map(execute, plans, folders, (True, False))) == [0, 0]
    plan = plans[0]
    found = [seen(tmp_path / "run"), seen(tmp_path / "typed")]
    for ranks, asked in zip(found, jobs, strict=True):
        for facts_of_rank in ranks.values():
            own = {"OUT": asked.env["OUT"], "MASTER_PORT": str(asked.master_port)}
            assert {name: facts_of_rank["env"].pop(name) for name in own} == own
    assert found[0] == found[1]
    assert tuple(sorted(found[0])) == plan.ranks
    arguments = list(program[2:] if program[0] == "-m" else program[1:])
    for rank, facts_of_rank in found[0].items():
        got = facts_of_rank["argv"][1:]
        if launcher == "deepspeed":
            assert got.pop(0) == f"--local_rank={facts_of_rank['env']['LOCAL_RANK']}"
            assert facts_of_rank["env"]["CUDA_VISIBLE_DEVICES"] == ",".join(map(str, plan.slots))
        assert got == arguments
        assert facts_of_rank["env"]["RANK"] == str(rank)
        assert facts_of_rank["env"]["WORLD_SIZE"] == str(sum(len(host.slots) for host in hosts))


@pytest.mark.slow
@pytest.mark.launch
def test_ranks_are_bound_to_cores_that_the_node_allows(tmp_path: Path, warmed: Warm) -> None:
    require("numactl")
    require_module("deepspeed")
    allowed = sorted(os.sched_getaffinity(0))[-2:]
    if len(allowed) < 2:
        lacking("there is one core")
    script = tmp_path / "bound.py"
    script.write_text(
        "import os\nfile = open(os.environ['OUT'] + '/' + os.environ['RANK'], 'w')\n"
        "print(*os.sched_getaffinity(0), file=file)\n"
    )
    asked = job(
        tmp_path, (str(script),), launcher="deepspeed", hosts=parse("n slots=2"), env=DEEPSPEED,
        bind_cores="auto", master_addr="127.0.0.1", master_port=free_port(),
    )  # fmt: skip
    facts = replace(FACTS, deepspeed_tool=warmed.tool("deepspeed"), cores=",".join(map(str, allowed)))
    [plan] = build_plans(asked, [facts])
    assert execute(plan, tmp_path / "node", True) == 0
    assert [int((tmp_path / rank).read_text()) for rank in "01"] == allowed


GATHERED = """
import os
from accelerate import Accelerator
import torch
accelerator = Accelerator()
found = accelerator.gather(torch.tensor([accelerator.process_index])).tolist()
with open(os.path.join(os.environ["OUT"], os.environ["RANK"]), "w") as file:
    print(accelerator.num_processes, found, file=file)
accelerator.end_training()
"""


# As `accelerate config` writes it on some machine; its numbers are of another launch.
CONFIGURED = """
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
deepspeed_config: {zero_stage: 1, deepspeed_multinode_launcher: pdsh}
num_machines: 7
num_processes: 9
machine_rank: 3
main_process_ip: 203.0.113.1
"""


def accelerated(tmp: Path, warmed: Warm, script: str, *words: str) -> None:
    """Run a script under accelerate as two nodes do, with a rank on each."""
    require_module("accelerate")
    asked = job(
        tmp, (script,), launcher="accelerate", hosts=parse("n[1-2] slots=1"), env=DEEPSPEED,
        python=warmed.python, launcher_args=words, master_addr="127.0.0.1", master_port=free_port(),
    )  # fmt: skip
    facts = replace(FACTS, python=warmed.python, accelerate_tool=warmed.tool("accelerate"))
    plans = build_plans(asked, [facts] * 2)
    with ThreadPoolExecutor() as pool:
        assert list(pool.map(execute, plans, [tmp / "node1", tmp / "node2"], (True, True))) == [0, 0]


@pytest.mark.slow
@pytest.mark.launch
def test_ranks_of_two_nodes_find_each_other_under_accelerate(tmp_path: Path, warmed: Warm) -> None:
    script = tmp_path / "gathered.py"
    script.write_text(GATHERED)
    accelerated(tmp_path, warmed, str(script), "--cpu")
    assert [(tmp_path / rank).read_text() for rank in "01"] == ["2 [0, 1]\n"] * 2


@pytest.mark.slow
@pytest.mark.launch
def test_accelerate_takes_the_kind_of_training_from_its_file_and_the_nodes_from_us(
    tmp_path: Path, warmed: Warm
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(CONFIGURED)
    accelerated(tmp_path, warmed, RANK_PY, "--config_file", str(file))
    ranks = seen(tmp_path)
    assert list(ranks) == [0, 1]
    for rank in ranks.values():
        assert rank["env"]["ACCELERATE_USE_DEEPSPEED"] == "true"
        assert (rank["env"]["WORLD_SIZE"], rank["env"]["MASTER_ADDR"]) == ("2", "127.0.0.1")


BUSY = """
import glob, os, sys, time
end = time.monotonic() + 60
reports = os.environ["OUT"] + "/run/reports/*.*"
while os.environ["WINDOW"] and not glob.glob(reports) and time.monotonic() < end:
    time.sleep(0.05)
open(os.environ["OUT"] + "/done" + os.environ["RANK"], "w").close()
sys.exit(3)
"""


@pytest.mark.slow
@pytest.mark.nsys
@pytest.mark.parametrize("window", ["", "1"], ids=["whole", "window"])
def test_nsys_writes_a_report_and_kills_nothing(tmp_path: Path, window: str) -> None:
    """With a window the ranks end only after the report is there; the launcher's status is what counts."""
    nsys = require("nsys")
    script = tmp_path / "busy.py"
    script.write_text(BUSY)
    options = Nsys(delay_s=1, duration_s=1) if window else Nsys()
    asked = job(tmp_path, (str(script),), hosts=parse("n slots=2"), profiler=options, env={"WINDOW": window})
    [plan] = build_plans(asked, [replace(FACTS, profiler=nsys)])
    assert execute(plan, tmp_path / "run", True) == 3
    assert sorted(path.name for path in tmp_path.glob("done*")) == ["done0", "done1"]
    assert plan.report
    written = (tmp_path / "run").glob(plan.report + ".*")
    assert {path.suffix for path in written} & {".nsys-rep", ".qdstrm"}


FAILS = """#!/bin/bash
# An nsys that fails, once or always, before it has started anything, or seems to.
while [ "$1" != bash ]; do shift; done
[ -e "$OUT"/failed ] && FAIL=$AGAIN
touch "$OUT"/failed
case $FAIL in
  at-once) exit 1 ;;
  too-early) (while [ ! -e "$OUT"/again ]; do sleep 0.05; done; exec "$@") & exit 1 ;;
  too-late) touch "$OUT"/again; while [ ! -s "$COCKPIT_DIR"/launcher.pid ]; do sleep 0.05; done ;;
esac
exec "$@"
"""


@pytest.mark.parametrize(
    ("fail", "again", "status", "started"),
    [
        ("at-once", "", 3, ["run"]),
        ("at-once", "at-once", 1, []),
        ("too-early", "too-late", 3, ["run"]),
    ],
)
def test_nsys_that_fails_before_the_launcher_starts_is_tried_once_more(
    tmp_path: Path, fail: str, again: str, status: int, started: list[str]
) -> None:
    """The launcher starts once, whatever nsys does."""
    nsys = tmp_path / "nsys"
    nsys.write_text(FAILS)
    nsys.chmod(0o700)
    program = ("bash", "-c", 'echo run >>"$OUT"/started; exit 3')
    asked = job(tmp_path, program, profiler=Nsys(), env={"FAIL": fail, "AGAIN": again})
    [plan] = build_plans(asked, [replace(FACTS, profiler=str(nsys))])
    assert execute(plan, tmp_path / "run", False) == status
    path = tmp_path / "started"
    assert (path.read_text().split() if path.exists() else []) == started
