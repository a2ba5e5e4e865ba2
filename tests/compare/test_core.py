"""Arguments, losses, paces and profiles by themselves, with properties that hold for any of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.core.compare.command import Arguments, Change, Started, changes, same_command
from cockpit.core.compare.losses import losses, spread
from cockpit.core.compare.model import Measure
from cockpit.core.compare.pace import measures
from cockpit.core.compare.profiles import Profiled, profiles
from cockpit.core.compare.words import profile_lines, profile_markdown
from cockpit.core.pace.phases import NAMES
from cockpit.core.profile.collection import DONE, Collection, RankResult
from cockpit.core.profile.reader import read
from cockpit.core.report.model import Course, Curve, RunReport, What, Why
from cockpit.core.text import columns
from cockpit.errors import CockpitError
from tests.core.profiled import Work, collection

WORDS = st.lists(
    st.sampled_from(
        ["train.py", "a", "b", "--lr", "0.1", "--lr=0.2", "-x", "-1", "--", "lr=0.3", "+m.x=1", ""]
    ),
    max_size=8,
)


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("train.py --lr 0.1", "train.py --lr 0.2", [("--lr", "0.1", "0.2")]),
        ("train.py --lr 0.1", "train.py --lr=0.2", [("--lr", "0.1", "0.2")]),
        ("train.py --lr 0.1 --bs 8", "train.py --bs 8 --lr 0.1", []),
        ("train.py", "train.py --compile", [("--compile", None, "")]),
        ("train.py --compile", "train.py", [("--compile", "", None)]),
        ("train.py --gpus 0 1", "train.py --gpus 0 1 2", [("--gpus", "0 1", "0 1 2")]),
        ("train.py lr=0.1 +model.x=3", "train.py lr=0.2 +model.x=3", [("lr", "0.1", "0.2")]),
        ("train.py --seed -1", "train.py --seed 5", [("--seed", "-1", "5")]),
        ("train.py a b", "train.py a c", [("word 3", "b", "c")]),
        ("train.py a b", "train.py b", [("word 2", "a", None)]),
        ("-m pkg.a", "-m pkg.b", [("-m", "pkg.a", "pkg.b")]),
        ("train.py --x 1 --x 2", "train.py --x 2", [("--x", "1, 2", "2")]),
    ],
)
def test_arguments_by_name(before: str, after: str, found: list[tuple[str, str | None, str | None]]) -> None:
    assert changes(before.split(), after.split()) == [Change(*one) for one in found]


@given(WORDS, WORDS)
def test_only_what_differs(before: list[str], after: list[str]) -> None:
    found = changes(before, after)
    assert all(one.before != one.after for one in found)
    back = changes(after, before)
    assert {(one.name, one.after, one.before) for one in back} == {tuple(one) for one in found}
    assert changes(before, before) == []


@given(WORDS)
def test_no_word_is_lost(line: list[str]) -> None:
    found = Arguments.of(line)
    values = [word for given in found.options.values() for words in given for word in words]
    for word in line:
        kept = word in (*found.words, *values, *found.options) or word == "--"
        name, _, value = word.partition("=")
        assert kept or (name in found.options and value in values)


@given(WORDS, WORDS)
def test_the_same_command_whatever_its_options(first: list[str], second: list[str]) -> None:
    one, other = (Started("torchrun", "/home", tuple(words)) for words in (first, second))
    assert same_command(one, one)
    assert same_command(one, other) == same_command(other, one)
    assert not same_command(one, other._replace(cwd="/other"))
    assert not same_command(one, other._replace(launcher="deepspeed"))


def test_another_script_is_another_command() -> None:
    one = Started("torchrun", "/home", ("train.py", "--lr", "0.1"))
    assert same_command(one, one._replace(program=("train.py", "--compile", "--lr=0.3")))
    assert not same_command(one, one._replace(program=("eval.py", "--lr", "0.1")))


# Losses


def curve(values: Sequence[float], first: int = 1, every: int = 1) -> Curve:
    points = tuple((float(first + every * at), value) for at, value in enumerate(values))
    return Curve("loss", "", points, values[0], values[-1], min(values), max(values), 1.0)


def noisy(many: int, seed: int, noise: float = 0.05) -> list[float]:
    random = Random(seed)
    return [2 + 8 / step + random.gauss(0, noise) for step in range(1, many + 1)]


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_other_seeds_alone_do_not_part(first: int, second: int) -> None:
    assert losses(curve(noisy(400, first)), curve(noisy(400, second))).parted is None


@given(st.integers(0, 1000), st.integers(40, 360))
def test_where_they_part(seed: int, at: int) -> None:
    """Within a stretch of the steps: less is not to be seen of noise."""
    before = noisy(400, seed)
    after = [value + (0.5 if step > at else 0.0) for step, value in enumerate(noisy(400, seed + 5000), 1)]
    found = losses(curve(before), curve(after))
    assert found.parted is not None
    assert abs(found.parted - at) <= 2 * 400 / 24
    again = losses(curve(before), curve([*before[:at], *(value + 1 for value in before[at:])]))
    assert again.alike_to == at
    assert again.parted == at + 1


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=60),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=60),
    st.integers(0, 90),
)
def test_any_losses(before: list[float], after: list[float], first: int) -> None:
    found = losses(curve(before), curve(after, first))
    told = found.as_json()
    assert all(math.isfinite(value) for row in told["rows"] for value in row.values())
    if found.first is not None and found.last is not None:
        assert found.first <= found.last
        assert all(found.first <= row.at <= found.last for row in found.rows)
        assert found.apart is None or found.first <= found.apart[0] <= found.apart[1] <= found.last
    if before == after and first == 1:
        assert (found.apart, found.alike_to) == (None, float(len(before)))


def test_no_step_in_common() -> None:
    found = losses(curve([1.0] * 10), curve([1.0] * 10, first=100))
    assert (found.first, found.rows) == (None, ())


def test_a_stretch_that_passes() -> None:
    before = noisy(480, 1, 0.01)
    after = [value + (1.0 if 100 < step <= 200 else 0.0) for step, value in enumerate(before, 1)]
    found = losses(curve(before), curve(after))
    assert found.parted is None
    assert found.apart is not None
    assert found.apart[0] == 101
    assert found.apart[1] == pytest.approx(200, abs=25)


def test_by_tokens() -> None:
    """Half as many steps of twice as many tokens."""
    before = noisy(400, 1, 0.001)
    found = losses(curve(before), curve(before[1::2]), "tokens", (1000.0, 2000.0))
    assert (found.by, found.first, found.last, found.parted) == ("tokens", 2000.0, 400_000.0, None)


# Numbers


@given(st.lists(st.floats(0.5, 2.0), min_size=3, max_size=50))
def test_the_spread_is_within_what_there_is(values: list[float]) -> None:
    found = spread(values)
    assert found is not None
    assert 0 <= found <= 1.4826 * (max(values) - min(values))


@pytest.mark.parametrize(
    ("before", "after", "varies", "beyond"),
    [
        (1.0, 1.3, 0.1, True),
        (1.0, 1.05, 0.1, False),
        (1.0, 1.005, 0.0, False),
        (1.0, 1.3, None, None),
        (None, 1.0, 0.1, None),
    ],
)
def test_more_than_steps_vary(
    before: float | None, after: float | None, varies: float | None, beyond: bool | None
) -> None:
    assert Measure("step", "s", before, after, varies).beyond is beyond


# Profiles


def side(**phases: float) -> RunReport:
    """A run with these phases."""
    what = What((), (), "command", "/", (), 1, (), (), ())
    return RunReport("a", 1.0, "0", "ended", 0, 0.0, 1.0, what, (), Why(), Course(phases=phases))


@pytest.mark.parametrize(
    ("before", "after", "compared"),
    [
        ({"backward": 0.4, "wait": 1.0}, {"backward": 0.4, "wait": 1.0}, ["backward", "wait"]),
        ({"backward": 1.4}, {"backward": 1.4}, ["backward"]),
        ({"backward": 0.4, "wait": 1.0}, {"backward": 1.4}, []),
    ],
)
def test_phases_are_compared_only_where_the_wait_is_known_of_both_or_of_neither(
    before: dict[str, float], after: dict[str, float], compared: list[str]
) -> None:
    found = measures(side(**before), side(**after))
    assert [one.name for one in found if one.name in NAMES] == compared


def profiled(forward: float, number: int, **more: float) -> Profiled:
    operations = {"aten::mm": ("compute", forward, 4), "aten::add": ("compute", 20.0, 2)}
    operations |= {name: ("compute", took, 1) for name, took in more.items()}
    made = replace(
        collection(4, lambda rank, step: Work(forward=forward, operations=operations)),
        number=number,
        run="otter",
    )
    return Profiled(made, read(made))


def test_which_operations_take_longer() -> None:
    found = profiles(profiled(80, 1, gone=30), profiled(120, 2, new=5))
    parts = {one.name: one for one in found.parts}
    assert parts["step"].more == pytest.approx(0.040, abs=0.002)
    by_name = {one.name: one for one in found.operations}
    assert found.operations[0].name == "aten::mm"
    assert by_name["aten::mm"].more == pytest.approx(0.040, abs=0.002)
    assert (by_name["gone"].after, by_name["new"].before) == (None, None)
    assert by_name["aten::add"].more == pytest.approx(0, abs=1e-9)
    mores = [abs(one.more) for one in found.operations]
    assert mores == sorted(mores, reverse=True)
    assert sum(one.more for one in found.sums) == pytest.approx(sum(one.more for one in found.operations))
    assert found.collectives
    assert len(found.ranks) == 2


def test_a_profile_differs_in_nothing_from_itself() -> None:
    one = profiled(80, 1)
    found = profiles(one, one)
    assert not any(part.more for part in found.parts)
    assert not any(row.more for row in (*found.operations, *found.sums, *found.collectives))


def stacks(folded: str, number: int) -> Profiled:
    results = {rank: RankResult(rank, "gpu01", DONE, folded=folded) for rank in range(2)}
    made = Collection(number, f"p{number}", "otter", "cpu", 1.0, seconds=10.0, results=results)
    return Profiled(made, read(made))


def test_frames_of_stacks() -> None:
    before = stacks("main (a.py:1);step (a.py:9) 900\nmain (a.py:1);load (d.py:3) 100\n", 1)
    after = stacks("main (a.py:1);step (a.py:9) 500\nmain (a.py:1);load (d.py:3) 500\n", 2)
    found = profiles(before, after)
    assert found.unit == "share"
    rows = {one.name: (one.before, one.after) for one in found.operations}
    assert list(rows["load (d.py:3)"]) == pytest.approx([0.1, 0.5])
    assert list(rows["step (a.py:9)"]) == pytest.approx([0.9, 0.5])
    with pytest.raises(CockpitError, match="have nothing in common"):
        profiles(before, profiled(80, 3))
    assert profiles(stacks("", 1), after).notes == ("one of them has no samples",)


def test_text_of_profiles_fits() -> None:
    name = "void at::native::" + "x" * 150
    found = profiles(profiled(80, 1, **{name: 30}), profiled(120, 2, **{name: 50}))
    for width in (60, 80, 100):
        lines = list(profile_lines(found, width))
        assert all(columns(line) <= width for line in lines)
        assert any("aten::mm" in line for line in lines)
    assert len(profile_markdown(found)) <= 60
