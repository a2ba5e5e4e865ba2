"""Whatever nodes answer and whatever people write, a plan's shell runs the launcher and nothing else."""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cockpit.base.answers import FactsAnswer
from cockpit.base.gate import Malformed, read
from cockpit.errors import CockpitError, Exit, ManyErrors
from cockpit.plans.command_words import DIR
from cockpit.plans.environment import gather
from cockpit.plans.nodes import hostfile
from cockpit.plans.nodes.hostfile import Host, parse
from cockpit.plans.plan import LaunchJob, NodeFacts, NodePlan, build_plans
from cockpit.plans.profilers.nsys import Nsys
from cockpit.plans.script import launch_script, paste_script
from tests.waiting import PATIENCE_S

HOSTS = parse("gpu[01-02] slots=2")
FACTS = NodeFacts(
    address="10.0.0.1",
    port=29501,
    cores="0-3",
    numactl="/nowhere/numactl",
    profiler=str(Path(__file__).with_name("fake_nsys.sh")),
    python="/nowhere/python",
    deepspeed="0.19.8",
    deepspeed_tool="/nowhere/deepspeed",
    torch="2.13",
    torchrun_tool="/nowhere/torchrun",
    accelerate="1.15.0",
    accelerate_tool="/nowhere/accelerate",
)
BYTES = st.binary(max_size=8).map(lambda data: data.decode("utf-8", "surrogateescape"))
# What comes before a command that must not run, and what comes after it.
AROUND = [
    ("29500; ", " #"),
    ("$(", ")"),
    ("`", "`"),
    ("\n", "\n"),
    ("\r", "\r"),
    ("/x' ; ", " ; '"),
    ('/x" ; ', ' ; "'),
    ("a[$(", ")]"),
    ("x) ; ", " ; ("),
    ("| ", ""),
    ("& ", " &"),
    ("\\\n", "\n"),
    ("\nEND\n", "\n"),
    ("/$(", ")/python"),
    ("}; ", "; {"),
    ("!$(", ")"),
    ("-$(", ")"),
    ("fe80::1%$(", ")"),
    ("\x1b]52;c;", "\x07"),
]
HOSTILE = st.tuples(BYTES, st.sampled_from(AROUND), BYTES)
Poison = tuple[str, tuple[str, str], str]

NODE_FIELDS: tuple[str, ...] = (
    "address",
    "port",
    "cores",
    "numactl",
    "profiler",
    "python",
    "deepspeed",
    "deepspeed_tool",
)
NODE_FIELDS += ("torch", "torchrun_tool", "accelerate", "accelerate_tool", "no_ssh")
PATHS = ("numactl", "profiler", "python", "deepspeed_tool", "torchrun_tool", "accelerate_tool")
JOB_FIELDS: tuple[str, ...] = (
    "run",
    "cwd",
    "python",
    "master_addr",
    "master_port",
    "env",
    "secret",
    "program",
    "words",
    "host",
)
JOB_FIELDS += ("nsys", "extra", "trace", "range", "variable", "bind_cores", "module", "path", "conda", "tool")


def poisoned(poison: Poison, command: str) -> str:
    before, (left, right), after = poison
    return before + left + command + right + after


def taken(node: str, fields: dict[str, Any]) -> NodeFacts:
    """What is made of a node's answer."""
    answer = {name: getattr(FACTS, name) for name in FACTS.__dataclass_fields__}
    answer = {**answer, "python_version": "3.12.1", "cores": [0, 1, 2, 3], **fields}
    answer["tools"] = {"nsys": answer.pop("profiler")}
    try:
        return NodeFacts.of(node, read(FactsAnswer, answer), "nsys")
    except Malformed as error:  # what a link makes of it
        raise CockpitError(f"cannot be true: {error}", where=node, code=Exit.NODE_UNFIT) from None


def as_node(launcher: str, field: str, text: str) -> list[NodePlan]:
    """Plans of a node that answers this in one field of its facts."""
    facts = FACTS
    if field in ("address", "port", "cores"):
        # As if nothing before it had looked at them.
        changes: dict[str, Any] = {field: text}
        facts = replace(FACTS, **changes)
    else:
        facts = taken("gpu01", {field: f"/{text}" if field in PATHS else text})
        facts = replace(facts, address=FACTS.address, port=FACTS.port)
    bind = "auto" if launcher == "deepspeed" else None
    job = LaunchJob("r", HOSTS, ("train.py",), "/", launcher, profiler=Nsys(), bind_cores=bind)
    return list(build_plans(job, [facts] * 2))


def as_person(launcher: str, field: str, text: str) -> list[NodePlan]:
    """Plans of a person who writes this in one place; nothing they write is shell but the setup."""
    env: dict[str, str] = {}
    job = LaunchJob("r", HOSTS, ("train.py",), "/", launcher)
    changes: dict[str, Any] = {}
    if field == "env":
        env = dict(gather({}, [], [f"A={text}"]).values)
    elif field == "secret":
        env = {"A_TOKEN": text}
        changes = {"secrets": frozenset({"A_TOKEN"})}
    elif field == "variable":
        env = {text: "x"}
    elif field == "program":
        changes = {"program": (f"{text}.py", text, text)}
    elif field == "module":
        changes = {"program": ("-m", text, text)}
    elif field == "words":
        changes = {"launcher_args": (text,)}
    elif field == "host":
        changes = {"hosts": (Host(text, (0, 1)), HOSTS[1])}
    elif field in ("nsys", "extra", "trace", "range"):
        options: dict[str, Any] = {
            "nsys": {"path": text},
            "extra": {"extra": (text,)},
            "trace": {"trace": text},
        }
        changes = {"profiler": Nsys(**options.get(field, {"capture_range": text}))}
    elif field in ("cwd", "python", "path", "conda"):
        changes = {field: f"/{text}", "setup": ": conda"}
    elif field == "tool":
        changes = {field: f"/{text}/{launcher}"}
    else:
        changes = {field: text}
    # Paths that were found are the node's word.
    facts = None if field in ("nsys", "tool") else [FACTS] * 2
    return list(build_plans(replace(job, env=env, **changes), facts))


