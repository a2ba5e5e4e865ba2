"""The gate: whatever is read is a value within its bounds, or Malformed; nothing else."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cockpit.base import answers, events, frames, gate, verbs
from cockpit.base.events import RecordLines
from cockpit.base.gate import (
    FILE_NAME,
    FILE_PATH,
    PATH,
    RUN_NAME,
    Digits,
    Flag,
    ListOf,
    Malformed,
    MapOf,
    Maybe,
    Number,
    Of,
    RowOf,
    Whole,
    bound,
    parsed,
    plain,
    read,
)
from cockpit.core.run.events import RecordReader
from cockpit.engine.links.link import REPLIES
from cockpit.errors import CockpitError

DEFINITIONS = [
    *events.RECORD.values(),
    *events.OWN.values(),
    *verbs.VERBS.values(),
    *(part for reply in REPLIES.values() for part in reply),
    answers.Hello,
    answers.Trouble,
]

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(10**300, 10**400)
    | st.floats()
    | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@dataclasses.dataclass(frozen=True)
class Inner:
    """One field."""

    number: int = bound(Whole(0, 9))


@dataclasses.dataclass(frozen=True)
class Outer:
    """Something of everything."""

    name: str = bound(RUN_NAME)
    inner: Inner = bound(Of(Inner))
    rows: tuple[Inner, ...] = bound(ListOf(RowOf(Inner), 2), ())
    by_rank: dict[int, float] = bound(MapOf(Digits(Whole(0, 99)), Number(0, 10), 3), {})
    flag: bool | None = bound(Maybe(Flag()), None)


def test_what_fits_is_read_and_written_back() -> None:
    told: dict[str, object] = {
        "name": "a-run.1",
        "inner": {"number": 3, "more": "of a later version"},
        "rows": [[1], [2]],
        "by_rank": {"7": 1.5, "0": 2},
        "flag": None,
        "unknown": [[[]]],
    }
    found = read(Outer, told)
    assert found == Outer("a-run.1", Inner(3), (Inner(1), Inner(2)), {7: 1.5, 0: 2.0})
    assert plain(found) == {
        "name": "a-run.1",
        "inner": {"number": 3},
        "rows": [{"number": 1}, {"number": 2}],
        "by_rank": {"7": 1.5, "0": 2.0},
        "flag": None,
    }


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": None}, ".name: expected a text, got None"),
        ({"name": "../../x"}, ".name: expected a text like"),
        ({"name": "a" * 65}, ".name: expected a text of at most 64"),
        ({"inner": {}}, ".inner.number: missing"),
        ({"inner": []}, ".inner: expected an object, got a list"),
        ({"inner": {"number": True}}, ".inner.number: expected an integer from 0 to 9, got True"),
        ({"inner": {"number": 10}}, ".inner.number: expected an integer from 0 to 9, got 10"),
        ({"inner": {"number": 10**400}}, ".inner.number: expected an integer from 0 to 9, got an integer of"),
        ({"inner": {"number": 1.0}}, ".inner.number: expected an integer"),
        ({"rows": [[1], [2], [3]]}, ".rows: expected at most 2 entries, got 3"),
        ({"rows": [[1, 2]]}, ".rows[0]: expected a list of 1 values"),
        ({"by_rank": {"07": 1}}, ".by_rank['07']: expected digits"),
        ({"by_rank": {"٣": 1}}, ".by_rank['\\u0663']: expected digits"),
        ({"by_rank": {"7": float("nan")}}, ".by_rank['7']: expected a number"),
        ({"by_rank": {"7": float("inf")}}, ".by_rank['7']: expected a number"),
        ({"by_rank": {"7": 10**400}}, ".by_rank['7']: expected a number"),
        ({"flag": 1}, ".flag: expected true or false, got 1"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(Malformed) as caught:
        read(Outer, {"name": "a", "inner": {"number": 1}, **changes})
    assert str(caught.value).startswith(said)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda found: str(found.__name__))
def test_every_definition_has_bounds_for_every_field(definition: type[Any]) -> None:
    assert definition.__doc__
    assert [name for name, _, _ in gate.fields(definition)] == [
        field.name for field in dataclasses.fields(definition)
    ]


@pytest.mark.few(30)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda found: str(found.__name__))
def test_whatever_comes_is_a_value_or_malformed(definition: type[Any], data: st.DataObject) -> None:
    names = [name for name, _, _ in gate.fields(definition)] or ["x"]
    told = data.draw(JSON | st.dictionaries(st.sampled_from(names), JSON, max_size=len(names)))
    try:
        found = read(definition, told)
    except Malformed:
        return
    assert isinstance(found, definition)
    # What passed can be written down, and passes again.
    assert written(read(definition, json.loads(json.dumps(written(found))))) == written(found)


def written(found: Any) -> Any:
    """The JSON form of an object; of lines of a run record those that made sense."""
    lines = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
    told = {
        name: [line.as_json() for line in each.lines]
        for name, each in lines.items()
        if isinstance(each, RecordLines)
    }
    return {**plain(found), **told}


@pytest.mark.parametrize("lines", [[], [{"t": 1.0, "e": "ended"}], [{"t": "x"}]])
def test_lines_of_a_run_record_can_be_written_down(lines: list[Any]) -> None:
    found = read(answers.StatusAnswer, {"events": lines})
    assert written(found)["events"] == [line for line in lines if "e" in line]
    assert read(answers.StatusAnswer, written(found)).events.lines == found.events.lines


def test_a_file_name_that_is_not_utf8_passes() -> None:
    name = b"report-\xff\xfe.nsys-rep".decode("utf-8", "surrogateescape")
    over_the_wire = json.loads(json.dumps({"files": [{"name": name, "size": 1}]}))
    assert read(answers.ReportsAnswer, over_the_wire).files[0].name == name
    assert FILE_NAME.read("a\nb\x1b]52;c;x\x07") == "a\nb\x1b]52;c;x\x07"  # harmless once it is printed


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "/a", "a\0b", "n" * 256, None, 3, "a\ud800", "\udc7f"]
)
def test_a_file_name_is_no_path(name: object) -> None:
    with pytest.raises(Malformed):
        FILE_NAME.read(name)


@pytest.mark.parametrize(
    "name", ["../../..", "/abs", "a/b", ".hidden", "-rf", "a b", "a\n", "", "é", "a" * 65]
)
def test_a_run_cannot_be_called_that(name: str) -> None:
    with pytest.raises(Malformed):
        RUN_NAME.read(name)


@pytest.mark.parametrize("path", ["/a", "/a/b", "/a//..b", "/\udc80/\udcff", "/a\nb/c\n"])
def test_the_path_of_a_file_ends_with_its_name(path: str) -> None:
    assert FILE_PATH.read(path) == path
    for wrong in (f"{path}/", f"{path}/.", f"{path}/..", path[1:], f"{path}\ud800"):
        with pytest.raises(Malformed):
            FILE_PATH.read(wrong)


def test_the_root_is_no_file() -> None:
    with pytest.raises(Malformed):
        FILE_PATH.read("/")


@pytest.mark.parametrize(
    "path", ["", "a", "./a", "a\0", "/a\0b", "/" + "a" * 4096, 5, "/a\ud800b", "/\udd00"]
)
def test_a_path_is_absolute(path: object) -> None:
    with pytest.raises(Malformed):
        PATH.read(path)


@pytest.mark.parametrize(
    "text", [b"[" * 200_000, b'{"a":' * 100_000, b"9" * 5000, b"\xff", b"", b"nul", b'{"a": 1'], ids=len
)
def test_json_that_breaks_parsers(text: bytes) -> None:
    with pytest.raises(Malformed):
        parsed(text)
    decoder = frames.Decoder()
    with pytest.raises(frames.FrameError):
        list(decoder.feed(len(text).to_bytes(4, "big") + b"\0\0\0\0" + text))


def test_a_node_speaks_of_its_own_ranks_only() -> None:
    record = RecordReader("a", [0, 1])
    told = [{"t": 1, "e": "rank_started", "rank": rank} for rank in (0, 5, 1)]
    found = record.feed(b"".join(json.dumps(line).encode() + b"\n" for line in told))
    assert [event.fact.rank for event in found if isinstance(event.fact, events.RankStarted)] == [0, 1]
    assert record.bad == 1


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(1, 50), max_size=8))
def test_a_record_reads_the_same_in_any_pieces(lines: list[bytes], cuts: list[int]) -> None:
    good = b'{"t": 1, "e": "note", "text": "x"}'
    data = b"".join(line.replace(b"\n", b"") + b"\n" + good + b"\n" for line in lines)
    whole, pieces = RecordReader("a", [0]), RecordReader("a", [0])
    found = []
    rest = data
    for cut in cuts:
        found += pieces.feed(rest[:cut])
        rest = rest[cut:]
    found += pieces.feed(rest)
    assert found == whole.feed(data)
    assert pieces.bad == whole.bad
    assert len(found) >= len(lines)


def test_malformed_is_an_error_for_code_not_for_people() -> None:
    assert not issubclass(Malformed, CockpitError)


def test_definitions_of_the_wire_behave_as_dataclasses() -> None:
    one, same = verbs.Meet(80, limit_s=2.0), verbs.Meet(limit_s=2.0, port=80)
    assert one == same != dataclasses.replace(one, port=81)
    assert {one: 1}[same] == 1
    assert repr(one) == "Meet(port=80, limit_s=2.0)"
    assert verbs.Checkup().names == ()
    assert verbs.Facts("/").tools == {}
    assert verbs.Facts("/").tools is not verbs.Facts("/").tools
    meet: Any = verbs.Meet
    with pytest.raises(dataclasses.FrozenInstanceError):
        meet(80).port = 81
    for values, named in (((1, 2.0, 3), {}), ((1,), {"port": 1}), ((), {"ports": 1})):
        with pytest.raises(TypeError):
            meet(*values, **named)
    facts: Any = verbs.Facts
    with pytest.raises(TypeError):
        facts()
