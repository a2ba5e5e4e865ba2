"""Findings, and rules as data: a list of them runs over inputs in one loop."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from cockpit.core.finding import RULE_FAILED, Finding, Rule, Step, findings


def full(free: Mapping[str, int]) -> Finding | None:
    """Which nodes have no room left."""
    nodes = tuple(node for node, left in free.items() if not left)
    steps = (Step("df -h /tmp", "what takes it up", nodes[0], "detail"),) if nodes else ()
    return Finding("full", "no room", nodes=nodes, certainty="sure", steps=steps) if nodes else None


def old(driver: str, need: str) -> Finding | None:
    """Whether a driver is too old."""
    return Finding("old", f"driver {driver} is older than {need}", 0b101) if driver < need else None


def broken(free: Mapping[str, int]) -> Finding | None:
    """A rule with a mistake in it."""
    raise KeyError(f"\x1b]0;{next(iter(free))}")


KNOWN = [
    Rule("full", ("free",), full, "tmpfs(5)"),
    Rule("broken", ("free",), broken),
    Rule("old", ("driver", "need"), old, "https://docs.nvidia.com/deploy/cuda-compatibility"),
]


def ids(**inputs: object) -> list[str]:
    return [found.id for found in findings(KNOWN, inputs)]


def test_a_list_of_rules_finds_what_the_inputs_show_in_its_order() -> None:
    assert ids(free={"a": 0}, driver="470", need="525") == ["full", RULE_FAILED, "old"]
    assert ids(driver="525", need="525") == []


def test_a_rule_without_one_of_its_inputs_is_passed_over() -> None:
    assert ids(driver="470") == []
    assert ids(driver="470", need="525", free={"a": 1}) == [RULE_FAILED, "old"]


def test_a_rule_that_raises_costs_itself_only_and_says_so() -> None:
    first, failed, last = findings(KNOWN, {"free": {"a": 0}, "driver": "470", "need": "525"})
    assert (first.what, last.what) == ("no room", "driver 470 is older than 525")
    assert failed.what.startswith("the rule broken failed: KeyError: ")
    assert "\x1b" not in failed.what
    assert failed.severity == "warning"


def test_rules_after_one_that_was_enough_are_not_tried() -> None:
    def never(free: object) -> Finding | None:
        raise AssertionError("tried")

    found = next(findings([KNOWN[0], Rule("never", ("free",), never)], {"free": {"a": 0}}))
    assert found.id == "full"


def test_only_errors_of_the_rule_are_its_own() -> None:
    def interrupted(free: object) -> Finding | None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(findings([Rule("interrupted", ("free",), interrupted)], {"free": {}}))


def test_findings_for_programs() -> None:
    full_, _, old_ = findings(KNOWN, {"free": {"a": 0, "b": 1}, "driver": "470", "need": "525"})
    told = json.loads(json.dumps(full_.as_json()))
    assert told == {
        **{"id": "full", "what": "no room", "ranks": "", "where": "", "detail": "", "evidence": []},
        **{"certainty": "sure", "nodes": ["a"], "severity": "error", "since": None, "proof": ""},
        **{"rule": "", "meaning": ""},
        "steps": [
            {"command": "df -h /tmp", "reason": "what takes it up", "node": "a", "action": "detail"},
        ],
    }
    assert old_.as_json()["ranks"] == "0,2"


@pytest.mark.parametrize(
    ("step", "text", "in_app", "in_shell", "too_late"),
    [
        (Step("dmesg -T", "what killed it", "gpu01"), *["gpu01: dmesg -T: what killed it"] * 4),
        (Step("name every node"), *["name every node"] * 4),
        (
            Step("--samples 3", "what moves", action="sample"),
            "--samples 3: what moves",
            "<sample>: what moves",
            "cockpit stacks otter --samples 3  (what moves)",
            "",
        ),
    ],
)
def test_a_step_in_the_app_and_in_a_shell(
    step: Step, text: str, in_app: str, in_shell: str, too_late: str
) -> None:
    assert step.text == text
    assert step.in_app("<{}>".format) == in_app
    assert step.in_shell("cockpit stacks otter") == in_shell
    assert step.in_shell("") == too_late
