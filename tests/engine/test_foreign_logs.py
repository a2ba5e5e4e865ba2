"""Files of a job that others started, sorted into logs; and what is known after a crash."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.base.answers import OpenFile
from cockpit.base.gate import RANKS_A_NODE
from cockpit.base.shared_fields import Caller
from cockpit.core.logs.sources import Output
from cockpit.engine.records.manifest import Foreign
from cockpit.engine.run import foreign_logs as outlets_module
from cockpit.engine.run.foreign_logs import LEDGER, Outlet, Outlets

NODES = {"a": [0, 1], "b": [2]}
TWO = {"a": [0, 1], "b": [2, 3]}


def seen(name: str, *ranks: int, shared: bool = False) -> OpenFile:
    """A file as a node reports it."""
    return OpenFile(name, f"/logs/{name}", 1, 2, 0, 10, 20, 1, ranks, shared)


def known(outlets: Outlets, node: str, file: OpenFile) -> Outlet:
    """The outlet of a file that this node reads."""
    found = outlets.known(node, file)
    assert found is not None
    return found


def gathered(pieces: list[tuple[Output, bytes]]) -> dict[Output, bytes]:
    """The bytes of each log."""
    logs: dict[Output, bytes] = {}
    for source, data in pieces:
        logs[source] = logs.get(source, b"") + data
    return logs


def test_a_file_of_one_rank_is_its_log_byte_for_byte(tmp_path: Path) -> None:
    outlets = Outlets(tmp_path, NODES)
    one = known(outlets, "a", seen("own", 1))
    assert outlets.sort(one, b"[rank0]: not really\nhalf") == [(("a", 1), b"[rank0]: not really\nhalf")]
    assert not one.held


def test_lines_of_a_shared_file_go_to_whom_they_name(tmp_path: Path) -> None:
    outlets = Outlets(tmp_path, NODES)
    one = known(outlets, "a", seen("all", 0, 1))
    pieces = outlets.sort(one, b"start\n[rank1]: x\nhm\n[rank1]: ha")
    assert pieces == [(("a", None), b"start\n"), (("a", 1), b"[rank1]: x\n"), (("a", None), b"hm\n")]
    assert one.held == b"[rank1]: ha"
    assert outlets.sort(one, b"lf\n") == [(("a", 1), b"[rank1]: half\n")]


def test_a_node_speaks_for_others_only_where_a_launcher_writes_for_all(tmp_path: Path) -> None:
    outlets = Outlets(tmp_path, TWO, foreign=Foreign((), passed=[2], away=["b"]))
    lines = b"[rank2]: y\n[rank3]: y\nb: z\n"
    one = known(outlets, "a", seen("all", 0, 1))
    assert outlets.sort(one, lines) == [(("a", None), lines)]
    slurm = known(outlets, "a", seen("slurm", 0, 1, shared=True))
    assert outlets.sort(slurm, lines) == [
        (("b", 2), b"[rank2]: y\n"),
        (("a", None), b"[rank3]: y\n"),
        (("b", None), b"b: z\n"),
    ]


def test_no_node_speaks_for_ranks_whose_own_node_has_their_output(tmp_path: Path) -> None:
    """A node that lies about its files, and about the ranks that write there."""
    outlets = Outlets(tmp_path, TWO)
    for ranks in ((0,), (2,), (0, 1, 2, 3)):
        evil = known(outlets, "a", seen(f"evil{ranks}", *ranks, shared=True))
        lines = b"[rank2]: exitcode : 1\n[1,3]<stdout>:x\nb: [default0]: z\nb: w\n"
        assert outlets.sort(evil, lines) == [(("a", None), lines)]
        assert evil.ranks <= {0, 1}


def test_where_a_launcher_has_the_connections_of_ranks_its_file_is_theirs(tmp_path: Path) -> None:
    callers = {"a": [Caller((2, 3), "10.0.0.1", 40000, "10.0.0.2", 22)]}
    foreign = Foreign((), callers=callers, passed=[2, 3], away=["b"])
    outlets = Outlets(tmp_path, TWO, foreign=foreign)
    ssh = known(outlets, "a", seen("ssh", 2, 3, 0))
    assert outlets.sort(ssh, b"hm\n[rank3]: x\n[rank1]: x\n") == [
        (("a", None), b"hm\n"),
        (("b", 3), b"[rank3]: x\n"),
        (("a", 1), b"[rank1]: x\n"),
    ]
    other = known(outlets, "a", seen("loop", 2, 3))
    assert outlets.sort(other, b"hm\nb: ha\n[default1]: x\n") == [
        (("b", None), b"hm\nb: ha\n"),
        (("b", 3), b"[default1]: x\n"),
    ]
    own = known(outlets, "a", seen("own", 2))
    assert outlets.sort(own, b"[rank0]: x\nhalf") == [(("b", 2), b"[rank0]: x\nhalf")]


def test_a_bar_that_never_ends_its_line_is_shown(tmp_path: Path) -> None:
    outlets = Outlets(tmp_path, NODES)
    one = known(outlets, "a", seen("all", 0, 1))
    bar = b"".join(b"\r%3d%%|####|" % share for share in range(40))
    assert outlets.sort(one, bar) == [(("a", None), bar)]
    assert outlets.sort(one, b"\r41%") == [(("a", None), b"\r41%")]
    assert outlets.sort(one, b"\n[rank0]: x\n") == [(("a", None), b"\n"), (("a", 0), b"[rank0]: x\n")]


def test_two_files_of_one_rank_do_not_mix_within_a_line(tmp_path: Path) -> None:
    outlets = Outlets(tmp_path, NODES)
    out, err = known(outlets, "a", seen("out", 0)), known(outlets, "a", seen("err", 0))
    assert outlets.sort(out, b"step 1 lo") == []
    assert outlets.sort(err, b"warning\n") == [(("a", 0), b"warning\n")]
    assert outlets.sort(out, b"ss 2\n") == [(("a", 0), b"step 1 loss 2\n")]
    outlets.sort(err, b"the end")
    assert outlets.rest(err) == [(("a", 0), b"the end")]


def test_what_a_launcher_repeats_of_a_ranks_own_file_stays_with_the_launcher(tmp_path: Path) -> None:
    outlets = Outlets(tmp_path, NODES)
    known(outlets, "a", seen("own", 0))
    console = known(outlets, "a", seen("console"))
    assert outlets.sort(console, b"[rank0]: x\n") == [(("a", None), b"[rank0]: x\n")]


def test_errors_of_their_own_do_not_hide_what_ranks_write_to_one_file(tmp_path: Path) -> None:
    outlets = Outlets(tmp_path, NODES)
    known(outlets, "a", seen("errors", 0))
    one = known(outlets, "a", seen("all", 0, 1))
    assert outlets.sort(one, b"[rank0]: x\n") == [(("a", 0), b"[rank0]: x\n")]


def test_a_file_that_two_nodes_see_is_read_by_one(tmp_path: Path) -> None:
    outlets = Outlets(tmp_path, NODES)
    one = known(outlets, "a", seen("nfs", 0))
    assert outlets.known("b", seen("nfs", 2)) is None
    assert one.ranks == {0, 2}
    assert [each.id for each in outlets.read_by("a")] == ["nfs"]
    assert outlets.read_by("b") == []
    assert outlets.sort(one, b"[rank2]: x\nhm\n") == [(("b", 2), b"[rank2]: x\n"), (("a", None), b"hm\n")]


def test_a_node_does_not_speak_for_ranks_of_others_in_a_file_of_its_own(tmp_path: Path) -> None:
    outlets = Outlets(tmp_path, NODES)
    one = known(outlets, "b", seen("own", 0, 1, 2))
    assert one.ranks == {2}


def test_whoever_continues_knows_how_far_it_came(tmp_path: Path) -> None:
    outlets = Outlets(tmp_path, NODES)
    one = known(outlets, "a", seen("all", 0, 1))
    outlets.sort(one, b"start\n[rank1]: x\n\r" + b"#" * 300)
    one.offset = 17 + 301
    outlets.note(one, {("a", None): 307, ("a", 1): 11})
    other = known(outlets, "a", seen("more", 0))
    other.offset = 5
    outlets.note(other, {("a", 0): 5})
    outlets.close()
    with (tmp_path / LEDGER).open("ab") as file:
        file.write(b'{"file": 0, "offset": 99')  # cut off by a crash

    again = Outlets(tmp_path, NODES)
    assert again.load() == {("a", None): 307, ("a", 1): 11, ("a", 0): 5}
    first, second = again.read_by("a")
    assert (first.id, first.offset, first.open, first.ranks) == ("all", 318, ("a", None), {0, 1})
    assert (second.id, second.offset, second.open) == ("more", 5, None)
    assert first.place.path == "/logs/all"
    again.note(first, {})
    again.close()
    third = Outlets(tmp_path, NODES)
    assert third.load() == again.load()


@given(
    st.lists(st.sampled_from([b"[rank0]: ", b"[rank1]: ", b"", b"\r", b"x" * 300, b"\n"]), max_size=30),
    st.lists(st.integers(1, 40), max_size=10),
)
def test_no_byte_is_lost_or_doubled_however_they_arrive(words: list[bytes], cuts: list[int]) -> None:
    data = b"".join(words)
    outlets = Outlets(Path("/nowhere"), NODES)
    one = known(outlets, "a", seen("all", 0, 1))
    pieces = []
    rest = data
    for cut in cuts:
        pieces += outlets.sort(one, rest[:cut])
        rest = rest[cut:]
    pieces += outlets.sort(one, rest) + outlets.rest(one)
    assert b"".join(piece for _, piece in pieces) == data


def test_a_file_of_more_ranks_than_a_node_may_have_is_known_again(tmp_path: Path) -> None:
    ranks = range(RANKS_A_NODE + 1)
    nodes: dict[str, list[int]] = {"a": list(ranks[::2]), "b": list(ranks[1::2]), "login": []}
    ends = [Caller((rank,), "10.0.0.9", 1 + rank, "10.0.0.1", 22) for rank in ranks]
    foreign = Foreign(("at",), callers={"login": ends}, passed=list(ranks), away=["a", "b"])
    outlets = Outlets(tmp_path, nodes, foreign=foreign)
    for some in (ranks[:3000], ranks[3000:]):
        one = outlets.known("login", OpenFile("out", "/out", 1, 2, 0, 3, 4, 1, tuple(some), True))
    assert one is not None
    one.offset = 7
    outlets.save()
    outlets.close()
    again = Outlets(tmp_path, nodes, foreign=foreign)
    again.load()
    assert [(each.offset, len(each.ranks)) for each in again.read_by("login")] == [(7, len(ranks))]


def test_a_line_that_was_held_is_not_lost_when_its_rank_has_the_log_to_itself(tmp_path: Path) -> None:
    outlets = Outlets(tmp_path, NODES)
    out, err = known(outlets, "a", seen("out", 0)), known(outlets, "a", seen("err", 0))
    assert outlets.sort(out, b"step 1 lo") == []
    assert err.ranks == {0}
    outlets.known("b", seen("err", 2))
    assert outlets.sort(out, b"ss 2\nstep") == [(("a", 0), b"step 1 loss 2\nstep")]


def test_the_ledger_is_written_anew_before_it_is_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlets_module, "_LEDGER_BYTES", 1000)
    outlets = Outlets(tmp_path, NODES)
    own = known(outlets, "a", seen("own", 0))
    longest = 0
    for step in range(100):
        own.offset = step
        outlets.note(own, {("a", 0): step})
        longest = max(longest, (tmp_path / LEDGER).stat().st_size)
    outlets.close()
    assert longest < 2500
    again = Outlets(tmp_path, NODES)
    assert again.load() == {("a", 0): 99}
    assert known(again, "a", seen("own", 0)).offset == 99
