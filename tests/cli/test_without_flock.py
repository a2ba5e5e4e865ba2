"""A shared home without flock: one cockpit writes, and the next one takes its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.verbs import WITHOUT_FLOCK, Verbs
from tests.waiting import until

FAILS = "if [ $RANK = 0 ]; then while [ ! -e go ]; do sleep 0.05; done; exit 3; fi; echo one; exec sleep 600"


@pytest.mark.slow
def test_attach_spools_and_carries_out_the_failure_policy(tmp_path: Path) -> None:
    verbs = Verbs(tmp_path / "state", tmp_path / "work")
    words = verbs.words("r", FAILS, slots=2)
    words[1:1] = ["--failure-wait", "0.2"]
    first = verbs.start(*words, program=WITHOUT_FLOCK)
    until(lambda: verbs.spooled("r", 1).exists(), "output")
    reader = verbs.start("attach", "--plain", "r", program=WITHOUT_FLOCK)
    assert reader.stderr
    # On a slow machine it says first whose answer it waits for.
    said = next(line for line in reader.stderr if "this one watches" in line)
    assert f"another cockpit (pid {first.pid} on " in said
    first.kill()
    first.communicate()
    journal = verbs.runs / "r" / "journal.jsonl"
    until(lambda: (verbs.runs / "r" / "lock.2").exists(), "the second writer")
    (verbs.work / "go").touch()
    done = verbs.end(reader)
    assert done.code == 1
    assert f"(pid {first.pid} on " in done.err
    assert "now controls the run" in done.err
    assert "the failure policy" in journal.read_text()
    assert verbs.spooled("r", 1).read_bytes() == verbs.on_node("r", 1).read_bytes() == b"one\n"
