"""The finding about a run that failed: which rank did first, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from cockpit.base import events
from cockpit.core.finding import Finding, Step
from cockpit.core.logs.causes import cause
from cockpit.core.rules.table import table
from cockpit.core.run.events import Event
from cockpit.core.run.failure import failure, gone
from cockpit.core.run.first import LoggedEnd
from cockpit.core.run.model import Rank, RunModel
from cockpit.core.run.summary import summary
from cockpit.core.stacks.fate import End, Fate
from cockpit.core.stacks.verdict import verdict
from tests.core.test_verdict import ALL_REDUCE, snapshot, still

LOG = b"""step 3
Traceback (most recent call last):
  File "/work/train.py", line 188, in forward
    softmax(x)
  File "/work/attention.py", line 71, in softmax
    return x.exp()
RuntimeError: CUDA out of memory
"""


PEER = b"""Traceback (most recent call last):
  File "/work/train.py", line 9, in <module>
    dist.all_reduce(loss)
RuntimeError: [../gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.2]:4711
"""


def model(*facts: events.Fact) -> RunModel:
    """Rank 0 on a, rank 5 on b, after these facts about b."""
    made = RunModel()
    made.apply(Event(0.0, "", events.Planned({"a": (0,), "b": (5,)})))
    for at, fact in enumerate(facts):
        made.apply(Event(float(at), "b", fact))
    return made


def heard(log: bytes) -> LoggedEnd:
    return LoggedEnd(cause(log))


def found(run: RunModel, log: bytes | None, **others: bytes) -> Finding:
    """What is found if the first that failed has this log, and others the ones named: ``r3=b"…"``."""
    first = run.first_failure()

    def listen(rank: Rank) -> LoggedEnd | None:
        return heard(log if rank is first and log else others.get(f"r{rank.rank}", b""))

    told = failure(run, "my run", None if log is None else listen)
    assert told is not None
    return told


def test_nothing_is_found_while_nothing_has_failed() -> None:
    assert failure(model(), "otter", lambda _: heard(LOG)) is None
    assert failure(model(events.RankExited(5, code=0)), "otter", lambda _: heard(LOG)) is None


def besides_the_rule(told: Finding) -> tuple[Step, ...]:
    """The steps after those of the rule that explains it, which come first."""
    known = table().by_id[told.rule].next if told.rule else ()
    assert [step.command for step in told.steps[: len(known)]] == [one.command for one in known]
    return told.steps[len(known) :]


def test_the_cause_is_in_the_log() -> None:
    told = found(model(events.RankExited(5, code=3)), LOG)
    assert (told.id, told.severity, told.certainty) == ("failed", "error", "sure")
    assert (told.what, told.detail) == ("rank 5 exited 3", "RuntimeError: CUDA out of memory")
    assert (told.nodes, told.ranks) == (("b",), 1 << 5)
    assert told.evidence == ("train.py:188 forward", "attention.py:71 softmax")
    assert told.where == "attention.py:71 softmax"
    assert told.rule == "gpu-oom"
    (step,) = besides_the_rule(told)
    assert step.text == "cockpit logs 'my run' --rank 5: its log"
    assert step.in_app(str.upper) == "FAILED_LOG: its log"


def left_first(*codes: tuple[int, float, int]) -> RunModel:
    """Four ranks of one node that exit: rank, when, status."""
    made = RunModel()
    made.apply(Event(0.0, "", events.Planned({"b": (0, 1, 2, 3)})))
    for rank in range(4):
        made.apply(Event(1.0, "b", events.RankStarted(rank, pid=10 + rank)))
    for rank, at, code in codes:
        made.apply(Event(at, "b", events.RankExited(rank, code=code)))
    made.apply(Event(99.0, "b", events.LauncherExited(code=1)))
    return made


def test_one_that_exits_with_0_while_the_others_go_on_is_why_they_fail() -> None:
    told = found(left_first((1, 50.0, 0), (0, 50.4, 1), (2, 51.0, 1)), PEER)
    assert told.what == "rank 1 exited 0 while the others continued: rank 0 exited 1"
    assert (told.ranks, told.id, told.certainty, told.severity) == (0b10, "failed", "likely", "error")
    assert "--rank 1" in besides_the_rule(told)[0].command
    assert "Connection closed by peer" in told.detail
    # Those that it leaves see that before it is recorded.
    assert found(left_first((0, 50.0, 1), (1, 50.4, 0)), PEER).ranks == 0b10
    # An error of its own is one; and where most are through, the rest has failed.
    assert found(left_first((1, 50.0, 0), (0, 50.4, 1)), LOG).ranks == 0b01
    assert found(left_first((1, 50.0, 0), (2, 50.1, 0), (3, 50.1, 0), (0, 50.4, 1)), PEER).ranks == 0b01
    assert found(left_first((0, 50.0, 1), (1, 60.0, 0)), PEER).ranks == 0b01


def test_of_two_that_fail_at_once_the_one_that_says_more_of_itself_is_why() -> None:
    both = left_first((2, 50.0, 1), (3, 50.7, 1))
    told = found(both, PEER, r3=LOG)
    assert (told.what, told.ranks, told.where) == ("rank 3 exited 1", 0b1000, "attention.py:71 softmax")
    assert "--rank 3" in besides_the_rule(told)[0].command


@pytest.mark.parametrize(
    ("log", "other", "later", "what"),
    [
        (PEER, PEER, 50.7, "which rank failed first is unknown: ranks 2-3 waited for others"),
        (PEER, b"", 50.7, "rank 3 exited 1"),
        (LOG, LOG, 50.7, "rank 2 exited 1"),
        (PEER, LOG, 60.0, "rank 3 exited 1"),
    ],
    ids=["it knows no more", "it says nothing", "the first one says why", "it ended later"],
)
def test_who_is_first_of_two(log: bytes, other: bytes, later: float, what: str) -> None:
    assert found(left_first((2, 50.0, 1), (3, later, 1)), log, r3=other).what == what


@pytest.mark.parametrize(
    ("others", "certainty"),
    [
        ((), "sure"),
        (((3, 60.0, 1),), "sure"),
        (((3, 50.7, 1),), "likely"),
        (((3, 50.7, 0),), "likely"),
    ],
    ids=["alone", "long before another", "at once with another", "one had left"],
)
def test_who_failed_first_is_as_sure_as_the_stacks_of_that_moment_make_it(
    others: Sequence[tuple[int, float, int]], certainty: str
) -> None:
    run = left_first((2, 50.0, 1), *others)
    assert (found(run, LOG).what, found(run, LOG).certainty) == ("rank 2 exited 1", certainty)
    taken = snapshot(4, still(ALL_REDUCE))
    for rank, at, code in ((2, 50.0, 1), *others):
        taken.ranks[rank] = replace(taken.ranks[rank], end=End(Fate.EXITED, code), ended_at=at)
        for sample in taken.samples:
            sample.dumps.pop(rank, None)
    assert verdict(taken).certainty == certainty


def own(rank: Rank) -> bool:
    return True


def went(*ranks: int) -> RunModel:
    """Ranks of a job that others started are gone, one after the other."""
    made = RunModel()
    made.apply(Event(0.0, "", events.Planned({"a": (0, 1), "b": (5,)})))
    for at, rank in enumerate(ranks):
        node = "b" if rank == 5 else "a"
        made.apply(Event(float(at), node, events.RankStarted(rank, pid=10 + rank)))
        made.apply(Event(10.0 + at, node, events.RankGone(rank, pid=10 + rank)))
    return made


ONLY_WORDS = b"ERROR: the cache is cold\nfinished after 100 steps\n"


def test_the_rank_that_is_gone_and_whose_log_ends_with_a_cause() -> None:
    """What it says of itself counts more than what it saw of others, which the first to go did."""
    logs = {0: ONLY_WORDS, 1: PEER, 5: LOG}
    told = gone(went(0, 1, 5), "my run", lambda rank: heard(logs[rank.rank]), own)
    assert told is not None
    assert (told.id, told.severity, told.certainty) == ("gone", "error", "likely")
    assert (told.what, told.nodes) == ("rank 5 is gone; its log ends with an error", ("b",))
    assert told.ranks == 1 << 5
    assert told.detail == "RuntimeError: CUDA out of memory"
    assert told.where == "attention.py:71 softmax"
    assert told.rule == "gpu-oom"
    assert told.steps[-1].text == "cockpit logs 'my run' --rank 5: its log"
    told = gone(went(0, 1, 5), "my run", lambda rank: heard(b"" if rank.rank == 5 else PEER), own)
    assert told is not None
    assert told.ranks == 1


def test_a_gone_rank_without_a_log_of_its_own_is_named_less_surely() -> None:
    told = gone(went(0, 1), "my run", lambda _: heard(LOG), lambda _: False)
    assert told is not None
    assert told.what == "rank 0 is gone; its launcher's output ends with an error"
    assert told.certainty == "unsure"


@pytest.mark.parametrize("log", [b"", b"step 7\ndone\n", ONLY_WORDS, LOG + b"step %d loss 0.1\n" * 9])
def test_a_gone_rank_whose_log_ends_well_is_not_named(log: bytes) -> None:
    """It may have ended well: so do most."""
    numbered = log % tuple(range(9)) if b"%d" in log else log
    assert gone(went(0, 1), "my run", lambda _: heard(numbered), own) is None
    assert gone(went(), "my run", lambda _: heard(LOG), own) is None


@pytest.mark.parametrize(
    ("probe", "number", "after", "suspect"),
    [("auto", 11, 10, True), ("auto", 11, 400, False), ("off", 11, 10, False), ("on", None, 10, False)],
)
def test_a_rank_that_a_signal_killed_early_can_be_tried_without_the_probe(
    probe: str, number: int | None, after: float, suspect: bool
) -> None:
    run = model(events.SupervisorStarted(probe=probe), events.RankStarted(5, pid=7))
    code = None if number else 1
    run.apply(Event(1.0 + after, "b", events.RankExited(5, code=code, signal=number)))
    steps = [step.text for step in besides_the_rule(found(run, b""))][1:]
    said = "--probe off: restart with this to rule out cockpit's probe in the rank"
    assert steps == [said] * suspect
    assert any("--probe off" in line for line in summary(run, "otter")) == suspect


@pytest.mark.parametrize(
    ("signal", "says"),
    [
        (None, "no traceback in its output"),
        (9, "killed from outside"),
        (11, "it crashed in native code, without a traceback"),
        (15, "it was killed from outside"),
    ],
)
def test_a_log_without_a_cause_leaves_how_it_ended(signal: int | None, says: str) -> None:
    run = model(events.RankExited(5, code=None if signal else 1, signal=signal), events.Complete())
    for log in (b"", b"step 3\n"):
        told = found(run, log)
        assert (told.detail, told.evidence, told.certainty) == (says, (), "unsure")


def test_of_a_log_that_may_go_on_nothing_is_said_that_is_not_here() -> None:
    run = model(events.RankExited(5, code=1))
    assert found(run, b"step 3\n").detail == "no traceback in what was fetched of its output"


def test_of_a_node_that_is_lost_there_is_only_the_output_that_was_fetched() -> None:
    lines = summary(model(events.RankStarted(5), events.NodeLost("its run folder is gone")), "otter")
    assert "what was fetched of its output: cockpit logs otter --rank 5" in lines


OOM = "the kernel's OOM killer killed 1 process of its cgroup while it ran"
NOT_OOM = "killed from outside, but not by the kernel's OOM killer, which killed no process of its cgroup"


@pytest.mark.parametrize("log", [None, b"", LOG])
def test_a_rank_that_the_oom_killer_likely_ended(log: bytes | None) -> None:
    """Whatever it has printed before is not the cause."""
    run = model(events.RankExited(5, signal=9, oom_kills=1))
    told = found(run, log)
    assert (told.what, told.detail) == ("rank 5 killed by SIGKILL, likely by the OOM killer", OOM)
    assert (told.certainty, told.where, told.evidence) == ("likely", "", ())
    step = "b: dmesg -T | grep -i oom: what the kernel says, if users may read it"
    assert [each.text for each in besides_the_rule(told)][1:] == [step]
    lines = summary(run, "otter")
    assert lines[0] == "first to fail: rank 5 on b, killed by SIGKILL, likely by the OOM killer"
    assert lines[2:4] == [OOM, step]


def test_a_helper_of_a_rank_that_the_oom_killer_ended() -> None:
    """The rank itself fails by what its helper's end has led to."""
    told = found(model(events.RankExited(5, code=1, oom_kills=3)), LOG)
    more = OOM.replace("1 process", "3 processes")
    assert (told.what, told.detail) == ("rank 5 exited 1", f"RuntimeError: CUDA out of memory; {more}")
    assert told.where == "attention.py:71 softmax"
    assert "dmesg" in besides_the_rule(told)[1].command


