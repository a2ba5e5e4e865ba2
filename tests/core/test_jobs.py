"""Jobs out of what nodes tell: who belongs together, who is missing, and nonsense."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

from cockpit.base.answers import SeekAnswer
from cockpit.base.gate import Malformed, read
from cockpit.core.run import jobs as finding
from cockpit.core.run.jobs import Job, Jobs, choose, missing_text, was_on, within
from cockpit.core.time_text import clock
from cockpit.errors import CockpitError, Exit

NOON = time.mktime((2026, 11, 21, 12, 0, 0, 0, 0, -1))


@pytest.fixture(autouse=True)
def noon(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is noon: the day of what began then is not said."""
    monkeypatch.setattr(finding, "clock", lambda at, _, shape: clock(at, NOON, shape))


def told(rank: int, **facts: Any) -> dict[str, Any]:
    """A rank as a node tells it; ``job__addr`` stands for the address within the job."""
    job = {"addr": "node1", "port": "29500", "id": ""}
    job.update({name[5:]: facts.pop(name) for name in list(facts) if name.startswith("job__")})
    return {
        "rank": rank,
        "local_rank": rank % 2,
        "world_size": 4,
        "attempt": 0,
        "pid": 100 + rank,
        "ticks": 7,
        "state": "S",
        "job": job,
        "launcher": "deepspeed",
        "run": "",
        "node": "",
        "user": "ada",
        "python": "/usr/bin/python3",
        "started": NOON + rank,
        "command": "python train.py",
        "container": False,
        "ns_pid": 1,
        **facts,
    }


def said(*ranks: dict[str, Any], **facts: Any) -> dict[str, Any]:
    return {"ranks": list(ranks), "others": [], **facts}


def group(answers: dict[str, dict[str, Any]]) -> Jobs:
    """The jobs of these answers, as they pass the gate."""
    return finding.group({node: read(SeekAnswer, answer) for node, answer in answers.items()})


def only(**answers: dict[str, Any]) -> Job:
    (job,) = group(answers)
    return job


def test_ranks_of_several_nodes_are_one_job() -> None:
    job = only(node1=said(told(0), told(1)), node2=said(told(3), told(2)))
    assert job.title == "deepspeed job at node1:29500, 4 ranks on 2 nodes, since 12:00"
    assert {rank: (found.node, found.pid) for rank, found in job.ranks.items()} == {
        0: ("node1", 100),
        1: ("node1", 101),
        2: ("node2", 102),
        3: ("node2", 103),
    }
    assert (job.world, job.missing, job.problems, job.nodes) == (4, 0, [], ["node1", "node2"])


def test_missing_ranks_are_named() -> None:
    job = only(node1=said(told(0), told(1)))
    assert job.missing == 0b1100
    assert "2 of 4 ranks on 1 node" in job.title
    assert missing_text(job) == "ranks 2-3 were not found on node1"
    assert missing_text(job) in job.problems


@pytest.mark.parametrize(
    ("other", "jobs"),
    [
        ({"job__port": "29501"}, 2),
        ({"job__addr": "node9"}, 2),
        ({"world_size": 8}, 2),
        ({"user": "bob"}, 2),
        ({"job__id": "17.2"}, 1),  # one srun a node: each has its own step
        ({"run": "r1"}, 2),
    ],
)
def test_what_tells_jobs_apart(other: dict[str, Any], jobs: int) -> None:
    assert len(group({"node1": said(told(0)), "node2": said(told(1, **other))})) == jobs


def test_an_address_of_each_machine_says_nothing_of_another_one() -> None:
    local = {"job__addr": "127.0.0.1", "world_size": 1}
    answers = {"node1": said(told(0, **local)), "node2": said(told(0, **local))}
    assert len(group(answers)) == 2
    # Whether one node is asked or all, a job has the same key.
    assert {job.key for job in group(answers)} == {
        only(**{node: answer}).key for node, answer in answers.items()
    }


def test_jobs_without_an_address() -> None:
    named = {"job__addr": "", "job__port": "", "launcher": "slurm"}
    job = only(node1=said(told(0, job__id="17.0", **named)), node2=said(told(1, job__id="17.0", **named)))
    assert job.title.startswith("slurm job 17.0, 2 of 4 ranks")
    jobs = group(
        {"node1": said(told(0, job__id="17.0", **named)), "node2": said(told(1, job__id="18.0", **named))}
    )
    assert len(jobs) == 2
    hydra = {**named, "launcher": "mpi"}
    assert len(only(node1=said(told(0, **hydra)), node2=said(told(1, **hydra))).ranks) == 2


