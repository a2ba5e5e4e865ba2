"""Causes in samples of many projects: at least nine of ten are right, whatever stands before each line."""

from __future__ import annotations

from collections import Counter, defaultdict

from tests.logs.corpus import samples
from tests.logs.judged import TAIL, causes, wrong_cause


def test_causes_of_failures_of_many_projects() -> None:
    assert all(each.expect.keys() & {"has", "none"} for each in samples("failures"))
    tried: Counter[str] = Counter()
    wrong: defaultdict[str, list[str]] = defaultdict(list)
    for name, variant, told in causes():
        tried[variant] += 1
        if told:
            wrong[variant].append(f"{name}: {told}")
    assert min(tried.values()) >= 60
    for variant, count in tried.items():
        assert len(wrong[variant]) <= count / 10, (variant, wrong[variant])


def test_long_logs_before_a_failure_change_nothing() -> None:
    """What is looked at begins in the middle of a line of a training."""
    before = "".join(f"step {at} loss 2.{at % 100:02} lr 3.0e-04\n" for at in range(4000)).encode()
    assert len(before) > TAIL
    told = {each.name: wrong_cause(each, before + each.text) for each in samples("failures")}
    wrong = {name: words for name, words in told.items() if words}
    assert len(wrong) <= len(told) / 10, wrong


def test_healthy_logs_have_no_cause() -> None:
    told = {each.name: wrong_cause(each, each.text) for each in samples("healthy") if each.expect.get("none")}
    assert len(told) >= 8
    assert not any(told.values()), told
