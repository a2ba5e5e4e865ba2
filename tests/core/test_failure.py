"""The finding about a run that failed: which rank did first, and why."""

from __future__ import annotations

import pytest

from cockpit.base import events
from cockpit.core.finding import Finding
from cockpit.core.run.events import Event
from cockpit.core.run.failure import failure
from cockpit.core.run.model import RunModel

LOG = b"""step 3
Traceback (most recent call last):
  File "/work/train.py", line 188, in forward
    softmax(x)
  File "/work/attention.py", line 71, in softmax
    return x.exp()
RuntimeError: CUDA out of memory
"""


def model(*facts: events.Fact) -> RunModel:
    """Rank 0 on a, rank 5 on b, after these facts about b."""
    made = RunModel()
    made.apply(Event(0.0, "", events.Planned({"a": (0,), "b": (5,)})))
    for at, fact in enumerate(facts):
        made.apply(Event(float(at), "b", fact))
    return made


def found(run: RunModel, log: bytes | None) -> Finding:
    told = failure(run, "my run", log)
    assert told is not None
    return told


def test_nothing_is_found_while_nothing_has_failed() -> None:
    assert failure(model(), "otter", LOG) is None
    assert failure(model(events.RankExited(5, code=0)), "otter", LOG) is None


def test_the_cause_is_in_the_log() -> None:
    told = found(model(events.RankExited(5, code=3)), LOG)
    assert (told.id, told.severity, told.certainty) == ("failed", "error", "likely")
    assert (told.what, told.detail) == ("rank 5 exited 3", "RuntimeError: CUDA out of memory")
    assert (told.nodes, told.ranks) == (("b",), 1 << 5)
    assert told.evidence == ("train.py:188 forward", "attention.py:71 softmax")
    assert told.where == "attention.py:71 softmax"
    (step,) = told.steps
    assert step.text == "cockpit logs 'my run' --rank 5: its log"
    assert step.in_app(str.upper) == "FAILED_LOG: its log"


@pytest.mark.parametrize(
    ("signal", "says"),
    [
        (None, "no traceback in its output"),
        (9, "killed from outside: by a person, or by the kernel, out of memory"),
        (11, "it crashed in native code, without a traceback"),
        (15, "it was killed from outside"),
    ],
)
def test_a_log_without_a_cause_leaves_how_it_ended(signal: int | None, says: str) -> None:
    run = model(events.RankExited(5, code=None if signal else 1, signal=signal))
    for log in (b"", b"step 3\n"):
        told = found(run, log)
        assert (told.detail, told.evidence, told.certainty) == (says, (), "unsure")


def test_of_a_log_that_nobody_has_read_nothing_is_said() -> None:
    told = found(model(events.RankExited(5, code=1)), None)
    assert (told.what, told.detail, told.certainty) == ("rank 5 exited 1", "", "unsure")


def test_words_of_a_node_are_harmless_and_short() -> None:
    told = found(model(events.RankLost(5, why="\x1b[2J")), b"ValueError: \x1b]0;x\x07" + b"y" * 1000)
    assert told.what == "rank 5 lost: \\x1b[2J"
    assert "\x1b" not in told.detail
    assert "\x07" not in told.detail
    assert len(told.detail) < 350