@pytest.mark.parametrize("launcher", ["slurm", "mpi"])
def test_what_numbers_its_processes_tells_jobs_with_one_address_apart(launcher: str) -> None:
    steps = [
        told(rank, job__id=f"17.{step}", launcher=launcher, pid=10 * step + rank)
        for step in (0, 1)
        for rank in (0, 1)
    ]
    jobs = group({"node1": said(steps[0], steps[2]), "node2": said(steps[1], steps[3])})
    assert [sorted(job.ranks) for job in jobs] == [[0, 1], [0, 1]]
    assert [job.title.split(",")[0] for job in jobs] == [f"{launcher} job 17.0", f"{launcher} job 17.1"]
    assert not any("twice" in problem for job in jobs for problem in job.problems)


def inferred(rank: int, how: str = "order", **facts: Any) -> dict[str, Any]:
    return told(rank, inferred=how, launcher="mp.spawn", **{"world_size": 2, **facts})


def test_inferred_ranks_say_so() -> None:
    job = only(node1=said(inferred(0), inferred(1)))
    assert job.title == "mp.spawn job at node1:29500, 2 inferred ranks on 1 node, since 12:00"
    assert job.problems == ["~ ranks 0-1 are inferred: in the order in which they were started"]
    assert {found.inferred for found in job.ranks.values()} == {"order"}
    # One that a newer node knows of.
    assert only(node1=said(inferred(0, "stars"))).problems[0] == "~ rank 0 is inferred: by what surrounds it"
    for nonsense in ("x" * 101, "\x1b[31m", "\u202e", 7, None):
        with pytest.raises(Malformed):
            group({"node1": said({**inferred(0), "inferred": nonsense})})


def test_ranks_that_are_not_known_are_numbered_over_all_nodes() -> None:
    for how in ("pid", "order"):
        ranks = [inferred(0, how, pid=7), inferred(1, how, pid=8)]
        job = only(node2=said(*ranks), node1=said(*ranks))
        assert {rank: (found.node, found.pid) for rank, found in job.ranks.items()} == {
            0: ("node2", 7),
            1: ("node2", 8),
            2: ("node1", 7),
            3: ("node1", 8),
        }
        assert "4 processes on 2 nodes" in job.title
        (problem,) = job.problems
        assert problem.startswith("~ 4 Python processes of one job; their ranks are unknown")


def test_inferred_ranks_of_several_nodes_whose_order_is_known() -> None:
    second = [inferred(rank, "node_order", world_size=None) for rank in (2, 3)]
    job = only(node1=said(*(inferred(rank, "node_order") for rank in (0, 1))), node2=said(*second))
    assert {rank: found.node for rank, found in job.ranks.items()} == {
        **{0: "node1", 1: "node1"},
        **{2: "node2", 3: "node2"},
    }


def test_loopback_in_two_containers_of_one_machine_is_two_jobs() -> None:
    ranks = [told(0, job__addr="localhost", pid=pid, net=f"net:[{pid}]") for pid in (5, 6)]
    assert len(group({"node1": said(*ranks)})) == 2
    assert len(group({"node1": said(*(told(0, pid=pid, net=f"net:[{pid}]") for pid in (5, 6)))})) == 1


def test_a_launcher_with_neither_address_nor_name_is_told_by_its_process() -> None:
    named = {"job__addr": "localhost", "job__port": "", "launcher": "torchrun", "job__id": "pid 9"}
    jobs = group({"node1": said(told(0, **named)), "node2": said(told(0, **named))})
    assert [job.title for job in jobs] == ["torchrun job pid 9, 1 of 4 ranks on 1 node, since 12:00"] * 2


def test_the_ranks_of_a_run_are_one_job_and_its_largest_size_counts() -> None:
    job = only(node1=said(told(0, run="r1"), told(1, run="r1", world_size=2, job__port="1")))
    assert job.title.startswith("run r1, deepspeed job at node1:29500, 2 of 4 ranks")
    assert job.problems[0] == "its ranks disagree on the world size: 2 (rank 1); 4 (rank 0)"


