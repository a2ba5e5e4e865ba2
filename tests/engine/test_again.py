"""A run once more: the command as it was typed, and what was not kept."""

from __future__ import annotations

from typing import Any

import pytest

from cockpit.engine.launch.relaunch import AGAIN, again
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.errors import CockpitError


def manifest(*command: str, env: dict[str, str] | None = None, **more: Any) -> Manifest:
    node = NodeEntry("gpu01", "/none", [0], "local")
    plans = [] if env is None else [{"node": "gpu01", "env": env}]
    return Manifest(
        "otter", 1000.0, [node], "torchrun", ["train.py"], "/job", command=command, plans=plans, **more
    )


def test_it_gets_a_name_of_its_own() -> None:
    for name in (["--name", "x"], ["--name=x"]):
        found = again(manifest("cockpit", "run", "hosts", *name, "--", "train.py", "--name", "y"), {})
        assert found.words == ("run", "hosts", "--", "train.py", "--name", "y"), "the program's own stays"


def test_secrets_that_this_shell_lacks_are_named() -> None:
    command = (
        "cockpit",
        "run",
        "hosts",
        "--env",
        "HF_TOKEN",
        "--env=WANDB_API_KEY",
        "--env",
        "A=1",
        "--",
        "t.py",
    )
    found = again(manifest(*command), {"WANDB_API_KEY": "there"})
    assert found.secrets == ("HF_TOKEN",)
    assert "HF_TOKEN" in found.notes[0]


def test_variables_that_ranks_had_from_that_shell_are_set_as_they_were() -> None:
    env = {"NCCL_DEBUG": "INFO", "NCCL_IB_HCA": "mlx5", "PYTHONPATH": "/x", "MASTER_PORT": "1"}
    environ = {"NCCL_DEBUG": "WARN", "NCCL_IB_HCA": "mlx5", "UCX_TLS": "rc", "HOME": "/root"}
    found = again(manifest("cockpit", "run", "hosts", "--", "t.py", env=env), environ)
    assert found.env == {"NCCL_DEBUG": "INFO", "PYTHONPATH": "/x", AGAIN: "otter"}
    text = "\n".join(found.notes)
    assert "NCCL_DEBUG is 'WARN' in this shell: using 'INFO' from the original run" in text
    assert "PYTHONPATH is not set in this shell" in text
    assert "new in this shell, passed to the ranks: UCX_TLS" in text
    assert "MASTER_PORT" not in text


@pytest.mark.parametrize(
    ("command", "more", "why"),
    [
        (("cockpit", "attach", "hosts"), {}, "not known here"),
        ((), {}, "not known here"),
        (("cockpit", "run", "-", "--", "t.py"), {}, "over stdin"),
        (("cockpit", "run", "hosts", "--", "t.py", "--api-key", "(secret)"), {}, "--api-key (secret)"),
        (
            ("cockpit", "run", "hosts", "--", "t.py"),
            {"transport": "closed", "transport_options": {"closed": "others may write it"}},
            "others may write it",
        ),
    ],
)
def test_what_cannot_be_started_so_says_why(command: tuple[str, ...], more: Any, why: str) -> None:
    with pytest.raises(CockpitError) as caught:
        again(manifest(*command, **more), {})
    assert why in str(caught.value)
