"""The hostfile: what is accepted, and that every bad line is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.core.ranks import is_name
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
    ("line", "expected"),
    [
        ("gpu01", {"gpu01": 0}),
        ("me@gpu[1-2]  # ours", {"me@gpu1": 0, "me@gpu2": 0}),
        ("gpu01:8", {"gpu01": 8}),
        ("gpu[1-2]:08", {"gpu1": 8, "gpu2": 8}),
        ("[::1]:4", {"[::1]": 4}),
        ("fe80::12", {"fe80::12": 0}),
        ("gpu01:8 max_slots=8", {"gpu01": 8}),
        ("gpu01 max-slots=8 slots=2", {"gpu01": 2}),
        ("gpu01 cpu=2", {"gpu01": 2}),
        ("gpu01 count=2 slots-max=4", {"gpu01": 2}),
        ("gpu01:2222 slots=2", {"gpu01:2222": 2}),
    ],
)
def test_lists_and_machinefiles(line: str, expected: dict[str, int]) -> None:
    hosts = parse(line)
    assert {host.name: len(host.slots) for host in hosts} == expected
    assert [host.open for host in hosts] == [not count for count in expected.values()]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("gpu01 8", "bad entry gpu01 8"),
        ("gpu1:8,gpu2", "no number of slots after the colon: gpu1:8,gpu2"),
        ("gpu1,gpu2", "bad host name gpu1,gpu2"),
        ("gpu01:8 binding=user:0", "binding= is not supported here"),
        ("gpu01 username=me", "username= is not supported here"),
        ("rank 0=gpu01 slot=0", "0= is not supported here"),
        ("gpu01 max_slots=8", "a maximum, but no number of slots"),
        ("gpu01:8 count=8", "two numbers of slots"),
        ("gpu01:0", "slots=0; give it at least one slot, or leave it out"),
        ("gpu01 count=٣", "bad entry gpu01 count="),
        ("gpu01:2222", "no number of slots after the colon: gpu01:2222"),
        ("gpu01:2222:8", "no number of slots after the colon: gpu01:2222:8"),
        ("gpu01:x", "no number of slots after the colon: gpu01:x"),
        ("n1 slots=2 n2 slots=2", "bad entry n1 slots=2 n2 slots=2; give each host a line of its own"),
        ("n1 slots=2,n2 slots=2", "bad entry n1 slots=2,n2 slots=2"),
        ("n1 slots=2 n2", "bad entry n1 slots=2 n2; give each host a line of its own"),
        ("n1 slots=2 slots=4", "two numbers of slots"),
        ("n1 slots=8 gpu=0,1", "gpu= is not supported here"),
        ("n1 slots=8 max_slots=x", "bad entry n1 slots=8 max_slots=x"),
        ("+n0", "bad host name"),
        ("^gpu01", "bad host name"),
        ("gpu\0", "bad host name"),
    ],
)
def test_what_is_not_read_is_named(line: str, says: str) -> None:
    (said,) = complaints(line)
    assert re.match(f"hf:1: ({says})", said)
    assert said.isprintable()
    assert "; " in said


def test_names_that_differ_in_case_alone_are_of_one_machine() -> None:
    assert complaints("n1 slots=2\nN1 slots=2\n") == [
        "hf:2: host N1 is already in line 1, as n1; keep one of the two"
    ]
    with pytest.raises(ManyErrors, match=r"host N1 is named twice, as n1"):
        hostfile.read_set("n[1-2],N1")
    assert names("Ada@n1 slots=1\nada@n1 slots=1\n") == ["Ada@n1", "ada@n1"]


@pytest.mark.parametrize("data", ["n1 slots=2\n".encode("utf-16"), "n1 slots=2\n".encode("utf-16-be")])
def test_a_file_of_windows_is_named(tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "hf"
    file.write_bytes(data)
    with pytest.raises(CockpitError, match=r"hf: is UTF-16 \(Windows\); save it as UTF-8"):
        hostfile.read(file)
    with file.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        with pytest.raises(CockpitError, match=r"stdin: is UTF-16"):
            hostfile.read("-")


def test_a_line_for_each_slot_is_no_list_of_nodes() -> None:
    (line,) = complaints("gpu01\ngpu01\n")
    assert line == "hf:2: host gpu01 is already in line 1; name each once: uniq LIST | cockpit run - …"
    assert complaints("gpu01:8\ngpu01\n")[0].endswith("keep one of the two")


def test_sets_keep_their_order() -> None:
    hosts = hostfile.read_set("gpu[03-04,01]:8,me@big,[::1]:2")
    named = [(host.name, len(host.slots)) for host in hosts]
    assert named == [("gpu01", 8), ("gpu03", 8), ("gpu04", 8), ("me@big", 0), ("[::1]", 2)]
    assert {host.line for host in hosts} == {0}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,,b", "-w : bad host name"),
        ("a,b:2,a", "-w a: host a is named twice; keep one of the two"),
        ("-oProxyCommand=x", "-w -oProxyCommand=x: bad host name"),
        ("a\0b", r"-w 'a\x00b': bad host name"),
        ("gp\u00fc1", "-w gp\u00fc1: bad host name"),
        ("gpu\u202e1", r"-w 'gpu\u202e1': bad host name"),
        ("gpu[0-999999999]", "-w gpu[0-999999999]: range"),
        ("a[1-6000],b[1-6000],c[1-6000]", "-w b[1-6000]: more than 10000 hosts"),
        ("@group", "-w @group: bad host name"),
    ],
)
def test_bad_sets(text: str, says: str) -> None:
    with pytest.raises(ManyErrors) as caught:
        hostfile.read_set(text)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(says)
    assert line.isprintable()


def test_a_set_of_nothing_names_no_nodes() -> None:
    with pytest.raises(CockpitError, match="-w: no nodes given"):
        hostfile.read_set("")


def test_a_file_of_endless_ranges_is_given_up_at_once() -> None:
    lines = complaints("".join(f"n{index}[1-9999]\n" for index in range(50_000)))
    assert lines == ["hf:2: more than 10000 hosts; check the ranges"]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("gpu[08-11]", ["gpu08", "gpu09", "gpu10", "gpu11"]),
        ("gpu[1,3-4]", ["gpu1", "gpu3", "gpu4"]),
        ("r[1-2]n[0-2/2].net", ["r1n0.net", "r1n2.net", "r2n0.net", "r2n2.net"]),
        ("me@n[1-2]:22", ["me@n1:22", "me@n2:22"]),
        ("n9[8-11]", ["n98", "n99", "n910", "n911"]),
        ("n[1-2][03-04]", ["n103", "n104", "n203", "n204"]),
    ],
)
def test_ranges(entry: str, expected: list[str]) -> None:
    assert names(f"{entry} slots=1") == expected


def test_all_bad_lines_at_once() -> None:
    text = "a slots=2\nb 2\nc slots=0\na slots=1\n-oProxyCommand=x slots=1\nok[1-2] slots=1\nok2 slots=1"
    lines = complaints(text)
    assert [line.split(": ")[0] for line in lines] == ["hf:2", "hf:3", "hf:4", "hf:5", "hf:7"]
    assert "bad entry b 2" in lines[0]
    assert "NAME slots=N" in lines[0]
    assert "slots=0" in lines[1]
    assert "host a is already in line 1" in lines[2]
    assert "bad host name" in lines[3]
    assert "host ok2 is already in line 6" in lines[4]


@pytest.mark.parametrize("text", ["", "\n# only a comment\n"])
def test_an_empty_result_is_an_error(text: str) -> None:
    assert "contains no host" in complaints(text)[0]


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
        "a!b[1-2]",
        "@all[1-2]",
        "a%s[1-2]",
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
    assert complaints("a slots=" + "9" * 5000)[0].endswith(
        "more than 4096 slots; slots are ranks: usually one per GPU"
    )
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
    """What DeepSpeed accepts we accept with the same slots, except on purpose."""
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
    if theirs is not None and ours is not None:
        assert ours == theirs
    elif ours is not None:
        # A list or a machinefile, which DeepSpeed does not read.
        without = [line.split() for line in lines if not re.match(r"\S+\s+slots=\d", line.strip())]
        assert any(words and not words[0].startswith("#") for words in without)


@given(st.text())
def test_any_text_gives_hosts_or_errors(text: str) -> None:
    try:
        hosts = parse(text)
    except ManyErrors:
        return
    assert hosts
    assert all(is_name(host.name) for host in hosts)


def test_pods_in_a_set_are_called_without_their_slash() -> None:
    found = hostfile.read_set("pod/train-[0-1]:8,pod/a.b:main,pod/c:main:2")
    assert [(host.name, len(host.slots)) for host in found] == [
        *(("train-0", 8), ("train-1", 8)),
        *(("a.b:main", 0), ("c:main", 2)),
    ]


@pytest.mark.parametrize("word", ["pod/", "pod/a:b:c:2", "pod/a/b", "pod/-n", "pod/a:0"])
def test_what_is_no_pod_in_a_set(word: str) -> None:
    with pytest.raises(ManyErrors):
        hostfile.read_set(word)
