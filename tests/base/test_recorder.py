"""Dumps of torch's flight recorder: read within bounds, cut down, packed and unpacked."""

from __future__ import annotations

import json
import pickle
import zlib
from collections import OrderedDict
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cockpit.base.gate import Malformed
from cockpit.base.recorder import packing, pickles, reading
from cockpit.base.recorder.packing import ROWS, pack
from cockpit.base.recorder.reading import read_json, read_pickle
from cockpit.base.recorder.trace import DONE, GOING, Call, Entry, Group, Trace, lows, reduced
from cockpit.base.recorder.unpacking import unpack
from tests.recorder import recorded
from tests.recorder.enqueued import Rank

PAIRS = Group("nccl", "0", "pp")
GROUPS_MOST = 4096


def clean(text: str) -> str:
    """What is done to each text of a node."""
    return text.replace("\x1b", "?")


def dump(**more: Any) -> dict[str, Any]:
    """The first rank of a real job, with something else in its newest entry."""
    told: dict[str, Any] = deepcopy(recorded.told("slow")["dumps"][0])
    told["entries"] = told["entries"][:5]
    told["entries"][-1].update(more)
    return told


def test_a_real_dump() -> None:
    trace = read_json(recorded.dumps("missing")[1], "fr_trace_json")
    assert (trace.source, trace.version, trace.from_us, trace.whole) == ("fr_trace_json", "2.10", 0, True)
    assert len(trace.entries) == 77
    tensor, data, world = (
        Group("gloo", "1", "undefined"),
        Group("gloo", "4", "undefined"),
        Group("gloo", "0", "default_pg"),
    )
    assert trace.lows == {tensor: 1, data: 1, world: 1}
    assert trace.entries[0].call == Call(tensor, "all_reduce", "64x8", 512, 512, "Float", -1)
    assert [(entry.call.group, entry.number, entry.state) for entry in trace.entries[-4:]] == [
        (data, 49, DONE if trace.entries[-4].state == DONE else GOING),
        (data, 50, GOING),
        (data, 51, GOING),
        (data, 52, GOING),
    ]
    assert trace.members == {}


def test_a_rank_that_did_nothing_has_no_entries() -> None:
    told = dump()
    del told["entries"]
    assert read_json(json.dumps(told).encode(), "x") == Trace("x", "2.10")


def test_what_a_recorder_has_forgotten_is_told() -> None:
    told = dump()
    told["entries"] = told["entries"][2:]
    trace = read_json(json.dumps(told).encode(), "x")
    assert not trace.whole
    assert trace.from_us == trace.entries[0].at_us
    # A program can make it forget all: then the entries are counted anew.
    told["entries"][0]["record_id"] = 0
    assert not read_json(json.dumps(told).encode(), "x").whole


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"collective_seq_id": -1}, ".entries[4]: expected an integer from 0"),
        ({"collective_seq_id": 1 << 63}, ".entries[4]: expected an integer from 0"),
        ({"collective_seq_id": "7"}, ".entries[4]: expected an integer"),
        ({"collective_seq_id": True}, ".entries[4]: expected an integer"),
        ({"time_created_ns": 1.5}, ".entries[4]: expected an integer"),
        ({"process_group": "0"}, ".entries[4]: .process_group: expected a name and a description"),
        ({"process_group": ["0", []]}, ".entries[4]: expected a text"),
        ({"profiling_name": None}, ".entries[4]: expected a text"),
        ({"input_sizes": [[1] * 33]}, ".entries[4]: expected a size of at most"),
        ({"input_sizes": [[-1]]}, ".entries[4]: expected an integer"),
        ({"input_sizes": [[1]] * 5000}, ".entries[4]: expected the sizes of at most"),
        ({"input_dtypes": {}}, ".entries[4]: expected at most"),
    ],
)
def test_an_entry_that_makes_no_sense(more: dict[str, Any], said: str) -> None:
    with pytest.raises(Malformed) as caught:
        read_json(json.dumps(dump(**more)).encode(), "x")
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "expected an object, got a list"),
        (b"{}", "expected a text"),
        (b'{"version":"3.0"}', "a dump of version '3.0': only 2.* is known"),
        (b'{"version":"2.4","entries":{}}', ".entries: expected a list"),
        (b'{"version":"2.4","entries":[7]}', ".entries[0]: expected an object, got 7"),
        (b'{"version":"2.4","entries":[{}]}', ".entries[0]: 'process_group' is missing"),
        (b'{"version":"2.4","n":' + b"9" * 2_000_000 + b"}", "not JSON: an integer of 2000000 digits"),
        (b'{"version":"2.4","n":NaN}', "not JSON: NaN"),
        (b'{"version":' + b"[" * 100_000, "nested too deeply"),
        (b" " * (reading.DUMP + 1), "more than"),
        (json.dumps({"version": "2.4", "entries": [0] * 50_001}).encode(), ".entries: expected a list"),
    ],
)
def test_a_dump_that_makes_no_sense(data: bytes, said: str) -> None:
    with pytest.raises(Malformed) as caught:
        read_json(data, "x")
    assert str(caught.value).startswith(said)