def test_of_two_processes_for_one_rank_the_newer_attempt_then_the_newer_one_counts() -> None:
    old, new = told(0, pid=1, started=NOON), told(0, pid=2, started=NOON + 60)
    job = only(node1=said(old), node2=said(new))
    assert (job.ranks[0].pid, job.ranks[0].node) == (2, "node2")
    assert job.problems[0] == (
        "two processes claim rank 0: using process 2 on node2, ignoring process 1 on node1"
    )
    assert only(node1=said({**old, "attempt": 1}, new)).ranks[0].pid == 1


def test_two_names_of_one_machine_show_each_process_once() -> None:
    answer = said(told(0), told(1), machine="m1")
    assert only(a=answer, b=answer).nodes == ["a"]
    assert only(a=answer, b=answer).problems == ["ranks 2-3 were not found on a"]
    # The same numbers on another machine are other processes.
    assert "two processes claim rank 0" in only(a=answer, b={**answer, "machine": "m2"}).problems[0]


def test_without_a_size_the_highest_rank_says_it() -> None:
    assert only(a=said(told(5, world_size=None))).world == 6


def test_a_rank_beyond_the_size_and_one_without_python_are_problems() -> None:
    job = only(a=said(told(0, world_size=1), told(3, world_size=1, python="")))
    assert job.problems == ["rank 3 cannot exist: it has 1 rank", "no Python below the wrapper of rank 3 yet"]


def test_a_process_that_cannot_be_looked_at_may_be_the_missing_rank() -> None:
    stuck = [{"pid": 77, "name": "python", "state": "D"}]
    assert "process 77 (python, state D) on a" in only(a=said(told(0), stuck=stuck)).problems[-1]
    assert only(a=said(told(0, world_size=1), stuck=stuck)).problems == []


def test_ranks_that_are_much_older_than_the_others_may_be_another_job() -> None:
    new = [told(rank, started=NOON + 3600) for rank in (0, 1)]
    job = only(a=said(*new), b=said(told(2, started=NOON), told(3, started=NOON + 60)))
    assert job.problems == ["ranks 2-3 were started 59 min before the others: left over from an earlier job?"]
    assert only(a=said(*new), b=said(*(told(rank, started=NOON + 3001) for rank in (2, 3)))).problems == []


def test_newest_first_then_largest() -> None:
    jobs = group(
        {
            "a": said(
                told(0, pid=1, started=NOON, job__port="1"),
                told(0, pid=2, started=NOON + 601, job__port="2"),
                told(0, pid=3, started=NOON + 600, job__port="3"),
                told(1, started=NOON + 600, job__port="3"),
            )
        }
    )
    assert [job.address[-1] for job in jobs] == ["3", "2", "1"]


def test_choosing() -> None:
    jobs = group({"a": said(told(0), told(0, pid=9, job__port="29501", user="bob", started=NOON - 3600))})
    assert choose(jobs, "2").user == "bob"
    assert choose(jobs, "node1:29500").user == "ada"
    assert choose(jobs[:1], "").user == "ada"
    for wanted, said_so in (
        ("", "2 jobs are running there"),
        ("3", "no job '3'"),
        ("0", "no job '0'"),
        ("rank", "2 jobs have 'rank' in their title"),
    ):
        with pytest.raises(CockpitError) as caught:
            choose(jobs, wanted)
        assert said_so in str(caught.value)
        assert (
            "\n  --job 2  deepspeed job at node1:29501, 1 of 4 ranks on 1 node, since 11:00, of bob"
            in str(caught.value)
        )


def test_no_job_says_what_was_looked_for_or_whose_there_are() -> None:
    with pytest.raises(CockpitError, match=r"no job on node\[1-2\]: .*RANK and WORLD_SIZE") as caught:
        choose(group({"node1": said(), "node2": said()}), "")
    assert caught.value.code == Exit.NODE_UNFIT
    other = {"user": "bob", "pid": 5, "count": 9, "command": "torchrun x.py \x1b[2J"}
    with pytest.raises(CockpitError, match="no job of yours on node1, but of bob") as caught:
        choose(group({"node1": {"ranks": [], "others": [other]}}), "")
    assert "process 5 on node1: torchrun x.py \\x1b[2J" in str(caught.value)
    assert "only bob or root" in str(caught.value)
    alone = {**other, "count": 1, "command": "python3 x.py"}
    with pytest.raises(
        CockpitError, match="no job of yours on node1; bob runs a Python program there"
    ) as caught:
        choose(group({"node1": {"ranks": [], "pythons": [alone]}}), "")
    assert "(process 5 on node1: python3 x.py); only bob or root may inspect it" in str(caught.value)
    assert caught.value.code == Exit.NODE_UNFIT
    with pytest.raises(CockpitError, match="no job of yours on node1, but of bob"):
        choose(group({"node1": {"ranks": [], "others": [other], "pythons": [alone]}}), "")
    with pytest.raises(CockpitError, match="only root may inspect"):
        choose(group({"node1": {"ranks": [], "others": [{**other, "user": "root"}]}}), "")


