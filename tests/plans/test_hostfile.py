"""The hostfile: what is accepted, and that every bad line is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.errors import CockpitError, Exit, ManyErrors
from cockpit.plans.nodes import hostfile
from cockpit.plans.nodes.hostfile import Host, parse
from tests.needs import require_module


def names(text: str) -> list[str]:
    return [host.name for host in parse(text)]


def complaints(text: str) -> list[str]:
    with pytest.raises(ManyErrors) as caught:
        parse(text, "hf")
    assert caught.value.code is Exit.USAGE
    return str(caught.value).splitlines()


def test_order_slots_and_lines() -> None:
    text = (
        "# ours\n\nnode2 slots=2  # big\r\nuser@node1\tslots=01 max_slots=4\n[::1] slots=1\nw:2222 slots=1x"
    )
    assert parse(text) == (
        Host("node2", (0, 1), 3),
        Host("user@node1", (0,), 4),
        Host("[::1]", (0,), 5),
        Host("w:2222", (0,), 6),
    )


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("gpu[08-11]", ["gpu08", "gpu09", "gpu10", "gpu11"]),
        ("gpu[1,3-4]", ["gpu1", "gpu3", "gpu4"]),
        ("r[1-2]n[0-2/2].net", ["r1n0.net", "r1n2.net", "r2n0.net", "r2n2.net"]),
        ("me@n[1-2]:22", ["me@n1:22", "me@n2:22"]),
    ],
)
def test_ranges(entry: str, expected: list[str]) -> None:
    assert names(f"{entry} slots=1") == expected


def test_all_bad_lines_at_once() -> None:
    text = "a slots=2\nb\nc slots=0\na slots=1\n-oProxyCommand=x slots=1\nok[1-2] slots=1\nok2 slots=1"
    lines = complaints(text)
    assert [line.split(": ")[0] for line in lines] == ["hf:2", "hf:3", "hf:4", "hf:5", "hf:7"]
    assert "bad entry b" in lines[0]
    assert "NAME slots=N" in lines[0]
    assert "slots=0" in lines[1]
    assert "host a is already in line 1" in lines[2]
    assert "bad host name" in lines[3]
    assert "host ok2 is already in line 6" in lines[4]


@pytest.mark.parametrize("text", ["", "\n# only a comment\n"])
def test_an_empty_result_is_an_error(text: str) -> None:
    assert "no host in it" in complaints(text)[0]


@pytest.mark.parametrize(
    "name",
    [
        "-x",
        "..",
        ".",
        "a/b",
        "a;b",
        "$(x)",
        "a\x1b[2J",
        "a'b",
        "u@-x",
        "h[1-2",
        "h]",
        "h[]",
        "[gpu]",
        "\udcff",
    ],
)
def test_names_that_no_host_has(name: str) -> None:
    line = complaints(f"{name} slots=1")[0]
    assert line.startswith("hf:1: ")
    assert line.isprintable()


@pytest.mark.parametrize(
    "entry", ["n[0-999999999]", "n[0-99][0-99][0-99]", "n[5-1]", "n[1-2/0]", "n[1,1]", "n[1-]", "n[,]"]
)
def test_absurd_ranges_end_quickly(entry: str) -> None:
    assert complaints(f"{entry} slots=1")[0].startswith("hf:1: ")


def test_absurd_slots_and_many_hosts() -> None:
    assert "more than 4096 slots" in complaints("a slots=" + "9" * 5000)[0]
    assert "more than 10000 hosts" in complaints("a[1-6000] slots=1\nb[1-6000] slots=1")[0]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(CockpitError, match="no such hostfile"):
        hostfile.read(tmp_path / "missing")
    with pytest.raises(CockpitError, match="is a directory"):
        hostfile.read(tmp_path)
    (tmp_path / "hf").write_bytes(b"\xef\xbb\xbfn slots=1 # caf\xe9\n")
    assert [host.name for host in hostfile.read(tmp_path / "hf")] == ["n"]


SPACE = st.sampled_from(["", " ", "\t", "  ", "\x0b", "\u2028"])
LINE = st.builds(
    "".join,
    st.tuples(
        SPACE,
        st.sampled_from(["w0", "w1", "user@w2", "w0:22", "[::1]", "#w", "", "-w", "a b"]),
        SPACE,
        st.sampled_from(["slots=", "slots =", "SLOTS=", "", " slots="]),
        st.sampled_from(["2", "08", "0", "-1", "x", "", "3junk", " 2", "2 max_slots=3", "٣"]),
        SPACE,
    ),
)


@given(st.lists(LINE, max_size=4))
def test_agrees_with_deepspeed(lines: list[str]) -> None:
    """What DeepSpeed accepts we accept with the same slots, except on purpose; and no more."""
    require_module("deepspeed")
    from deepspeed.launcher.runner import _parse_hostfile

    try:
        theirs = dict(_parse_hostfile(lines))
    except ValueError:
        theirs = None
    try:
        ours = {host.name: len(host.slots) for host in parse("\n".join(lines))}
    except ManyErrors as error:
        ours = None
        refused = any("slots=0" in str(e) or "bad host name" in str(e) for e in error.errors)
        assert theirs is None or refused
    if ours is not None:
        assert ours == theirs


@given(st.text())
def test_any_text_gives_hosts_or_errors(text: str) -> None:
    try:
        hosts = parse(text)
    except ManyErrors:
        return
    assert hosts
    assert all(host.slots for host in hosts)
