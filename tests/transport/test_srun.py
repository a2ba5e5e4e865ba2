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
from tests.waiting import soon

# As SLURM 22.05.8 writes them.
EXPIRED = "srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 1"
ELSEWHERE = "srun: error: Unable to create step for job 2: Requested node configuration is not available"
DENIED = "srun: error: Unable to create step for job 4: Access/permission denied"


@pytest.fixture(autouse=True)
def usual_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No controller is asked: where there is none, scontrol waits 10 s for it."""
    monkeypatch.setattr(slurm, "setting", lambda name, usual, now=False: usual)


@pytest.mark.parametrize(
    ("said", "what"),
    [(EXPIRED, "has ended"), (ELSEWHERE, "is not a node of"), (DENIED, "belongs to another user")],
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


def test_options_of_the_user_s_own_come_before_the_command() -> None:
    options = {"job": "7", "args": "--container-image '/img/a b.sqsh' --container-mount-home"}
    mine = ["--container-image", "/img/a b.sqsh", "--container-mount-home"]
    assert list(srun.typed(options, "gpu01"))[-3:] == mine
    words = list(srun.holding(options, {"gpu01": "/x"}).words)
    at = words.index("/bin/sh")
    assert words[at - 3 : at] == mine


@pytest.mark.parametrize("args", ["hostname", "--a 'b", "hostname --overlap"])
def test_words_that_are_no_options_are_refused(args: str) -> None:
    with pytest.raises(CockpitError) as refused:
        srun.typed({"job": "7", "args": args}, "gpu01")
    assert refused.value.where == "--srun-args"


@pytest.mark.parametrize("node", ["user@gpu01", "gpu01:2222", "[::1]"])
def test_only_plain_names_are_nodes(node: str) -> None:
    with pytest.raises(LinkError, match="plain name"):
        asyncio.run(srun.SrunWays({"job": "1"}).to(node))


def test_this_machine_needs_no_step_where_its_srun_is_asked() -> None:
    ways = srun.SrunWays({"job": "1", "here": "login"})
    assert asyncio.run(ways.to("login")).kind == "local"
    assert asyncio.run(ways.to("gpu01")).kind == "srun"


def test_the_batch_script_s_own_step_does_not_shape_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_NTASKS", "64")
    monkeypatch.setenv("SRUN_EXPORT_ENV", "NONE")
    monkeypatch.setenv("COCKPIT_RUN", "another")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/other.conf")
    kept = slurm.environment()
    assert kept["SLURM_CONF"] == "/etc/slurm/other.conf"
    assert not {"SLURM_NTASKS", "SRUN_EXPORT_ENV", "COCKPIT_RUN"} & set(kept)


@pytest.mark.parametrize(("job", "known"), [("12", True), ("13", False)])
def test_ranks_know_which_element_of_an_array_they_are(
    monkeypatch: pytest.MonkeyPatch, job: str, known: bool
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    monkeypatch.setenv("PATH", "/none")
    held = srun.holding({"job": job}, {"gpu01": "/x"})
    assert (held.env.get("SLURM_ARRAY_TASK_ID") == "3") == known


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


def shares(monkeypatch: pytest.MonkeyPatch, steps: int) -> srun.Share:
    """The share of a cluster on which a job has so many steps."""
    monkeypatch.setattr(slurm, "setting", lambda name, usual, *, now: steps)
    return srun.Share("7")


def test_a_cockpit_takes_half_of_a_job_s_steps_and_says_so_before(monkeypatch: pytest.MonkeyPatch) -> None:
    share = shares(monkeypatch, 20)
    said = [share.take("gpu01") for _ in range(10)]
    told = "this cockpit has taken 8 of its 10 steps of SLURM job 7: connections are lost too often"
    assert [remark for remark in said if remark] == [told]
    with pytest.raises(LinkError, match=r"its 10 steps of SLURM job 7.* run: cockpit attach last") as caught:
        share.take("gpu01")
    assert caught.value.retry, "the node is stale, not gone"
    assert share.taken == 10


def test_steps_are_counted_for_as_long_as_the_cockpit_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "srun").write_text("#!/bin/sh\nexec /bin/cat\n")
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setattr(srun, "_shares", {})

    async def main() -> None:
        for _ in range(2):
            transport = await srun.SrunWays({"job": "7"}).to("gpu01")
            await transport.open("true")
            await transport.close()

    asyncio.run(main())
    srun.holding({"job": "7"}, {"gpu01": "/x", "gpu02": "/x"})
    assert srun.share_of("7").taken == 3
    assert srun.share_of("8").taken == 0


def test_few_steps_are_being_created_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is created once it says anything, or has ended."""
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "srun").write_text("#!/bin/sh\nread line && echo begun && exec /bin/cat\n")
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setattr(srun, "CREATION_S", 3600.0)

    async def main() -> None:
        ways = srun.SrunWays({"job": "7"})
        transports = [await ways.to(f"gpu{number}") for number in range(srun.AT_ONCE + 3)]
        opening = [asyncio.create_task(transport.open("true")) for transport in transports]
        await soon(lambda: sum(task.done() for task in opening) == srun.AT_ONCE)
        first, second, *_ = (task.result() for task in opening[: srun.AT_ONCE])
        await first.write(b"\n")
        assert await first.read(100) == b"begun\n"
        await soon(lambda: sum(task.done() for task in opening) == srun.AT_ONCE + 1)
        await second.close()
        await soon(lambda: sum(task.done() for task in opening) == srun.AT_ONCE + 2)
        opening[-1].cancel()
        await asyncio.gather(*(transport.close() for transport in transports))

    asyncio.run(main())