def test_a_rank_that_somebody_else_killed() -> None:
    told = found(model(events.RankExited(5, signal=9, oom_kills=0)), b"")
    assert (told.what, told.detail, told.certainty) == ("rank 5 killed by SIGKILL", NOT_OOM, "unsure")
    assert len(besides_the_rule(told)) == 1
    other = found(model(events.RankExited(5, signal=11, oom_kills=0)), b"")
    assert other.detail == "it crashed in native code, without a traceback"


def test_what_memory_headed_for_is_told_beside_the_oom_killer() -> None:
    filling = events.Filling("", 90 << 30, 100 << 30, 60.0, 1e6)
    run = model(filling, events.RankExited(5, signal=9, oom_kills=2))
    assert (
        "2 processes of its cgroup while it ran; its memory was approaching the limit"
        in found(run, b"").detail
    )
    run = model(filling, events.RankExited(5, signal=9, oom_kills=0))
    assert found(run, b"").detail.startswith(f"{NOT_OOM}; its memory was approaching the limit")


def test_what_a_killer_did_in_an_earlier_attempt_is_not_told_of_the_next() -> None:
    run = model(events.RankExited(5, signal=9, oom_kills=1), events.RankStarted(5, attempt=1, pid=9))
    assert run.ranks[5].oom_kills is None


def test_of_a_log_that_nobody_has_read_nothing_is_said() -> None:
    told = found(model(events.RankExited(5, code=1)), None)
    assert (told.what, told.detail, told.certainty) == ("rank 5 exited 1", "", "unsure")


def test_words_of_a_node_are_harmless_and_short() -> None:
    told = found(model(events.RankLost(5, why="\x1b[2J")), b"ValueError: \x1b]0;x\x07" + b"y" * 1000)
    assert told.what == "rank 5 lost: \\x1b[2J"
    assert "\x1b" not in told.detail
    assert "\x07" not in told.detail
    assert len(told.detail) < 350
