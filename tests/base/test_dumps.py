"""Dumps travel and are kept as they were; whatever else is sent is refused, early and at little cost."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from json import JSONDecodeError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.base.gate import Malformed
from cockpit.base.stacks import dump as stacks
from cockpit.base.stacks import packing, unpacking
from cockpit.base.stacks.dump import (
    LEFT_OUT,
    Child,
    Deputy,
    Dump,
    Frame,
    LockFile,
    Process,
    Thread,
    Unanswered,
    fitted,
)
from cockpit.base.stacks.packing import TooLarge, dump_json, pack
from cockpit.base.stacks.unpacking import FromJson, Room, unpack

FRAMES = st.builds(
    Frame, st.sampled_from("abc"), st.sampled_from(["./x.py", "torch/y.py"]), st.integers(0, 3)
)
STACKS = st.lists(FRAMES, max_size=6).map(tuple)
THREADS = st.builds(
    Thread,
    st.text(max_size=5),
    st.integers(0, 9),
    st.booleans(),
    st.booleans(),
    STACKS,
    st.lists(st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2), max_size=2).map(tuple),
)
NAMES = st.text(max_size=3)
CHILDREN = st.builds(Child, st.integers(1, 9), NAMES, st.just("S"), st.lists(THREADS, max_size=2).map(tuple))
NUMBERS = {
    "switches": st.integers(0, 9),
    "cpu_s": st.floats(0, 1e9),
    "main_cpu_s": st.floats(0, 1e9),
    "idle_s": st.floats(0, 1e9),
    "switches_after": st.integers(-1, 9),
    "io_bytes": st.integers(0, 9),
    "below_s": st.floats(0, 1e9),
    "below_bytes": st.integers(0, 9),
}
PROCESSES = st.builds(
    Process,
    st.integers(1, 9),
    st.integers(0, 9),
    st.sampled_from("RSDTZ"),
    children=st.lists(CHILDREN, max_size=2).map(tuple),
    **NUMBERS,
)
ALONE = st.builds(
    Process, st.integers(1, 9), st.integers(0, 9), st.just("S"), children=st.just(()), **NUMBERS
)
DUMPS = st.builds(
    Dump,
    st.integers(0, 99),
    st.floats(0, 1e9),
    st.none() | PROCESSES,
    st.sampled_from(["plain", "native", ""]),
    st.lists(THREADS, max_size=3).map(tuple),
    notes=st.lists(st.text(max_size=3), max_size=2).map(tuple),
    loop=NAMES,
    deputy=st.none() | st.builds(Deputy, st.sampled_from(["thread", "child"]), THREADS, ALONE),
    lock=st.none()
    | st.builds(LockFile, NAMES, age_s=st.floats(0, 1e9), holder=st.integers(0, 9), name=NAMES),
    unanswered=st.lists(
        st.builds(Unanswered, st.just("10.0.0.7"), st.integers(0, 65535), st.integers(4, 15)), max_size=2
    ).map(tuple),
)

MAIN = Frame("<module>", "./train.py", 240)


def thread(*frames: Frame, name: str = "MainThread", **more: Any) -> Thread:
    return Thread(name, 1, True, False, frames, **more)


def packed(*lines: object) -> bytes:
    """These lines as an answer; a text is a line as it stands."""
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    return zlib.compress(text.encode())


def refused(data: bytes, room: Room | None = None) -> str:
    """Why an answer is not taken."""
    with pytest.raises((Malformed, TooLarge, JSONDecodeError, UnicodeDecodeError)) as caught:
        list(unpack(data, str, room))
    return str(caught.value)


def got(data: bytes) -> tuple[list[Dump], str]:
    """The dumps of an answer up to what is wrong with it, and what that is; empty: nothing."""
    found: list[Dump] = []
    try:
        for dump in unpack(data, str):
            found.append(dump)  # noqa: PERF402
    except ValueError as error:
        return found, str(error)
    return found, ""


@pytest.mark.slow
@given(st.lists(DUMPS, max_size=4))
def test_dumps_travel_unchanged(dumps: list[Dump]) -> None:
    assert list(unpack(pack(dumps), str)) == dumps
    assert [FromJson(str)(json.loads(json.dumps(dump_json(dump)))) for dump in dumps] == dumps


GOOD: dict[str, Any] = dump_json(
    Dump(
        3,
        1.5,
        Process(1, 2, "S", children=(Child(5, "worker", "S", (thread(MAIN, locals=({"a": "b"},)),)),)),
        "plain",
        (thread(MAIN),),
        notes=("continued",),
    )
)
"""A dump whose stacks are numbers once it is packed."""
GOOD["threads"][0]["stack"] = 0
GOOD["process"]["children"][0]["threads"][0]["stack"] = 0
BEFORE = ({"frames": [["a", "b", 1, 0]]}, {"nodes": [-1, 0]})

ODD: list[object] = [
    None, True, -1, 1 << 63, 10**400, 0.5, float("nan"), float("inf"), 1e300, "", "x" * 100_000, "\ud800",
    [], [None], [[[]]], {}, {"x": 1}, [0] * 1000,
]  # fmt: skip


def mutants(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The same with one thing in it replaced, or left out."""
    for odd in ODD:
        yield f"{path}={odd!r:.20}", odd
    if isinstance(value, dict):
        for name in value:
            yield f"{path}.{name} missing", {key: each for key, each in value.items() if key != name}
            for what, each in mutants(value[name], f"{path}.{name}"):
                yield what, {**value, name: each}
    elif isinstance(value, list):
        for place, one in enumerate(value):
            for what, each in mutants(one, f"{path}[{place}]"):
                yield what, [*value[:place], each, *value[place + 1 :]]


