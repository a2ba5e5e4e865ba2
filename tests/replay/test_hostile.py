"""Damage, lies and clocks that jump cost what they say, and nothing else."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from cockpit.base.record import TIMES
from cockpit.cli.verbs import replay as verb
from cockpit.core.pace.measured import measured_of, thinned
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.replay.recorded import Recorded
from cockpit.errors import CockpitError
from tests.cli.schemas import fits
from tests.engine.books import run_folder
from tests.replay.lived import BEGIN, NODES, Lived, eventful, lines_of, watched
from tests.replay.test_recorded import reopened


@pytest.fixture
def lived(monkeypatch: pytest.MonkeyPatch) -> Lived:
    """A minute of a run that is over."""

    async def story() -> Lived:
        with monkeypatch.context() as patched:
            async with watched(patched, NODES) as run:
                await eventful(run, 60, looks=5)
                await run.ends()
        return run

    return asyncio.run(story())


def read(folder: RunFolder) -> Recorded:
    return asyncio.run(Recorded.read(RunFolder(folder.path)))


def states(recorded: Recorded, at: float) -> dict[int, str]:
    return {number: rank.text for number, rank in recorded.model_at(at).ranks.items()}


def test_damaged_lines_cost_themselves(lived: Lived) -> None:
    whole = read(lived.folder)
    moments = [BEGIN + second + 0.75 for second in range(0, 62, 7)]
    wanted = [states(whole, at) for at in moments]
    junk = b'\x00\xff{"t": 1e999, "e": "rank_exited"}\n[1,\n{"t": "x"}\n' + b"[" * 100_000 + b"\n"
    for file in ("journal.jsonl", "pace.jsonl", "measured.jsonl"):
        path = lived.folder.path / file
        path.write_bytes(junk + path.read_bytes() + junk + b'{"t": 17')
    for path in (lived.folder.path / "spool").glob("*/events.jsonl"):
        path.write_bytes(junk + path.read_bytes() + junk)
    damaged = read(lived.folder)
    assert damaged.folder.damaged > 0
    assert [states(damaged, at) for at in moments] == wanted
    pace = asyncio.run(damaged.pace_at(BEGIN + 30))
    assert pace.front is not None
    assert list(damaged.samples(BEGIN + 30, damaged.model_at(BEGIN + 30)))


def test_a_missing_log_is_empty_and_the_others_are_there(lived: Lived) -> None:
    (log,) = (lived.folder.path / "spool").glob("*/rank-0.log")
    log.unlink()
    (index,) = (lived.folder.path / "spool").glob(f"*gpu2/{TIMES}")
    index.write_bytes(index.read_bytes()[:500])

    async def story() -> None:
        replay, board, session = await reopened(lived.folder)
        replay.player.seek(BEGIN + 30)
        replay.show()
        await replay.settle()
        assert lines_of(board.book, 0) == 0
        assert lines_of(board.book, 1) > 15
        await session.close()
        board.close()

    asyncio.run(story())


def test_a_run_of_which_nothing_is_known_has_one_moment(tmp_path: Path) -> None:
    recorded = read(run_folder(tmp_path / "run", {"a": [0, 1]}))
    assert recorded.begin == recorded.end
    assert states(recorded, recorded.end) == {0: "waiting", 1: "waiting"}
    assert asyncio.run(recorded.pace_at(recorded.end)).front is None
    assert list(recorded.samples(recorded.end, recorded.model_at(recorded.end))) == []
    with pytest.raises(CockpitError, match="its steps are not known here"):
        recorded._reached(5)


def test_a_node_measures_only_its_own_ranks(lived: Lived) -> None:
    path = lived.folder.path / "measured.jsonl"
    told = json.loads(path.read_bytes().split(b"\n")[0])
    told[0], told[-2] = BEGIN + 31.0, [[3, 99.0, 1 << 40]]  # gpu1 about a rank of gpu2
    stranger = [*told[:1], "gpu9", *told[2:]]
    path.write_bytes(b"".join(json.dumps(each).encode() + b"\n" for each in (told, stranger)))
    recorded = read(lived.folder)
    assert list(recorded.samples(BEGIN + 40, recorded.model_at(BEGIN + 40))) == []


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_clock_that_is_set_moves_no_event_before_another(
    jump: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> Lived:
        with monkeypatch.context() as patched:
            async with watched(patched, NODES) as run:
                for second in range(1, 61):
                    run.now += 0.5
                    if second == 20:
                        await run.set_clock("gpu2", jump)
                    if second == 40:
                        await run.dies(3)
                    await run.second()
                await run.ends()
        return run

    recorded = read(asyncio.run(story()).folder)
    assert states(recorded, BEGIN + 38)[3] == "running"
    assert states(recorded, BEGIN + 41)[3] == "exited 1"
    assert states(recorded, BEGIN + 58)[2] == "running"
    assert BEGIN + 59 <= recorded.end <= BEGIN + 62


def test_measurements_become_fewer_the_older_they_are(lived: Lived) -> None:
    line = (lived.folder.path / "measured.jsonl").read_bytes().split(b"\n")[0]
    told = json.loads(line)
    many = b"".join(
        json.dumps([BEGIN + 15 * number, name, *told[2:]]).encode() + b"\n"
        for number in range(3000)
        for name in ("gpu1", "gpu2")
    )
    found = [measured_of(each) for each in thinned(many + b"junk\n").splitlines()]
    assert 0 < len(found) <= 3000
    assert found[-1].at == BEGIN + 15 * 2999
    first, last = ([one.at for one in part if one.node == "gpu1"] for part in (found[:200], found[-200:]))
    assert first[1] - first[0] > last[-1] - last[-2]
    assert {one.node for one in found} == {"gpu1", "gpu2"}


# The verb


def test_a_moment_as_text_and_as_json(lived: Lived, capsys: pytest.CaptureFixture[str]) -> None:
    name = lived.folder.name
    assert verb.main([name, "--at", "25s"]) == 0
    text = capsys.readouterr().out
    assert "running, step" in text
    assert verb.main([name, "--at", "step", "60", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    fits("replay", told)
    assert {rank["text"] for rank in told["ranks"]} == {"running", "exited 1"}
    assert told["begin"] <= told["t"] <= told["end"]


def test_without_a_moment_it_says_what_to_type(lived: Lived) -> None:
    for words in ([], ["--json"], ["--plain"]):
        with pytest.raises(CockpitError) as raised:
            verb.main([lived.folder.name, *words])
        assert "--at" in raised.value.hint
    with pytest.raises(CockpitError, match="did not get to step 99,999"):
        verb.main([lived.folder.name, "--at", "step", "99999"])


def test_no_node_is_contacted_and_nothing_written(lived: Lived, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path: path.read_bytes() for path in lived.folder.path.rglob("*") if path.is_file()}

    async def refused(*words: object, **more: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refused)
    assert verb.main([lived.folder.name, "--at", "end", "--json"]) == 0
    assert {path: path.read_bytes() for path in lived.folder.path.rglob("*") if path.is_file()} == before
