"""What a verb has learnt of an end stays known, whoever can be asked; a cause is read from all there is."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.verbs import Verbs
from tests.waiting import until

FAILS = """echo "step 1/9 of rank $RANK"
if [ $RANK = 0 ]; then echo "Traceback (most recent call last):"; echo "ValueError: handled"; fi
until [ -e go ]; do sleep 0.05; done
[ $RANK = 1 ] || exit 0
echo 'Traceback (most recent call last):'
echo '  File "train.py", line 7, in <module>'
echo 'KeyError: "what it died of"'
exit 3
"""
ENDS = "echo one; until [ -e go ]; do sleep 0.05; done; echo two\n"


@pytest.fixture
def verbs(tmp_path: Path, quick_cockpit: tuple[str, ...]) -> Verbs:
    return Verbs(tmp_path / "state", tmp_path / "work", quick_cockpit)


def left(verbs: Verbs, script: str, slots: int) -> None:
    """A run that was left while it went on, and ended since."""
    run = verbs.start(*verbs.words("r", script, slots))
    files = [verbs.spooled("r", rank) for rank in range(slots)]
    until(lambda: all(one.exists() and one.stat().st_size for one in files), "output")
    run.send_signal(signal.SIGTERM)
    assert verbs.end(run).code == 130
    (verbs.work / "go").touch()
    (folder,) = verbs.work.glob("nodes/cockpit-*/r/*")
    until(lambda: b'"ended"' in (folder / "events.jsonl").read_bytes(), "the end")


def shown(verbs: Verbs, *more: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(verbs.call("ps", "--json", *more, "r").out)
    return found


@pytest.mark.slow
def test_ps_reads_the_cause_from_what_the_node_has(verbs: Verbs) -> None:
    left(verbs, FAILS, 2)
    found = shown(verbs)["findings"][0]
    assert "rank 1" in found["what"]
    assert "what it died of" in found["detail"]
    # It is here from now on.
    shutil.rmtree(verbs.work / "nodes")
    assert shown(verbs)["findings"][0] == found
    attached = verbs.call("attach", "--plain", "r")
    assert attached.code == 1
    assert "what it died of" in attached.out


@pytest.mark.slow
@pytest.mark.parametrize("teller", [("ps",), ("ps", "r"), ("stop", "r")])
def test_an_end_that_was_seen_once_stays(verbs: Verbs, teller: tuple[str, ...]) -> None:
    left(verbs, ENDS, 1)
    assert verbs.call(*teller).code == 0
    shutil.rmtree(verbs.work / "nodes")
    assert shown(verbs)["state"] == shown(verbs, "--no-connect")["state"] == "ended"
    attached = verbs.call("attach", "--plain", "r")
    assert attached.code == 0, attached.err
    assert "two" in attached.out
    assert "two" not in verbs.call("attach", "--plain", "r").out, "it has been seen"


@pytest.mark.slow
def test_a_stop_that_was_seen_stays(verbs: Verbs) -> None:
    run = verbs.start(*verbs.words("r", "echo one; sleep 600"))
    until(lambda: verbs.spooled("r", 0).exists() and verbs.spooled("r", 0).stat().st_size, "output")
    run.send_signal(signal.SIGTERM)
    assert verbs.end(run).code == 130
    assert verbs.call("stop", "r").code == 0
    before = shown(verbs)
    shutil.rmtree(verbs.work / "nodes")
    after = shown(verbs)
    assert (before["state"], before["ranks"]) == (after["state"], after["ranks"])
    assert after["state"] == "stopped"