def typed(dump: Dump) -> bool:
    """Whether every field of a dump is of its type, and fits in JSON."""
    json.dumps(dump_json(dump), allow_nan=False)
    process = dump.process
    children = process.children if process is not None else ()
    every = [*dump.threads, *(each for child in children for each in child.threads)]
    numbers = [dump.rank, *(each.tid for each in every), *(child.pid for child in children)]
    numbers += [process.pid, process.ticks, process.switches] if process is not None else []
    texts = [dump.way, dump.source, dump.error, dump.what, dump.hint, *dump.notes]
    texts += [each.name for each in every]
    texts += [text for each in every for one in each.locals for text in (*one, *one.values())]
    return (
        all(type(number) is int and 0 <= number < 1 << 63 for number in numbers)
        and all(type(text) is str and len(text) <= 6001 for text in texts)
        and all(type(each.active) is bool and type(each.gil) is bool for each in every)
        and all(isinstance(frame, Frame) for each in every for frame in each.frames)
    )


def test_a_dump_with_anything_wrong_in_it_is_refused_or_harmless() -> None:
    taken = refusals = 0
    for what, told in mutants(GOOD):
        found, why = got(packed(*BEFORE, {"dump": told}))
        refusals += bool(why)
        taken += len(found)
        assert all(map(typed, found)), what
        assert why or found, what
        assert len(why) < 300, what
    assert taken > 40, "texts may be any"
    assert refusals > 500


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.sampled_from(["frames", "nodes", "dump", *GOOD]), inner, max_size=4)
        ),
        max_leaves=20,
    )
)
def test_anything_else_is_refused(told: Any) -> None:
    if told in ({"frames": []}, {"nodes": []}):
        return
    refused(packed(*BEFORE, told))
    with pytest.raises(Malformed):
        FromJson(str)(told)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_answer(data: bytes) -> None:
    for each in (data, zlib.compress(data + b"x")):
        refused(each)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([""], "Expecting value"),
        (["[" * 100_000], "recursion"),
        (['{"frames": ' + "[" * 100_000], "recursion"),
        ([{"frames": [], "nodes": []}], "one entry"),
        ([{"nodes": [-1, 0]}], "not there"),
        ([*BEFORE, {"nodes": [1, 0]}], "not there"),
        ([*BEFORE, {"nodes": [-2, 0]}], "not there"),
        ([*BEFORE, {"nodes": [0, 1]}], "not there"),
        ([*BEFORE, {"nodes": [0]}], "pairs"),
        ([*BEFORE, {"nodes": [True, 0]}], "integers"),
        ([*BEFORE, {"nodes": [0, 0.0]}], "integers"),
        ([*BEFORE, {"nodes": "00"}], "pairs"),
        ([{"frames": [["a", "b", 1]]}], "4 values"),
        ([{"frames": [["a", "b", True, 0]]}], "line"),
        ([{"frames": [["a", "b", -1, 0]]}], "integer from"),
        ([{"frames": [["a", "b", 1, 2]]}], "integer from"),
        ([{"frames": [["a", ["b"], 1, 0]]}], "name and file"),
        ([{"frames": [["a" * 6001, "b", 1, 0]]}], "at most 6000"),
        ([*BEFORE, {"dump": {**GOOD, "threads": [{**GOOD["threads"][0], "stack": 1}]}}], "a place"),
        ([*BEFORE, {"dump": {**GOOD, "threads": [{**GOOD["threads"][0], "stack": -2}]}}], "a place"),
        ([*BEFORE, {"dump": {**GOOD, "threads": GOOD["threads"] * 1001}}], "at most 1000"),
        (['{"dump": ' + "9" * 4000 + "}"], "an object"),
    ],
)
def test_what_a_line_may_not_be(lines: list[object], why: str) -> None:
    assert why in refused(packed(*lines))