def test_long_texts_are_cut() -> None:
    trace = read_json(json.dumps(dump(input_sizes=[[7, 8]] * 900)).encode(), "x")
    (call,) = {entry.call for entry in trace.entries[-1:]}
    assert len(call.shapes) == 201
    assert call.inputs == 7 * 8 * 900


def test_groups_whose_ranks_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {
        "1": {"name": "1", "desc": "", "ranks": "[3, 1, 2]"},
        "2": {"name": "2", "desc": "", "ranks": "[]"},
        "3": {"ranks": "[1, x]"},
        "4": {"ranks": "[99999999999999]"},
        "5": 7,
        "": {"ranks": "[1]"},
    }
    trace = read_json(json.dumps({**dump(), "pg_config": config}).encode(), "x")
    assert trace.members == {"1": (1, 2, 3)}
    monkeypatch.setattr(reading, "MEMBERS", 1000)
    many = {str(group): {"ranks": "[1, 2, 3, 4]"} for group in range(200)}
    with pytest.raises(Malformed, match="ranks in groups"):
        read_json(json.dumps({**dump(), "pg_config": many}).encode(), "x")


@pytest.mark.parametrize(
    "told",
    [
        dump(profiling_name="nccl:send 0->999999999"),
        dump(is_p2p="yes"),
        {**dump(), "pg_config": {f"g{place}": {"ranks": "[0]"} for place in range(GROUPS_MOST + 1)}},
        {**dump(), "pg_config": {f"g{place}": 7 for place in range(GROUPS_MOST + 1)}},
    ],
)
def test_what_our_side_would_not_take_is_refused_on_the_node(told: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        read_json(json.dumps(told).encode(), "x")


def test_more_than_our_side_would_take_is_refused_on_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = read_json(json.dumps(dump()).encode(), "x")
    with pytest.raises(Malformed, match="entries"):
        pack(Trace("x", "2.10", trace.entries[:1] * (ROWS + 1), lows=trace.lows))
    monkeypatch.setattr(packing, "UNPACKED", 500)
    with pytest.raises(Malformed, match="names of more than"):
        pack(trace)


def test_what_an_older_cockpit_has_packed_is_read() -> None:
    trace = Trace("x", "2.10", (Entry(Call(PAIRS, "send", "8", 8, 8, "Float", 1, True), 1, 1, GOING),))
    told = json.loads(zlib.decompress(pack(trace._replace(lows=lows(trace.entries)))))
    for name in ("pairwise", "sources", "made_at"):
        del told[name]
    found = unpack(zlib.compress(json.dumps(told).encode()), clean)
    assert found.entries == trace.entries


# Pickles

PICKLED = pickle.dumps(dump(), 2)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 60), 1 << 60) | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=8) | st.integers(0, 99), inner, max_size=4)
        | st.tuples(inner, inner)
        | st.tuples(inner)
        | st.just(())
    ),
    max_leaves=20,
)


