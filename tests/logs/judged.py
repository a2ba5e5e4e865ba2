"""What is told of samples of failures and levels, against what they expect.

A failure expects ``has`` and ``lacks``, texts that are in the summary of its cause or are not; ``frame``, a
place in the user's code that is shown; ``none``: no cause is as right as one with ``has``.

A file of levels has a level and a line in each line of its text: ``ERROR|fatal: out of tapes``.
"""

from __future__ import annotations

from collections.abc import Iterator

from cockpit.core.finding import Finding
from cockpit.core.logs.causes import cause
from cockpit.core.logs.levels import Level, level_of
from tests.logs.corpus import Sample, samples, variants

TAIL = 64 << 10
"""What is looked at of a rank's log."""


def find_cause(tail: bytes) -> Finding | None:
    """What is found of a cause at the end of a log."""
    found = cause(tail)
    return None if found is None else found.found


def wrong_cause(sample: Sample, text: bytes) -> str:
    """Empty if the cause found in ``text`` (the sample's, or prefixed) is as expected, else what is told."""
    finding = find_cause(text[-TAIL:])
    expect = sample.expect
    if finding is None:
        return "" if expect.get("none") else "nothing"
    told = finding.what[:1000]
    frames = list(finding.evidence)
    found = all(words in told for words in expect.get("has", [])) and (
        "has" in expect and not any(words in told for words in expect.get("lacks", []))
    )
    if found and expect.get("frame", "") in ("", *frames):
        return ""
    return f"{told} {frames}"


def causes(kind: str = "failures") -> Iterator[tuple[str, str, str]]:
    """``(sample, variant, what is wrong)`` of each sample, plain and prefixed by each launcher."""
    for sample in samples(kind):
        for variant, text in variants(sample.text):
            yield sample.name, variant, wrong_cause(sample, text)


def levels() -> Iterator[tuple[str, bytes, Level, Level]]:
    """``(sample, line, level expected, level told)`` of each line of level files."""
    for sample in samples("levels"):
        for row in sample.text.splitlines():
            name, _, line = row.partition(b"|")
            yield sample.name, line, Level[name.decode()], level_of(line)


def quiet_lines() -> Iterator[tuple[str, bytes]]:
    """``(sample, line)`` of what is no failure: each line is plain, but for what ``[expect] loud`` tells."""
    for kind in ("healthy", "progress"):
        for sample in samples(kind):
            loud = [words.encode() for words in sample.expect.get("loud", [])]
            for line in sample.text.replace(b"\r", b"\n").split(b"\n"):
                if not any(words in line for words in loud):
                    yield sample.name, line
