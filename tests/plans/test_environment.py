"""Which variables are sent."""

from __future__ import annotations

import pytest

from cockpit.base.secret import is_secret
from cockpit.errors import ManyErrors
from cockpit.plans import environment
from cockpit.plans.environment import gather


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
    ],
)
def test_secrets_are_told_by_name(name: str, secret: bool) -> None:
    assert is_secret(name) is secret
    env = gather({}, [], [f"{name}=hush"])
    assert (name in env.secrets) is secret
    assert "hush" not in repr(env)


def test_where_deepspeed_env_is_looked_for() -> None:
    assert environment.deepspeed_env_paths({}, "/h", "/c") == ("/h/.deepspeed_env", "/c/.deepspeed_env")
    assert environment.deepspeed_env_paths({"DS_ENV_FILE": "/e"}, "/h", "/c") == ("/e",)