class Evil:
    """What a pickle can do where it is loaded as usual."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


@given(PLAIN, st.sampled_from([2, 3, 4, 5]))
def test_plain_data_is_read(value: Any, protocol: int) -> None:
    assert pickles.load(pickle.dumps(value, protocol)) == value


def test_no_class_is_ever_resolved(tmp_path: Path) -> None:
    for protocol in range(6):
        data = pickle.dumps({"version": "2.10", "entries": [Evil(tmp_path / "made")]}, protocol)
        with pytest.raises(Malformed, match=r"opcode|plain data"):
            read_pickle(data)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", [OrderedDict(a=1), {1, 2}, b"bytes", bytearray(b"x"), Path("/"), 1j])
def test_what_is_not_plain(value: Any) -> None:
    for protocol in range(6):
        with pytest.raises(Malformed):
            pickles.load(pickle.dumps([value], protocol))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b".",
        b"}.}.",  # what follows the end is left
        b"]]a",  # no end
        b"(((",
        b"t.",
        b"u.",
        b"h\x05.",
        b"q\x00.",
        b"\x85.",
        b"a.",
        b"s.",
        b"]K\x01s.",
        b"}K\x01a.",
        b"}(K\x01u.",
        b"}(]K\x01u.",  # a list is no name
        b"N" * 10 + b".",
        b"(I" + b"9" * 5_000_000 + b"\n.",
        b"X\xff\xff\xff\xffx.",
        b"\x8d" + b"\xff" * 8 + b"x.",
        b"\x8a\xff" + b"\x01" * 254 + b".",
        b"N" + b"\x85" * 200_000 + b"(u.",
        b"}(N" + b"\x85" * 200_000 + b"Nu.",  # hashing that name would end the interpreter
        b"}(J\xff\xff\xff\xffNu.",  # names that can be chosen to collide
        b"}(J\x00\x00\x10\x00Nu.",
        b"}(\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x1fNu.",
        b"}J\x00\x00\x10\x00Ns.",
        b"Nr\x00\x09\x3d\x00.",
    ],
)
def test_pickles_that_are_none(data: bytes) -> None:
    if data == b"}.}.":
        assert pickles.load(data) == {}
        return
    with pytest.raises(Malformed):
        pickles.load(data)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 400), st.integers(0, 255))
def test_any_bytes_are_a_dump_or_malformed(data: bytes, at: int, byte: int) -> None:
    real = bytearray(PICKLED)
    real[at] = byte
    for one in (data, bytes(real), bytes(real[:at])):
        with suppress(Malformed):
            assert isinstance(read_pickle(one), Trace)


def test_a_bomb_of_opcodes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "OPCODES", 1000)
    with pytest.raises(Malformed, match="more than 1000 opcodes"):
        pickles.load(b"N" * 1001 + b".")


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [
        b"(" + b"}" * 900_000 + b"l.",
        b"]" + b"".join(b"r" + place.to_bytes(4, "little") for place in range(900_000)) + b".",
        b"N" + b"\x85" * 2_000_000 + b".",
    ],
)
def test_few_bytes_that_make_much_are_bounded(data: bytes) -> None:
    with pytest.raises(Malformed, match="values of more than"):
        pickles.load(data)


@pytest.mark.parametrize("part", [b"[],", b"{},", b"1.5,"])
def test_values_of_a_json_dump_are_bounded(part: bytes) -> None:
    data = b'{"version":"2.10","x":[' + part * 1_600_000 + b"0]}"
    assert len(data) < reading.DUMP
    with pytest.raises(Malformed, match="lists and objects"):
        read_json(data, "x")


def test_a_ring_ten_times_the_usual_is_within_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    # 2,000 entries with stacks, a tenth of each bound.
    monkeypatch.setattr(pickles, "MEMORY", pickles.MEMORY // 10)
    monkeypatch.setattr(pickles, "OPCODES", pickles.OPCODES // 10)
    for name in ("CONTAINERS", "VALUES", "DUMP"):
        monkeypatch.setattr(reading, name, getattr(reading, name) // 10)
    one = Rank(0, 8)
    stack = [{"name": f"f{place}", "filename": f"/x/{place}.py", "line": place} for place in range(25)]
    for place in range(2000):
        one.collective("all_reduce", place % 97, frames=list(stack))
    assert len(read_pickle(one.pickled()).entries) == 2000
    plain = [{name: value for name, value in each.items() if name != "frames"} for each in one.entries]
    assert len(read_json(json.dumps({**one.told(), "entries": plain}).encode(), "x").entries) == 2000


def test_one_list_many_times_is_bounded() -> None:
    # Lists that are shared cost a pickle nothing: 1,000 entries, each with 4,096 times one of 32 sizes.
    sizes = [[1] * 32] * 4096
    entry = {**dump()["entries"][0], "input_sizes": sizes}
    with pytest.raises(Malformed, match="more than 4000000 sizes"):
        read_pickle(pickle.dumps({"version": "2.10", "entries": [dict(entry) for _ in range(1000)]}, 2))


def test_the_pickle_of_torch_says_the_same_as_its_json() -> None:
    # What NCCL's watchdog writes: protocol 2, times that are missing are None, with stacks.
    told = recorded.told("missing")["dumps"][3]
    for entry in told["entries"]:
        entry["process_group"] = tuple(entry["process_group"])
        entry["time_discovered_started_ns"] = None
        entry["frames"] = [{"name": "all_reduce", "filename": "/x/train.py", "line": 7}]
    trace = read_pickle(pickle.dumps(told, 2), "x")
    assert {entry.source for entry in trace.entries} == {"", "train.py:7 all_reduce"}
    plain = tuple(entry._replace(source="") for entry in trace.entries)
    assert trace._replace(entries=plain) == read_json(recorded.dumps("missing")[3], "x")


# Cut down and packed

NAMES = st.text(max_size=6)
GROUPS = st.builds(Group, st.sampled_from(["gloo", "nccl"]), NAMES, NAMES)
CALLS = st.builds(
    Call,
    GROUPS,
    st.sampled_from(["all_reduce", "send", "barrier"]),
    NAMES,
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 40),
    st.sampled_from(["", "Float"]),
    st.integers(-1, 9),
    st.booleans(),
)
ENTRIES = st.builds(
    Entry,
    CALLS,
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 50),
    st.sampled_from([GOING, DONE]),
    st.sampled_from(["", "train.py:7 step", "data.py:9 read"]),
)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Any trace."""
    kinds = draw(st.lists(CALLS, min_size=1, max_size=5))
    rows = draw(
        st.lists(st.builds(lambda entry, call: entry._replace(call=call), ENTRIES, st.sampled_from(kinds)))
    )
    entries = tuple(sorted(rows, key=lambda entry: entry.at_us))
    members = draw(st.dictionaries(NAMES, st.lists(st.integers(0, 5000), unique=True).map(tuple), max_size=3))
    return Trace("x", "2.10", entries, draw(st.integers(0, 99)), draw(st.booleans()), lows(entries), members)


