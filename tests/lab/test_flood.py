"""A flood of hostile output: nothing of it is lost, nothing of it reaches a terminal's controls."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.lab.cockpits import ENV, EXAMPLES, Cockpits
from tests.lab.terminals import terminal
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.lab, pytest.mark.slow]

PLAIN = str(EXAMPLES / "train_plain.py")
EIGHT = "node1 slots=4\nnode2 slots=4\n"
LINES = 30_000
MEMORY = 180_000
"""Kilobytes that the cockpit may take for whatever its ranks print: it takes 100,000 for nothing."""

CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""All that may move a cursor or turn text round, but for the line feed."""
SGR = re.compile(r"\x1b\[[0-9;:]*m")


def words(cockpits: Cockpits, lines: int) -> list[str]:
    """The words of a run of eight ranks that print so many lines, and junk among them."""
    program = [PLAIN, "--lines", str(lines), "--junk", "--steps", "1"]
    return cockpits.words("--launcher", "command", program=program, nodes=EIGHT)


def peak(pid: int) -> int:
    """The most memory that a process has had so far, in kB."""
    try:
        found = re.search(r"^VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def test_a_flood_from_eight_ranks(cockpits: Cockpits, tmp_path: Path) -> None:
    with (tmp_path / "stderr").open("w+") as errors:
        process = cockpits.lab.popen(
            words(cockpits, LINES), env=ENV, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
        )
        assert process.stdout
        chunks, memory = [], 0
        while chunk := os.read(process.stdout.fileno(), 1 << 16):
            chunks.append(chunk)
            memory = max(memory, peak(process.pid))
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 0, Path(errors.name).read_text()
    assert 0 < memory < MEMORY
    cockpits.assert_spools_equal()
    logs = {**cockpits.logs("node1"), **cockpits.logs("node2")}
    shown = b"".join(chunks).decode()
    found = CONTROLS.search(shown)
    assert not found, shown[found.start() - 100 : found.end() + 100]
    for rank in range(8):
        assert logs[f"rank-{rank}.log"].endswith(b"done\n")
        seen = re.findall(rf"\| rank {rank} line (\d+)$", shown, re.MULTILINE)
        assert seen == [str(number) for number in range(1, LINES + 1)]


def test_a_flood_at_a_terminal(cockpits: Cockpits) -> None:
    with terminal(cockpits.lab, words(cockpits, 1500)) as made:
        assert made.end(120) == 0
        shown = made.shown.decode()
    cockpits.assert_spools_equal()
    assert SGR.search(shown)
    assert shown.count("\a") == 1, "the end rings, the ranks do not"
    shown = shown.replace("\a", "")
    text = SGR.sub("", shown.replace("\r\n", "\n"))
    found = CONTROLS.search(text)
    assert not found, text[found.start() - 100 : found.end() + 100]
    # Ranks that print the same but for their number are told as one.
    folded = re.findall(r"\| rank (\d+)(?:\u2013(\d+))? line (\d+)$", text, re.MULTILINE)
    lines = [(range(int(first), int(last or first) + 1), int(line)) for first, last, line in folded]
    for rank in range(8):
        assert {line for ranks, line in lines if rank in ranks} == set(range(1, 1501))
