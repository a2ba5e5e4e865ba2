"""--include and --exclude."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.errors import CockpitError
from cockpit.plans.nodes import sources
from cockpit.plans.nodes.hostfile import parse
from tests.needs import require_module

HOSTS = parse("w2 slots=4\nw[0-1] slots=2\nme@big:22 slots=2")


def chosen(include: str = "", exclude: str = "") -> dict[str, tuple[int, ...]]:
    return {host.name: host.slots for host in sources.apply(HOSTS, include, exclude)}


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        ("w0@w2:3,1", {"w2": (1, 3), "w0": (0, 1)}),
        ("w[0-1]:1", {"w0": (1,), "w1": (1,)}),
        ("w0:0@w0:1@w0", {"w0": (0, 1)}),
        ("me@big:22@w0:0", {"w0": (0,), "me@big:22": (0, 1)}),
        ("me@big:22:1", {"me@big:22": (1,)}),
    ],
)
def test_include(include: str, expected: dict[str, tuple[int, ...]]) -> None:
    assert list(chosen(include).items()) == list(expected.items())


def test_exclude() -> None:
    assert chosen(exclude="w2:0,2@w[0-1]") == {"w2": (1, 3), "me@big:22": (0, 1)}
    assert len(chosen()) == 4


@pytest.mark.parametrize(
    ("include", "exclude", "says"),
    [
        ("w0", "w1", "cannot be used together"),
        ("", "w[0-2]@me@big:22", "leaves no host"),
        ("w00", "", "did you mean w0"),
        ("w0:7", "", "host w0 has no slot 7; it has slots 0-1"),
        ("w0:a", "", "bad slots 'a'"),
        ("w0:", "", "bad slots ''"),
        ("w0:0-1", "", "bad slots '0-1'"),
        ("w0@", "", "bad host name"),
        ("w[0-", "", "bad host name"),
    ],
)
def test_mistakes(include: str, exclude: str, says: str) -> None:
    with pytest.raises(CockpitError) as caught:
        chosen(include, exclude)
    assert says in str(caught.value)


def test_all_mistakes_at_once() -> None:
    with pytest.raises(CockpitError) as caught:
        chosen("nope@w0:9@w1")
    assert len(str(caught.value).splitlines()) == 2


ENTRY = st.builds(
    lambda name, slots: name + (":" + ",".join(slots) if slots else ""),
    st.sampled_from(["w0", "w1", "w2", "w3", ""]),
    st.lists(st.sampled_from(["0", "1", "3", "x", ""]), max_size=3),
)


@given(st.lists(ENTRY, min_size=1, max_size=4).map("@".join), st.booleans())
def test_agrees_with_deepspeed(text: str, include: bool) -> None:
    require_module("deepspeed")
    from deepspeed.launcher.runner import parse_resource_filter

    pool = OrderedDict((host.name, list(host.slots)) for host in HOSTS)
    words = (text, "") if include else ("", text)
    try:
        theirs = {name: tuple(slots) for name, slots in parse_resource_filter(pool, *words).items()}
    except ValueError:
        theirs = {}
    try:
        ours = chosen(*words)
    except CockpitError:
        ours = {}
    assert list(ours.items()) == list(theirs.items())
