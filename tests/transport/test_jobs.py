"""Which SLURM job holds a node that nobody can log in to, and what is said if none does, or several do."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit import slurm
from cockpit.errors import CockpitError
from cockpit.transport import jobs
from cockpit.transport.adopt import barred
from cockpit.transport.base import NotBySsh

# As SLURM 22.05.8 prints it; the last one is an array's element, the two before it a heterogeneous job.
SQUEUE = "7 7 gpu[01-03,09]\n8 8 gpu03,big1\n20 20+0 het1\n21 20+1 het2\n33 30_3 arr1\n"


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Calls of squeue; this shell is in no job."""
    calls: list[object] = []

    def ask(words: object) -> slurm.Answer:
        calls.append(words)
        return slurm.Answer(0, SQUEUE, "")

    monkeypatch.setattr(slurm, "ask", ask)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return calls


def holding(*nodes: str) -> list[str]:
    """The job of each node, or what is said about it."""

    async def main() -> list[str]:
        mine = jobs.Jobs()

        async def one(node: str) -> str:
            try:
                return await mine.holding(node, NotBySsh("no sshd", where=node, hint="start it"))
            except NotBySsh as error:
                return str(error)

        return list(await asyncio.gather(*map(one, nodes)))

    return asyncio.run(main())


def test_the_one_job_that_holds_a_node_is_taken(asked: list[object]) -> None:
    assert holding("gpu01", "gpu09", "big1", "arr1") == ["7", "7", "8", "33"]
    assert len(asked) == 1, "once for all nodes"


def test_none_several_and_heterogeneous_ones_are_said() -> None:
    none, several, parts = holding("gpu05", "gpu03", "het2")
    assert none == "gpu05: no sshd; start it"
    assert several == "gpu03: no sshd; your SLURM jobs 7, 8 hold it; say which one: --slurm 7"
    assert "SLURM job 20+1 holds it: heterogeneous jobs are not supported" in parts


def test_inside_of_a_job_its_nodes_are_known(monkeypatch: pytest.MonkeyPatch, asked: list[object]) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "gpu03,big1")
    assert holding("gpu03") == ["8"]
    assert not asked
    assert holding("gpu01") == ["7"]
    monkeypatch.setenv("SLURM_HET_SIZE", "2")
    assert "your SLURM jobs 7, 8 hold it" in holding("gpu03")[0]


def test_without_slurm_it_is_a_matter_of_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(words: object) -> slurm.Answer:
        raise CockpitError("no squeue on PATH: SLURM is not here")

    monkeypatch.setattr(slurm, "ask", ask)
    assert holding("gpu01") == ["gpu01: no sshd; start it"]


@given(st.text(alphabet="node[]-,0123456789 +_\n(null)", max_size=80))
def test_any_answer_is_jobs_or_none(text: str) -> None:
    assert all(job for found in jobs.held(text).values() for job in found)


@pytest.mark.parametrize(
    "said",
    [
        "Access denied by pam_slurm_adopt: you have no active jobs on this node\n\0",
        "Welcome\nAccess denied: user ann (uid=1000) has no active jobs on this node.\n",
    ],
)
def test_slurm_s_words_at_the_door(said: str) -> None:
    error = barred(said, "gpu01")
    assert error is not None
    assert error.what.endswith("no active jobs on this node")
    assert not error.retry


def test_other_words_at_the_door_are_not_slurm_s() -> None:
    assert barred("Authorized uses only. Access denied by order of the admin.", "gpu01") is None
