"""``cockpit logs``: what it prints is what the app shows, and a query prints itself as its words."""

from __future__ import annotations

import json
import re
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cockpit import paths
from cockpit.base.events import Complete, Gap, Launched, LinkChanged
from cockpit.base.shell import join
from cockpit.cli import awaiting
from cockpit.cli.main import main
from cockpit.cli.verbs import logs
from cockpit.cli.verbs.logs import _since, parser, query_of
from cockpit.core.logs.query import Query
from cockpit.core.run.events import Event
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry, planned
from cockpit.engine.run.foreign import session_of
from cockpit.errors import CockpitError
from cockpit.private import private_dir
from tests.cli.verbs import Verbs
from tests.engine.books import CREATED, Writer, run_folder
from tests.engine.pools import Fakes
from tests.engine.test_session import ENDED, Node, part
from tests.waiting import until

plain_names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,8}", fullmatch=True)
names = st.one_of(
    plain_names,
    st.builds("gpu{:02d}".format, st.integers(0, 30)),
    st.builds("rack{}n{}".format, st.integers(0, 3), st.integers(8, 11)),
    st.builds("{}@{}".format, plain_names, plain_names),
    st.integers(0, 10**12).map(str),
    st.sampled_from(["[::1]", "[fe80::1]:22", "1-2", "a:22", "10.0.0.1", "10.0.0.2"]),
)
words = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=12)
patterns = st.one_of(st.sampled_from(["", "!", "!oom", "@", "@0 x", "@ @", " x", "-f", "--rank", "="]), words)


def query(ranks: frozenset[int], nodes: frozenset[str], pattern: str, times: bool, nccl: bool) -> Query:
    try:
        return Query(ranks, nodes, pattern, times, nccl=nccl)
    except CockpitError:  # no regular expression
        return Query(ranks, nodes, re.escape(pattern), times, nccl=nccl)


queries = st.builds(
    query,
    st.frozensets(st.integers(0, 70) | st.integers(0, 131_071), max_size=9),
    st.frozensets(names, max_size=6),
    patterns,
    st.booleans(),
    st.booleans(),
)


def read(*said: str) -> Query:
    return query_of(parser().parse_args(["a-run", *said]))


@pytest.mark.slow
@given(queries)
@example(Query(nodes=frozenset({"12"})))
@example(Query(nodes=frozenset({"gpu1", "gpu01"})))
@example(Query(nodes=frozenset({"n1234567890", "n1234567891"})))
@settings(max_examples=300, deadline=None)
def test_a_query_reads_itself_back(asked: Query) -> None:
    assert read(*asked.words) == asked
    typed = Query.typed(asked.text)
    assert (typed.ranks, typed.nodes, typed.pattern) == (asked.ranks, asked.nodes, asked.pattern)
    assert typed.nccl is asked.nccl


@given(queries)
@settings(max_examples=15, deadline=None)
def test_and_through_a_shell_too(asked: Query) -> None:
    line = f"printf '%s\\0' {join(asked.words)}" if asked.words else "true"
    said = subprocess.run(["bash", "-c", line], capture_output=True, check=True).stdout.decode()
    assert read(*said.split("\0")[:-1]) == asked


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("@0,13-15 oom", Query(frozenset({0, 13, 14, 15}), pattern="oom")),
        ("@gpu[01-02],head !debug", Query(nodes=frozenset({"gpu01", "gpu02", "head"}), pattern="!debug")),
        ("@gpu01 @3", Query(frozenset({3}), frozenset({"gpu01"}))),
        ("@nccl @3 NET/", Query(frozenset({3}), pattern="NET/", nccl=True)),
        ("@", Query()),
        ("@ @here", Query(pattern="@here")),
        ("loss @3", Query(pattern="loss @3")),
    ],
)
def test_what_is_typed_in_the_bar(text: str, meant: Query) -> None:
    assert Query.typed(text) == meant


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("@0-", "not a rank set: '0-'"),
        ("@0-999999999", "no rank is 131,072 or more"),
        ("@gpu[1-999999999]", "more than 10000 hosts"),
        ("@" + ",".join(f"a{n}[1-9999]" for n in range(3)), "more than 10000 hosts"),
        ("@gpu[01-", "bad host name"),
        ("@gpu[a]", "bad host name"),
        ("@a,,b", "bad host name"),
        ("@3 loss(", r"missing \), unterminated subpattern at character 5"),
    ],
)
def test_what_makes_no_sense_is_said(text: str, says: str) -> None:
    with pytest.raises(CockpitError, match=says):
        Query.typed(text)


def test_groups_and_operators_of_clustershell_are_names() -> None:
    assert Query.typed("@@all,a!b,*").nodes == {"@all", "a!b", "*"}


