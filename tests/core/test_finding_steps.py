"""Steps: what of a hint can be typed, and what a program is given to type."""

from __future__ import annotations

import pytest

from cockpit.core.finding import Finding, Step


@pytest.mark.parametrize(
    ("hint", "step"),
    [
        ("try: ssh gpu01 true", Step("ssh gpu01 true")),
        ("see: squeue --me", Step("squeue --me")),
        (
            "give it: --slots 8, or slots=8 in the hostfile",
            Step("", "give it: --slots 8, or slots=8 in the hostfile"),
        ),
        ("try:", Step("", "try:")),
        ("check the path\x1b[31m", Step("", "check the path?[31m")),
    ],
)
def test_the_command_in_a_hint(hint: str, step: Step) -> None:
    assert Step.hinted(hint).command == step.command
    assert "\x1b" not in Step.hinted(hint).reason
    assert bool(Step.hinted(hint).reason) == bool(step.reason)


def test_what_can_be_typed_as_it_is() -> None:
    steps = (
        Step("--native --ranks 3", "its C frames"),
        Step("dmesg -T", node="gpu01"),
        Step("", "check the path"),
    )
    found = Finding("x", "it hangs", steps=steps)
    assert [step.command for step in found.completed("cockpit stacks last").steps] == [
        "cockpit stacks last --native --ranks 3",
        "dmesg -T",
        "",
    ]
    assert [step.command for step in found.completed("").steps] == ["dmesg -T", ""]