@pytest.mark.slow
@given(traces())
def test_what_is_packed_is_unpacked(trace: Trace) -> None:
    assert unpack(pack(trace), str) == trace


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(traces(), st.one_of(st.integers(0, 3), st.integers(0, 1 << 50)), st.integers(1, 30))
def test_what_is_left_out_is_told(trace: Trace, since: int, rows: int) -> None:
    cut = reduced(trace, since, rows)
    assert len(cut.entries) <= rows
    assert cut.lows == trace.lows
    kept = list(cut.entries)
    before = iter(trace.entries)
    assert all(entry in before for entry in kept), "some of them, in their order"
    for entry in trace.entries:
        if entry.at_us >= cut.from_us:
            assert entry in kept
    assert cut.from_us >= max(since, trace.from_us)


def test_a_full_recorder_becomes_a_few_kilobytes() -> None:
    real = recorded.told("slow")["dumps"][2]
    entries = [dict(real["entries"][place % 78]) for place in range(2000)]
    for place, entry in enumerate(entries):
        # Microseconds that cannot be guessed, as they are.
        entry["time_created_ns"] += place * 10**7 + hash((place, 1)) % 10**7
        entry["record_id"] = place + 7
        entry["collective_seq_id"] += place // 78 * 13
    data = json.dumps({**real, "entries": entries}).encode()
    trace = read_json(data, "x")
    assert len(data) > 900_000
    assert len(pack(trace)) < 20_000
    last = trace.entries[-1].at_us
    assert len(pack(reduced(trace, last - 10_000_000, 4000))) < 8_000
    assert len(reduced(trace, 0, 100).entries) == 100


def packed(**more: Any) -> bytes:
    """A packed trace with something else in it."""
    trace = read_json(recorded.dumps("slow")[0], "x")
    told = json.loads(zlib.decompress(pack(trace)))
    return zlib.compress(json.dumps({**told, **more}).encode())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x" * 100,
        packed()[:-1],
        packed() + b"x",
        zlib.compress(b" " * (packing.UNPACKED + 1)),
        zlib.compress(b"[" * 100_000),
        packed(call=[0]),
        packed(call=[99] * 78),
        packed(number=[-1] * 78),
        packed(at=[1 << 60] * 78),
        packed(at=[-1] * 78),
        packed(state="2" * 78),
        packed(state="0" * 77),
        packed(groups=[]),
        packed(groups=[["a", "b", "c", 1]] * 3),
        packed(groups=[["a", "b", "c" * 300, 1]]),
        packed(calls=[[7, "x", "", 0, 0, "", -1]]),
        packed(members={"x": [5, -6]}),
        packed(members={"x": [1 << 20]}),
        packed(from_us=-1),
        packed(whole=1),
        packed(call=[0] * (ROWS + 1)),
        packed(pairwise=[-1]),
        packed(sources=["train.py:7"], made_at=[[0, 1]]),
        packed(sources=["train.py:7"], made_at=[[78, 0]]),
        packed(sources=["x" * 300]),
    ],
)
def test_what_is_not_a_packed_trace(data: bytes) -> None:
    with pytest.raises(Malformed):
        unpack(data, clean)


def test_every_text_of_a_node_is_cleaned() -> None:
    evil = "\x1b]52;c;x\x07"
    trace = Trace(
        evil,
        evil,
        (Entry(Call(Group(evil, evil, evil), evil, evil, 1, 1, evil, -1), 1, 1, DONE),),
        lows={Group(evil, evil, evil): 1},
        members={evil: (1,)},
    )
    assert "\x1b" not in repr(unpack(pack(trace), clean)).replace("\\x1b", "\x1b")