# What it prints


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Path:
    """A run of two nodes that has ended; steps of all ranks, a second each."""
    path = paths.runs() / "a-run"
    private_dir(paths.runs())
    folder = run_folder(path, {"gpu1": [0, 1], "gpu2": [2, 3]})
    folder.lock()
    folder.write(planned(folder.manifest))
    writer = Writer(folder)
    for node in folder.manifest.nodes:
        writer.write(node.name, None, b"launching\n")
    writer.tick(CREATED + 1)
    for step in range(4):
        for rank in range(4):
            loss = b"NaN" if (step, rank) == (2, 3) else b"2.%d%d" % (step, rank)
            writer.write("gpu1" if rank < 2 else "gpu2", rank, b"step %d\nloss %s\n" % (step, loss))
        writer.tick(CREATED + 2 + step)
    writer.write("gpu1", 0, b"bye")
    writer.tick(CREATED + 9)
    writer.close()
    for number, node in enumerate(folder.manifest.nodes):
        record = ENDED.replace(b'"rank": 0', b'"rank": %d' % (2 * number))
        (folder.spool_dir(node) / "events.jsonl").write_bytes(record)
        for fact in (Launched(node.dir), LinkChanged("ok"), Complete()):
            folder.write(Event(CREATED, node.name, fact))
    folder.close()
    return path