def test_what_is_not_whole_or_goes_on_is_refused() -> None:
    whole = pack([Dump(0, 1.0)])
    for data in (b"", b"junk", whole[:-3], whole + b"x", whole + whole, zlib.compress(b'{"frames": []}')):
        refused(data)
    assert list(unpack(pack([]), str)) == []


def test_what_came_before_a_fault_can_be_had() -> None:
    found, why = got(packed(*BEFORE, {"dump": GOOD}, {"dump": None}))
    assert [dump.rank for dump in found] == [3]
    assert "an object" in why


def chain(length: int) -> list[object]:
    """A stack of this many frames, and every part of it from the outside."""
    numbers = [number for place in range(length) for number in (place - 1, 0)]
    return [BEFORE[0], *({"nodes": numbers[at : at + 2000]} for at in range(0, len(numbers), 2000))]


def test_a_chain_of_stacks_does_not_grow_as_its_square() -> None:
    assert "more than 4000 frames" in refused(packed(*chain(40_000)))
    threads = [{**GOOD["threads"][0], "stack": 3000 + number} for number in range(1000)]
    room = Room()
    told = packed(*chain(4000), *({"dump": {**GOOD, "rank": rank, "threads": threads}} for rank in range(9)))
    assert len(told) < 60_000
    assert "stacks of more than" in refused(told, room)
    assert room.text > packing.TEXT - (1 << 20)


def test_nothing_is_unpacked_that_is_not_wanted() -> None:
    room = Room()
    assert "a line of more than" in refused(zlib.compress(b" " * (64 << 20)), room)
    assert packing.TEXT - room.text <= packing.LINE + (1 << 16)
    assert "more text" in refused(packed(*[{"frames": []}] * 2000), Room(text=1 << 18))


@pytest.mark.parametrize(
    ("line", "what"), [({"frames": [["a", "b", 1, 0]]}, "frames"), (BEFORE[1], "places")]
)
def test_a_tree_has_no_more_than_it_may(line: object, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "PLACES", 100)
    assert f"more than 100 {what}" in refused(packed(*BEFORE, *[line] * 100))
    assert got(packed(*BEFORE, *[line] * 99))[1] == ""


def test_what_is_too_much_for_one_answer_is_not_packed() -> None:
    variables = tuple({f"v{number}": "\u20ac" * 200} for number in range(2000))
    one = Dump(0, 1.0, threads=(thread(*[MAIN] * 2000, locals=variables),))
    with pytest.raises(TooLarge):
        pack([one])
    assert [dump.rank for dump in unpack(pack([fitted(one)]), str)] == [0]
    with pytest.raises(TooLarge, match="places"):
        pack(many())


def many() -> Iterator[Dump]:
    for rank in range(101):
        yield Dump(rank, 1.0, threads=(thread(*(Frame(f"f{rank}", "./x.py", 1) for _ in range(4000))),))


