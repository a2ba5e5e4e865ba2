"""Steps of a SLURM job as a transport: which words are typed, and what srun's own words mean."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from cockpit import slurm
from cockpit.errors import CockpitError
from cockpit.transport import srun
from cockpit.transport.base import LinkError, Reclaimed

# As SLURM 22.05.8 writes them.
EXPIRED = "srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 1"
ELSEWHERE = "srun: error: Unable to create step for job 2: Requested node configuration is not available"
DENIED = "srun: error: Unable to create step for job 4: Access/permission denied"


@pytest.mark.parametrize(
    ("said", "what"),
    [(EXPIRED, "has ended"), (ELSEWHERE, "is not a node of"), (DENIED, "belongs to somebody else")],
)
def test_what_srun_says_becomes_one_line(said: str, what: str) -> None:
    error = srun.refusal(said, "gpu01", "7")
    assert error is not None
    assert what in error.what
    assert "7" in error.what
    assert not error.retry
    assert isinstance(error, Reclaimed) == (said == EXPIRED)


def test_its_other_words_say_nothing_about_the_connection() -> None:
    assert srun.refusal("srun: error: gpu01: task 0: Terminated", "gpu01", "7") is None


@pytest.mark.parametrize("job", ["", "x", "1;rm", "-1", "1 2", "1_2", "_"])
def test_a_job_that_is_none_never_becomes_a_word(job: str) -> None:
    with pytest.raises(CockpitError):
        srun.typed({"job": job}, "gpu01")


@pytest.mark.parametrize("node", ["user@gpu01", "gpu01:2222", "[::1]"])
def test_only_plain_names_are_nodes(node: str) -> None:
    with pytest.raises(LinkError, match="plain name"):
        asyncio.run(srun.SrunWays({"job": "1"}).to(node))


def test_the_batch_script_s_own_step_does_not_shape_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_NTASKS", "64")
    monkeypatch.setenv("SRUN_EXPORT_ENV", "NONE")
    monkeypatch.setenv("COCKPIT_RUN", "another")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/other.conf")
    kept = slurm.environment()
    assert kept["SLURM_CONF"] == "/etc/slurm/other.conf"
    assert not {"SLURM_NTASKS", "SRUN_EXPORT_ENV", "COCKPIT_RUN"} & set(kept)


def test_each_node_runs_its_own_script_whatever_its_path_is(tmp_path: Path) -> None:
    odd = tmp_path / "it's $HOME; `x`"
    odd.mkdir()
    for name in ("a", "b"):
        (odd / name).write_text(f"echo script of {name}\n")
    command = srun.holding({"job": "1"}, {name: str(odd / name) for name in ("a", "b")})
    assert "--nodelist=a,b" in command.words
    assert "--kill-on-bad-exit=0" in command.words
    at = command.words.index("/bin/sh")
    for name in ("a", "b"):
        env = {**os.environ, "SLURMD_NODENAME": name}
        done = subprocess.run(command.words[at:], env=env, capture_output=True, text=True, check=True)
        assert done.stdout == f"script of {name}\n"