def printed(capsys: pytest.CaptureFixture[str], *more: str) -> list[str]:
    assert main(["logs", "a-run", *more]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return [re.sub(r" +\| ", " | ", line) for line in out.splitlines()]


def test_all_ranks_are_merged_by_time_and_folded(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys)
    assert lines[:2] == ["gpu[1-2]:launcher ×2 | launching", "[0-3] ×4 | step 0"]
    steps = [line for line in lines if "step" in line]
    assert steps == [f"[0-3] ×4 | step {step}" for step in range(4)]
    assert sorted(lines[2:6]) == [f"gpu{1 + rank // 2}:{rank} | loss 2.0{rank}" for rank in range(4)]
    assert lines[-1] == "gpu1:0 | bye"
    assert len(printed(capsys, "--no-fold")) == 2 + 4 * 8 + 1


def test_ranks_and_nodes_are_sets(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "--rank", "0,2", "--grep", "loss 2.0") == [
        "gpu1:0 | loss 2.00",
        "gpu2:2 | loss 2.02",
    ]
    assert printed(capsys, "--rank", "0", "--rank", "2-3", "--grep", "step 0") == ["[0,2-3] ×3 | step 0"]
    assert printed(capsys, "--node", "gpu[1-2]", "--rank", "1,3", "--grep", "step 0") == ["[1,3] ×2 | step 0"]
    assert printed(capsys, "--node", "gpu2", "--grep", "launching") == ["gpu2:launcher | launching"]
    assert printed(capsys, "--node", "gpu1", "--node", "gpu2", "--grep", "step 0") == ["[0-3] ×4 | step 0"]


def test_small_letters_match_capitals_and_an_exclamation_mark_inverts(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(capsys, "--grep", "nan") == ["gpu2:3 | loss NaN"]
    assert printed(capsys, "--grep", "NAN") == []
    assert printed(capsys, "--grep", "!loss|step") == ["gpu[1-2]:launcher ×2 | launching", "gpu1:0 | bye"]
    assert printed(capsys, "--grep", "bye$") == ["gpu1:0 | bye"]


def test_the_last_lines_of_each_rank(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted(printed(capsys, "--tail", "1", "--rank", "0-2")) == [
        "gpu1:0 | bye",
        "gpu1:1 | loss 2.31",
        "gpu2:2 | loss 2.32",
    ]
    assert printed(capsys, "--tail", "2", "--rank", "0") == ["gpu1:0 | loss 2.30", "gpu1:0 | bye"]
    assert printed(capsys, "--tail", "1", "--grep", "step") == ["[0-3] ×4 | step 3"]
    assert printed(capsys, "--tail", "0") == []
    assert len(printed(capsys, "--tail", "99", "--no-fold")) == 2 + 4 * 8 + 1


def test_what_is_missing_before_the_last_lines_is_not_among_them(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder(run)
    folder.lock()
    folder.write(Event(CREATED + 2, "gpu2", Gap("rank-2.log", 0, 100)))
    folder.close()
    assert "100 bytes" in printed(capsys, "--rank", "2")[0]
    assert "gpu2:2 | loss 2.32" in printed(capsys, "--tail", "1")
    assert not [line for line in printed(capsys, "--tail", "1") if "100 bytes" in line]


def test_a_time_of_day_is_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """At ten past midnight, 23:50 was twenty minutes ago."""
    midnight = time.mktime((2026, 3, 1, 0, 0, 0, 0, 0, -1))
    now = midnight + 600
    monkeypatch.setattr(time, "time", lambda: now)
    local = time.localtime
    monkeypatch.setattr(time, "localtime", lambda at=now: local(at))
    assert _since("23:50") == midnight - 600
    assert _since("0:05:30") == midnight + 330


def test_since_a_time(run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: CREATED + 10)
    steps = printed(capsys, "--since", "6s", "--grep", "step")
    assert steps == ["[0-3] ×4 | step 2", "[0-3] ×4 | step 3"]
    assert printed(capsys, "--since", "2s") == ["gpu1:0 | bye"]
    assert printed(capsys, "--since", "0s") == []
    assert printed(capsys, "--since", "2s", "--tail", "9") == ["gpu1:0 | bye"]
    # What no index tells the time of is newer than the rest.
    with (run / "spool/0000-gpu1/rank-1.log").open("ab") as log:
        log.write(b"after the index\n")
    assert printed(capsys, "--since", "0s") == ["gpu1:1 | after the index"]


def test_times(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line, *_) = printed(capsys, "--time", "--grep", "step")
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.000 \[0-3\] ×4 \| step 0", line)
    asked = [
        json.loads(line) for line in printed(capsys, "--json", "--time", "--grep", "step", "--rank", "1")
    ]
    assert [each["t"] for each in asked] == [CREATED + 2 + step for step in range(4)]


def test_json_tells_the_place_of_each_line(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = (run / "spool/0000-gpu1/rank-0.log").read_bytes()
    told = [json.loads(line) for line in printed(capsys, "--json", "--rank", "0", "--grep", "loss|bye")]
    assert [each["text"] for each in told] == ["loss 2.00", "loss 2.10", "loss 2.20", "loss 2.30", "bye"]
    for each in told:
        assert log[each["offset"] :].startswith(each["text"].encode())
        assert "t" not in each


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--rank", "9"], "no rank 9; it has 0-3"),
        (["--node", "gpu[1-3]"], "no node gpu3; it has gpu[1-2]"),
        (["--node", "gpu[1-"], "bad host name gpu[1-"),
        (["--grep", "a("], "/a(/: missing ), unterminated subpattern"),
        (["--tail", "-1"], "not a number of lines: '-1'"),
        (["--raw", "--rank", "0-1"], "--raw takes exactly one --rank"),
        (["--raw", "--rank", "0", "--json"], "--raw takes exactly one --rank, and nothing that selects"),
        (["--raw", "--rank", "0", "--tail", "1"], "--raw takes exactly one --rank, and nothing that selects"),
    ],
)
def test_what_is_not_in_the_run_is_refused(
    more: list[str], says: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["logs", "a-run", *more])
    except SystemExit as error:
        code = int(str(error.code))
    assert code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(("size", "code"), [(4, 0), (1000, 3)])
def test_a_raw_log_that_is_not_all_here_has_a_code_that_says_so(
    size: int, code: int, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    async def known(folder: RunFolder) -> None:
        return

    node = Node([part(("rank-0.log", 0, b"one\n"), sizes={"rank-0.log": size})])
    RunFolder.create(Manifest("run", 0.0, [NodeEntry("a", "/none/a", [0])], "command", ["true"], "/"))
    monkeypatch.setattr(logs, "started", known)
    monkeypatch.setattr(logs, "session_of", partial(session_of, pool=Fakes({"a": node})))
    if code == 3:
        monkeypatch.setattr(awaiting, "PATIENCE_S", 0.5)
    assert main(["logs", "run", "--raw", "--rank", "0"]) == code
    out, err = capfdbinary.readouterr()
    assert out == b"one\n"
    assert (b"a: more to fetch after 0.5 s; its output here may be incomplete\n" in err) == (code == 3)


def test_following_prints_what_comes_and_ends_with_the_run(
    tmp_path: Path, quick_cockpit: tuple[str, ...]
) -> None:
    verbs = Verbs(tmp_path / "state", tmp_path / "work", quick_cockpit)
    script = "echo one; printf par; while [ ! -e go ]; do sleep 0.05; done; echo tial; echo last; printf end"
    launched = verbs.begin(*verbs.words("r", script))
    until(lambda: verbs.spooled("r", 0).exists() and verbs.spooled("r", 0).stat().st_size, "output")
    following = [verbs.begin("logs", "-f", "r", *more) for more in ([], ["--grep", "!one"])]
    for process in following[:1]:
        assert process.stdout
        assert process.stdout.readline().endswith("| one\n")
    (tmp_path / "work" / "go").touch()
    assert verbs.end(launched).code == 0
    everything, some = [verbs.end(process) for process in following]
    words = json.loads((verbs.runs / "r" / "manifest.json").read_text())["command"]
    assert words == ["cockpit", *verbs.words("r", script)]
    assert (everything.code, some.code) == (0, 0)
    told = [line.partition("| ")[2] for line in everything.out.splitlines()]
    assert told == ["partial", "last", "end"]
    assert [line.partition("| ")[2] for line in some.out.splitlines()][-3:] == ["partial", "last", "end"]