def test_what_nodes_send_is_harmless_in_a_title() -> None:
    job = only(a=said(told(0, job__addr="\x1b[31mred\n", launcher="x" * 900)))
    assert "\x1b" not in job.title
    assert "\n" not in job.title
    assert len(job.title) < 600


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"ranks": 3},
        {"ranks": [None]},
        {"ranks": [{}]},
        said(told(-1)),
        said({**told(0), "rank": "0"}),
        said(told(1 << 40)),
        said(told(0, world_size=1 << 40)),
        said(told(0, pid=None)),
        said(told(0, started=math.nan)),
        said(told(0, started=math.inf)),
        said(told(0, user=["x"])),
        said(told(0, job=None)),
        said(told(0, attempt="1")),
        said(others=[{"user": "x"}]),
        said(others=5),
        said(stuck=["x"]),
        said(machine=3),
        said(*(told(0) for _ in range(5000))),
        said(told(True)),
        said({**told(0), "rank": 10**400}),
        said(told(0, started=10**400)),
    ],
)
def test_nonsense_does_not_pass_the_gate(answer: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        read(SeekAnswer, answer)


def test_ranks_of_one_step_of_a_job() -> None:
    steps = ("12.0", "12.3", "123.3", "", "12.", "9.")
    told_ones = (told(rank, pid=rank + 1, step=step) for rank, step in enumerate(steps))
    found = read(SeekAnswer, said(*told_ones))

    def ranks(step: str) -> list[int]:
        return [rank.rank for rank in within(found, step).ranks]

    assert ranks("12.3") == [1]
    assert ranks("12.") == [0, 1, 3, 4], "what says nothing of a job may be of this one"
    assert ranks("") == [0, 1, 2, 3, 4, 5]


def test_a_process_or_words_say_which_job() -> None:
    one = told(0, above=[50, 40], started_by="torchrun --standalone train.py")
    other = told(0, job__port="29501", pid=200, above=[60], command="python other.py")
    jobs = group({"node1": said(one, other)})
    for choice in ({"pid": 100}, {"pid": 40}, {"match": "stand.lone"}, {"match": "train"}):
        assert choose(jobs, **choice).ranks[0].pid == 100
    assert choose(jobs, match="other").ranks[0].pid == 200
    with pytest.raises(CockpitError, match=r"(?s)process 7 is neither a rank.*--job 2") as refused:
        choose(jobs, pid=7)
    assert refused.value.code == Exit.NODE_UNFIT
    with pytest.raises(CockpitError, match="no rank or launcher has 'nope'"):
        choose(jobs, match="nope")
    with pytest.raises(CockpitError, match=r"--match \(: missing \)"):
        choose(jobs, match="(")
    with pytest.raises(CockpitError, match="2 jobs are running there"):
        choose(jobs, match="python")


def test_on_which_node_a_missing_rank_was_is_proven_by_its_neighbours() -> None:
    here = {"local_size": 2, "world_size": 4}
    job = only(node1=said(told(0, **here)), node2=said(told(2, **here), told(3, **here)))
    assert (was_on(job, 1), was_on(job, 7)) == ("node1", "")
    # Without the variable it may be on a node that was not asked.
    job = only(node1=said(told(0)), node2=said(told(2), told(3)))
    assert was_on(job, 1) == ""
    # Two nodes that both say so are believed neither.
    job = only(node1=said(told(0, local_size=4)), node2=said(told(2, local_rank=0, local_size=4)))
    assert (was_on(job, 1), was_on(job, 3)) == ("node1", "")


def test_why_a_program_is_none_is_harmless_text() -> None:
    jobs = group({"a": said(why="\x1b[2J\u202eno\n" + "x" * 3000)})
    with pytest.raises(CockpitError) as caught:
        choose(jobs, pid=7)
    assert caught.value.what.isprintable()
    assert len(caught.value.what) < 1000
