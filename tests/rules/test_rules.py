"""Rules: each row is whole, and which of them explains an end."""

from __future__ import annotations

import pytest

from cockpit.core.finding import Finding, Step
from cockpit.core.rules.explanation import explanation, meant, translated
from cockpit.core.rules.row import FACTS, Next, Row
from cockpit.core.rules.table import Table, table
from tests.rules.calm import fired, healthy

LOUD = Row(
    id="loud", means="It is loud.", zh="很吵。", next=(Next("hush", "makes it quiet", "安静"),), source="s"
)


def row(id: str, *signs: str, but: str = "", ends: str = "", severity: str = "error") -> Row:
    known = frozenset(ends.split())
    return Row(
        id=id, means="", zh="", next=(), source="", signs=signs, but=but, ends=known, severity=severity
    )


@pytest.mark.parametrize("one", table().rows, ids=lambda one: one.id)
def test_a_row_is_whole(one: Row) -> None:
    assert one.signs or one.ends or one.checks
    assert one.ends <= FACTS
    assert one.severity in ("error", "warning", "info")
    assert one.means.endswith(".")
    assert one.zh.endswith("。")
    assert 1 <= len(one.next) <= 3
    assert all(each.reason and each.zh for each in one.next)
    assert one.source


def test_no_two_rows_have_one_id() -> None:
    assert len(table().by_id) == len(table().rows)


def test_the_first_row_that_fits_the_words_counts() -> None:
    rules = Table([row("more", "no room on /dev/shm"), row("less", "no room")])
    found = explanation(b"OSError: no room on /dev/shm", rules=rules)
    assert found is not None
    assert found.id == "more"
    assert [one.id for one in rules.found_in(b"[rank3]: no room on /dev/shm")] == ["more", "less"]


def test_what_a_row_must_not_match() -> None:
    rules = Table([row("one", "no room", but="there is no room for doubt")])
    assert rules.found_in(b"no room") == [rules.rows[0]]
    assert rules.found_in(b"there is no room for doubt") == []


def test_what_is_recorded_counts_before_words() -> None:
    rules = Table([row("words", "no room"), row("kill", ends="SIGKILL"), row("oom", ends="SIGKILL oom")])
    assert explanation(b"no room", facts=frozenset({"SIGKILL", "oom"}), rules=rules) is rules.rows[2]
    assert explanation(b"no room", facts=frozenset({"SIGKILL", "no-oom"}), rules=rules) is rules.rows[1]
    assert explanation(b"no room", rules=rules) is rules.rows[0]


def test_lines_near_count_where_its_words_say_nothing_known() -> None:
    rules = Table([row("far", "no room"), row("mild", "some room", severity="warning")])
    assert explanation(b"ValueError: 3", [b"some room", b"no room"], rules=rules) is rules.rows[0]
    assert explanation(b"ValueError: 3", [b"some room"], rules=rules) is None


def test_of_a_silent_end_what_is_recorded_alone_counts() -> None:
    rules = Table([row("bus", ends="SIGBUS silent")])
    assert explanation(b"", facts=frozenset({"SIGBUS"}), rules=rules) is rules.rows[0]
    assert explanation(b"RuntimeError: x", facts=frozenset({"SIGBUS"}), rules=rules) is None


def test_a_finding_gets_the_meaning_and_what_to_type_first() -> None:
    found = meant(Finding("failed", "rank 1 exited 1"), LOUD)
    assert (found.rule, found.meaning, found.steps[0].text) == ("loud", "It is loud.", "hush: makes it quiet")
    assert meant(found, None) is found


def test_what_a_rule_says_in_chinese() -> None:
    one = table().rows[0]
    found = meant(Finding("failed", "rank 1 exited 1", steps=(Step("cockpit logs run"),)), one)
    chinese = translated(found, "zh")
    assert chinese.meaning == one.zh
    assert [step.reason for step in chinese.steps] == [*(each.zh for each in one.next), ""]
    assert translated(chinese, "en") == found
    assert translated(Finding("failed", "rank 1 exited 1"), "zh").meaning == ""


def test_no_rule_explains_what_is_healthy() -> None:
    lines, found = fired(healthy(0.1))
    assert lines >= 100_000
    assert [id for severity, id in found if severity == "error"] == []