def run(plan: NodePlan, folder: Path) -> None:
    """The shell of a plan, by a real bash: as `cockpit run` starts it, and as a person pastes it."""
    env = {"PATH": os.defpath, "HOME": str(folder), "TMPDIR": str(folder), "COCKPIT_DIR": str(folder)}
    for name, text in plan.files.items():
        (folder / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    for wrapped in (True, False):
        script = launch_script(plan, wrapped).encode("utf-8", "surrogateescape")
        (folder / "launch.sh").write_bytes(script)
        command = ["bash", str(folder / "launch.sh")]
        subprocess.run(command, env=env, cwd=folder, capture_output=True, check=False, timeout=PATIENCE_S)
    (folder / "secrets").write_text("")
    for secrets, show in ((None, False), (str(folder / "secrets"), False), (None, True)):
        text = paste_script(plan, secrets, show)
        command = ["bash", "--norc", "-i"] if show else ["bash"]
        data = text.encode("utf-8", "surrogateescape")
        subprocess.run(
            command, input=data, env=env, cwd=folder, capture_output=True, check=False, timeout=PATIENCE_S
        )


def no_canary(make: Any, launcher: str, field: str, poison: Poison, *, builtin: bool = False) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        canary = folder / "canary"
        try:
            plans = make(launcher, field, poisoned(poison, f": >{canary}" if builtin else f"touch {canary}"))
        except CockpitError as error:
            every = error.errors if isinstance(error, ManyErrors) else (error,)
            assert make is as_person or {each.where for each in every} <= {"gpu01", ""}
            return
        run(plans[1], folder)
        assert not canary.exists(), (field, launch_script(plans[1]))


LAUNCHERS = ("deepspeed", "torchrun", "accelerate", "command")


@pytest.mark.few(1)
@pytest.mark.parametrize("launcher", LAUNCHERS)
@settings(max_examples=30)
@given(field=st.sampled_from(NODE_FIELDS), poison=HOSTILE, builtin=st.booleans())
def test_no_answer_of_a_node_is_run(launcher: str, field: str, poison: Poison, builtin: bool) -> None:
    no_canary(as_node, launcher, field, poison, builtin=builtin)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
@settings(max_examples=30)
@given(field=st.sampled_from(JOB_FIELDS), poison=HOSTILE, builtin=st.booleans())
def test_nothing_that_a_person_writes_is_run(
    launcher: str, field: str, poison: Poison, builtin: bool
) -> None:
    no_canary(as_person, launcher, field, poison, builtin=builtin)


@pytest.mark.few(20)
@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("around", AROUND, ids=ascii)
def test_each_way_to_smuggle_a_command(launcher: str, around: tuple[str, str]) -> None:
    tool = "python" if launcher == "command" else f"{launcher}_tool"
    for field in ("address", "port", tool):
        no_canary(as_node, launcher, field, ("", around, ""))


def test_a_plan_cannot_hold_what_is_no_address_and_no_port() -> None:
    [plan, _] = build_plans(LaunchJob("r", HOSTS, ("x",), "/", "command"), [FACTS] * 2)
    wrong: dict[str, list[Any]] = {
        "master_addr": ["", "a b", "$(x)", "-x", "a\n", None, 5],
        "master_port": ["29500", True, 0, 65536, 1.0, None],
        "node": ["-x", "a b", "a\n", "../x", ""],
        "ranks": [("0",), (True,)],
        "index": ["0", None],
        "env": [{"A;x": "1"}, {"": ""}, {"A\n": ""}],
        "secrets": [{"$(x)": "1"}],
    }
    for field, values in wrong.items():
        for value in values:
            with pytest.raises(CockpitError, match="bad "):
                replace(plan, **{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("python", "python"),
        ("python", "/a\nb"),
        ("python", f"/{DIR}"),
        ("deepspeed_tool", 5),
        ("torchrun_tool", ["/x"]),
        ("numactl", "/a\0b"),
        ("profiler", "nsys"),
        ("deepspeed", "1\n2"),
        ("torch", "$(x)"),
        ("no_ssh", "yes"),
        ("cores", ["0; x"]),
        ("cores", 7),
        ("cores", [0, None]),
        ("cores", [10**400]),
        ("free_bytes", "much"),
        ("free_bytes", -1),
        ("script", 1),
        ("python", "/x" * 4000),
    ],
)
def test_facts_that_cannot_be_true_name_their_node(field: str, value: Any) -> None:
    with pytest.raises(CockpitError, match=f"^gpu07: cannot be true: .*{field.split('_')[0]}") as caught:
        taken("gpu07", {field: value})
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


@given(st.text() | BYTES)
def test_every_name_of_a_hostfile_is_one_word(text: str) -> None:
    try:
        hosts = hostfile.parse(text + " slots=1")
    except CockpitError:
        return
    for host in hosts:
        assert not set(host.name) & set(" \t\n\"'`$\\;&|<>(){}*?!~#")
        assert host.name[0] not in "-."