# -- bounds of honest dumps --------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1000, 3000, 4000])
def test_deep_recursion_is_shown_as_it_is(depth: int) -> None:
    frames = [tuple(Frame("again", "./x.py", 7 + rank % 3) for _ in range(depth)) for rank in range(64)]
    dumps = [Dump(rank, 1.0, threads=(thread(*stack),)) for rank, stack in enumerate(frames)]
    assert [fitted(dump) for dump in dumps] == dumps
    room = Room()
    assert list(unpack(pack(dumps), str, room)) == dumps
    assert room.kept > 0


def test_a_stack_that_is_too_deep_is_cut_in_the_middle_and_says_so() -> None:
    frames = tuple(Frame("again", "./x.py", line) for line in range(9000))
    variables = tuple({"line": str(line)} for line in range(9000))
    found = fitted(Dump(0, 1.0, threads=(thread(*frames, locals=variables),)))
    assert len(found.frames) == len(found.threads[0].locals) == stacks.DEPTH
    assert found.frames[:1000] == frames[:1000]
    assert found.frames[1000] == LEFT_OUT
    assert found.frames[1001:] == frames[-2999:]
    assert found.threads[0].locals[-1] == {"line": "8999"}
    assert found.notes[0] == "stack cut at 4,000 of 9,000"
    assert list(unpack(pack([found]), str)) == [found]


def test_what_else_is_cut_is_said_too() -> None:
    child = Child(5, "worker", "S", (thread(MAIN),) * 1200)
    process = Process(1, 2, "S", children=(child, *[Child(6, "worker", "S")] * 1199))
    variables = tuple({f"v{number}": "x" * 180} for number in range(3000))
    first = thread(*[MAIN] * 3000, locals=variables)
    found = fitted(Dump(0, 1.0, process, "plain", (first, *[thread(*[MAIN] * 60)] * 1100), notes=("n",) * 30))
    assert len(found.threads) == stacks.THREADS
    assert found.process is not None
    assert len(found.process.children) == stacks.CHILDREN
    assert len(found.process.children[0].threads) == stacks.THREADS
    assert len(found.notes) <= stacks.NOTES
    assert set(found.notes) > {
        "threads cut at 1,000 of 1,101",
        "child processes cut at 1,000 of 1,200",
        "threads of a child cut at 1,000 of 1,200",
        "local variables of outer frames are left out",
        "stacks of further threads are left out: 50,000 frames",
    }
    kept = [bool(one) for one in found.threads[0].locals]
    assert not kept[0]
    assert kept[-1]
    assert sum(len(each.frames) for each in found.threads) <= stacks.FRAMES
    assert fitted(found).threads == found.threads


def test_a_dump_on_disk_is_cut_to_the_same_bounds() -> None:
    frames = tuple(Frame("again", "./x.py", line) for line in range(9000))
    found = FromJson(str)(dump_json(Dump(0, 1.0, threads=(thread(*frames),))))
    assert len(found.frames) == stacks.DEPTH
    with pytest.raises(ValueError, match="stacks of more than"):
        FromJson(str, Room(100_000))(dump_json(Dump(0, 1.0, threads=(thread(*frames),))))


def test_every_string_of_a_node_is_cleaned() -> None:
    thread = Thread("t", 1, True, True, (Frame("f", "x", 1),), ({"v": "w"},))
    process = Process(1, 2, "S", "w", "c", "t", children=(Child(3, "n", "S", (thread,)),))
    seen: list[str] = []

    def clean(text: str) -> str:
        seen.append(text)
        return "clean"

    (dump,) = unpack(pack([Dump(0, 1.0, process, "plain", (thread,), "s", "e", "w", "h", ("n",))]), clean)
    assert dump.threads[0].frames == (Frame("clean", "clean", 1),)
    assert dump.threads[0].locals == ({"clean": "clean"},)
    assert dump.process is not None
    assert dump.process.children[0].name == "clean"
    assert {dump.way, dump.source, dump.error, dump.what, dump.hint, *dump.notes} == {"clean"}
    assert {"f", "x", "v", "w", "s", "e", "h", "n", "c", "t", "plain"} <= set(seen)
