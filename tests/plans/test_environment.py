"""Which variables are sent."""

from __future__ import annotations

import subprocess

import pytest

from cockpit.base.secret import is_secret
from cockpit.base.shell import quote
from cockpit.errors import ManyErrors
from cockpit.plans import environment
from cockpit.plans.environment import expandable, gather


def test_later_wins_and_only_the_prefixes_are_taken() -> None:
    shell = {
        "NCCL_DEBUG": "INFO",
        "PYTHONPATH": "/a b",
        "HOME": "/h",
        "UCX_X": "1",
        "COCKPIT_RUN": "x",
        "LANG": "C",
    }
    files = [("f1", '# c\n\nexport A=1=2\nUCX_X=2\nQ="x y"\n'), ("f2", "A = '3'\n")]
    env = gather(shell, files, ["LANG", "B=$HOME 'x'\n", "UCX_X=4"])
    assert env.values == {
        "PYTHONUNBUFFERED": "1",
        "NCCL_DEBUG": "INFO",
        "PYTHONPATH": "/a b",
        "UCX_X": "4",
        "A": "3",
        "Q": "x y",
        "LANG": "C",
        "B": "$HOME 'x'\n",
    }
    assert environment.not_sent(shell, env.values) == ["COCKPIT_RUN", "HOME"]


def test_own_choice_of_unbuffered_stays() -> None:
    assert gather({"PYTHONUNBUFFERED": ""}).values == {"PYTHONUNBUFFERED": ""}


def test_every_mistake_is_named() -> None:
    with pytest.raises(ManyErrors) as caught:
        gather({}, [("f", "A=1\nB\n1C=2\n")], ["NOPE", "COCKPIT_X=1", "UID=3", "A=\0", "x-y=1"])
    lines = str(caught.value).splitlines()
    assert [line.split(": ")[0] for line in lines] == ["f:2", "f:3", *["--env"] * 5]
    assert "NOPE is not set in this shell" in lines[2]


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True),
        ("WANDB_API_KEY", True),
        ("db_password", True),
        ("TOKENIZERS_PARALLELISM", False),
        ("GIT_AUTHOR_NAME", False),
        ("NCCL_DEBUG", False),
        ("SSHPASS", True),
        ("MASTER_PORT", False),
    ],
)
def test_secrets_are_told_by_name(name: str, secret: bool) -> None:
    assert is_secret(name) is secret
    env = gather({}, [], [f"{name}=hush"])
    assert (name in env.secrets) is secret
    assert "hush" not in repr(env)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("/opt/efa/lib:$LD_LIBRARY_PATH", "/opt/efa/lib:ours"),
        ("${A}b$A", "a bba b"),
        ("${NONE:-x y}/$NONE.", "x y/."),
        ('"$A"', "a b"),
        ("'$A'", "$A"),
        (r"\$A 5$ $5 \n", r"$A 5$ $5 \n"),
        ('say "hi" ${A', 'say "hi" ${A'),
    ],
)
def test_a_nodes_shell_expands_what_it_does_for_deepspeed(line: str, word: str) -> None:
    env = gather({}, deepspeed=[("f", f"X={line}")])
    (name,) = env.values.keys() - {"PYTHONUNBUFFERED"}
    shell = expandable(env.values[name]) if name in env.expanded else quote(env.values[name])
    done = subprocess.run(
        ["/bin/sh", "-uc", f'X={shell}; printf %s "$X"'],
        env={"A": "a b", "LD_LIBRARY_PATH": "ours"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == word


def test_nothing_else_is_expanded() -> None:
    text = "A=$HOME\nMY_TOKEN=a$b\nC=x\nD=${C}\n"
    assert gather({"NCCL_X": "$HOME"}, [("env file", text)], ["B=$HOME"]).expanded == ()
    assert gather({}, deepspeed=[("f", text)]).expanded == ("A", "D")
    assert gather({}, [("env file", "A=x")], ["D=x"], deepspeed=[("f", text)]).expanded == ()
    for value in ("$(id)", "a`id`"):
        with pytest.raises(ManyErrors, match=r"f:1: the value of A has a command, which is not run"):
            gather({}, deepspeed=[("f", f"A={value}")])
        assert gather({}, deepspeed=[("f", f"A='{value}'")]).values["A"] == value


def test_a_value_that_no_program_can_be_given() -> None:
    longest = "x" * ((128 << 10) - len("A=") - 1)
    assert gather({}, options=[f"A={longest}"]).values["A"] == longest
    with pytest.raises(ManyErrors, match=r"--env: A has 131,073 bytes, and Linux allows at most 131,072"):
        gather({}, options=[f"A={longest}x"])
    with pytest.raises(ManyErrors, match=r"f:2: MY_TOKEN has 131,0\d\d bytes"):
        gather({}, [("f", f"\nMY_TOKEN={longest}")])


def test_what_a_login_sets_by_itself_is_no_difference_between_nodes() -> None:
    shell = {"PATH": "/x", "LC_ALL": "C", "FOO": "1", "HF_HOME": "/y", "NCCL_X": "1", "SLURM_JOB_ID": "3"}
    assert environment.unlike_elsewhere(shell, {"NCCL_X": "1"}) == ["FOO", "HF_HOME"]


def test_where_deepspeed_env_is_looked_for() -> None:
    assert environment.deepspeed_env_paths({}, "/h", "/c") == ("/h/.deepspeed_env", "/c/.deepspeed_env")
    assert environment.deepspeed_env_paths({"DS_ENV_FILE": "/e"}, "/h", "/c") == ("/e",)


def test_a_variable_with_a_secret_in_its_value_is_one() -> None:
    env = gather({}, [], ["DATABASE_URL=postgres://u:hushed@h/x", "A=b", "ARGS=-x hushed"])
    assert env.secrets == {"DATABASE_URL", "ARGS"}


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, ""),
        ({"NCCL_DEBUG": "info"}, ""),
        ({"NCCL_DEBUG": "TRACE", "NCCL_DEBUG_SUBSYS": "ALL"}, ""),
        ({"NCCL_DEBUG": "WARN"}, "your NCCL_DEBUG=WARN is below INFO"),
        ({"NCCL_DEBUG_FILE": "/x.%p"}, "your NCCL_DEBUG_FILE"),
    ],
)
def test_nccl_says_what_it_takes_unless_the_user_wants_otherwise(environ: dict[str, str], said: str) -> None:
    env = environment.gather(environ)
    assert said in environment.nccl_kept(env)
    assert bool(said) is bool(environment.nccl_kept(env))
    values = environment.with_nccl(env).values
    assert values["NCCL_DEBUG"] == environ.get("NCCL_DEBUG", "INFO")
    assert values["NCCL_DEBUG_SUBSYS"] == environ.get("NCCL_DEBUG_SUBSYS", "INIT,BOOTSTRAP,NET,GRAPH,ENV")
