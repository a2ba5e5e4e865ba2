"""NCCL's own lines, of versions from 2.10 to 2.28, RCCL's, aws-ofi-nccl's and gloo's, read into a table."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.core.nccl.lines import LONGEST
from cockpit.core.nccl.reading import EACH, KEPT, PROCESSES, Reader, networks, read
from cockpit.core.nccl.table import Row, Table, text_lines
from tests.nccl.samples import EFA, EFA_1_16, GLOO, IB_2_18, IB_2_28, RCCL_6_2, RCCL_6_3, SOCKET_2_10


def table(text: str, rank: int | None = None) -> Table:
    reader = Reader()
    reader.take(text.encode(), rank)
    return reader.table()


def only(text: str, rank: int | None = None) -> Row:
    (row,) = table(text, rank).rows
    return row


def test_a_console_tells_processes_apart_by_host_and_pid() -> None:
    first, second = table(SOCKET_2_10).rows
    assert (first.numbers, first.node, first.gpus, first.world) == ((0,), "n01", (0,), 2)
    assert (second.numbers, second.node, second.bootstrap) == ((1,), "n02", "eth0")
    assert (first.version, first.toolkit) == ("NCCL 2.10.3", "CUDA 11.3")  # rank 0 alone says it, nameless
    assert second.version == ""
    assert (first.bootstrap, first.interfaces, first.network) == ("docker0", ("docker0",), "Socket")
    assert (first.no_ib, first.plugin, first.gdr) == (True, "internal", "")
    assert (first.across, first.channels, first.algorithms) == (("NET/Socket",), 2, ("rings", "trees"))


def test_infiniband_with_gpudirect() -> None:
    row = only(IB_2_18, rank=0)
    assert row.devices == ("mlx5_0:1/IB", "mlx5_1:1/IB", "mlx5_2:1/RoCE")
    assert (row.version, row.toolkit, row.driver) == ("NCCL 2.18.6", "CUDA 12.1", "12.2")
    assert (row.network, row.gdr, row.across) == ("IB", "on", ("NET/IB/GDRDMA",))
    assert (row.inside, row.bootstrap, row.no_ib) == (("P2P/CUMEM",), "bond0", False)
    assert row.settings == {"NCCL_SOCKET_IFNAME": "=bond0"}
    # Of the larger communicator, though a smaller one came later.
    assert (row.world, row.channels, row.communicators) == (16, 4, 2)


def test_merged_devices_no_gpudirect_no_p2p() -> None:
    row = only(IB_2_28)
    assert (row.numbers, row.node, row.gpus, row.world) == ((3,), "h7", (3,), 8)
    assert row.devices == ("mlx5_0+mlx5_1:1/IB",)
    assert (row.gdr, row.gdr_off, row.across) == ("off", ("mlx5_0+mlx5_1",), ("NET/IB",))
    assert (row.inside, row.channels, row.p2p_channels) == (("SHM",), 16, 16)
    assert row.remarks == ("P2P is disabled between connected GPUs",)
    assert row.algorithms == ("rings",)


def test_efa_by_its_plugin() -> None:
    row = only(EFA)
    assert (row.network, row.provider, row.plugin) == ("AWS Libfabric", "efa", "aws-ofi-nccl 1.9.2-aws")
    assert (row.gdr, row.across) == ("on", ("NET/AWS Libfabric/GDRDMA",))
    row = only(EFA_1_16)
    assert (row.network, row.provider, row.plugin) == ("Libfabric", "efa", "aws-ofi-nccl 1.16.0")
    assert row.across == ("NET/Libfabric/GDRDMA",)


def test_rccl_names_itself_in_its_version() -> None:
    row = only(RCCL_6_2)
    assert (row.version, row.toolkit, row.inside) == ("RCCL 2.18.6", "HIP 6.2", ("P2P/IPC",))
    row = only(RCCL_6_3, rank=4)
    assert (row.version, row.toolkit, row.numbers) == ("RCCL 2.21.5", "HIP 6.3", (4,))


def test_gloo_says_how_many_it_reaches() -> None:
    assert only(GLOO, rank=2).gloo == (2, 2, 3)


def test_shared_memory_before_2_12() -> None:
    row = only("a:1:2 [0] NCCL INFO Channel 00 : 0[1b000] -> 1[3b000] via direct shared memory\n")
    assert row.inside == ("SHM",)


def test_a_process_with_several_gpus_has_several_ranks() -> None:
    said = "a:1:{0} [{0}] NCCL INFO comm 0x{0} rank {0} nranks 4 cudaDev {0} busId 1 - Init COMPLETE\n"
    row = only("".join(said.format(gpu) for gpu in range(4)))
    assert (row.numbers, row.gpus) == ((0, 1, 2, 3), (0, 1, 2, 3))


@pytest.mark.parametrize(
    "before", ["", "[1,0]<stdout>:", "0: ", "[rank0]: ", "(Worker pid=7, ip=10.0.0.1) ", "gpu1: ", "gpu1| "]
)
def test_whatever_launchers_put_before_a_line(before: str) -> None:
    lines = "".join(before + line + "\n" for line in IB_2_18.splitlines())
    assert only(lines) == only(IB_2_18)


def test_what_differs_comes_first() -> None:
    reader = Reader()
    for rank in range(8):
        text = IB_2_18.replace("bond0", "docker0") if rank == 5 else IB_2_18
        reader.take(text.replace(" rank 0 ", f" rank {rank} ").encode(), rank)
    found = reader.table({rank: f"n{rank // 4}" for rank in range(8)})
    lines = list(text_lines(found))
    assert lines[:3] == [
        "differs: bootstrap interface",
        "  bond0: ranks 0-4,6-7 (n[0-1])",
        "  docker0: rank 5 (n1)",
    ]
    assert lines.index("same on all ranks that report it:") > 3
    assert [one.column for one in found.differences()] == ["bootstrap", "NCCL_SOCKET_IFNAME"]
    json.dumps(found.as_json())


def test_more_ways_at_the_edge_of_a_node_are_no_difference() -> None:
    say = "a:{0}:1 [0] NCCL INFO Channel 00/0 : {0}[0] -> 9[1] [send] via NET/IB/0{1}\n"
    edge = Reader()
    edge.take((say.format(1, "/GDRDMA") + say.format(2, "/GDRDMA")).encode())
    assert not edge.table().differences()
    edge.take(say.format(2, "").encode())
    assert [one.column for one in edge.table().differences()] == ["gdr"]


def test_networks_without_addresses() -> None:
    assert networks(SOCKET_2_10) == ["bootstrap docker0", "Socket docker0", "bootstrap eth0", "Socket eth0"]
    assert networks(IB_2_18)[:2] == ["bootstrap bond0", "IB mlx5_0:1/IB"]


@given(st.lists(st.binary(max_size=200) | st.sampled_from([*SOCKET_2_10.encode().splitlines()])))
def test_any_bytes_are_read(pieces: list[bytes]) -> None:
    reader = Reader()
    reader.take(b"\n".join(pieces))
    for line in pieces:
        reader.feed(line, 3)
    json.dumps(reader.table().as_json()).encode()
    assert all(char.isprintable() for line in text_lines(reader.table()) for char in line)


@given(st.sampled_from([SOCKET_2_10, IB_2_18, IB_2_28, EFA, RCCL_6_2]), st.data())
def test_a_line_may_be_cut_or_have_anything_in_it(text: str, data: st.DataObject) -> None:
    line = data.draw(st.sampled_from(text.encode().splitlines()))
    at = data.draw(st.integers(0, len(line)))
    Reader().feed(line[:at] + data.draw(st.binary(max_size=20)) + line[at:], 0)
    Reader().feed(line[:at], None)


@given(st.integers(1, 4000))
def test_pieces_of_a_file_are_as_the_whole(size: int) -> None:
    data = (IB_2_18 + SOCKET_2_10 + GLOO).encode()
    reader = Reader()
    read((data[at : at + size] for at in range(0, len(data), size)), reader)
    assert reader.table() == table(data.decode())


def test_a_hostile_file_is_bounded() -> None:
    reader = Reader()
    for number in range(PROCESSES + 10):
        reader.feed(b"h%d:%d:1 [0] NCCL INFO Using network X%d" % (number, number, number))
    found = reader.table()
    assert (len(found.rows), found.left_out) == (PROCESSES, 10)
    reader = Reader()
    for number in range(5000):
        reader.feed(b"h:1:1 [0] NCCL INFO NCCL_A%d set by environment to %d." % (number, number))
        reader.feed(b"h:1:1 [0] NCCL INFO comm 0x1 rank %d nranks 9999 cudaDev 1 - Init COMPLETE" % number)
        reader.feed(b"h:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/N%d/0" % number)
    (row,) = reader.table().rows
    assert (len(row.settings), len(row.numbers), len(row.across)) == (2 * EACH, EACH, EACH)
    assert PROCESSES < KEPT


def test_a_line_of_any_length_costs_its_beginning() -> None:
    reader = Reader()
    read((b"x" * (1 << 20) for _ in range(64)), reader)
    read([b"h:1:1 [0] NCCL INFO Using network IB" + b" " * (1 << 22) + b"\n"], reader)
    read([b"y" * (1 << 20) + b"NCCL " * (1 << 18)], reader)
    assert [row.network for row in reader.table().rows] == ["IB"]
    assert LONGEST < 1 << 12


def test_a_rank_that_cannot_be_is_none() -> None:
    line = "a:1:2 [0] NCCL INFO comm 0x1 rank {} nranks {} cudaDev 0 busId 1 - Init COMPLETE"
    assert not table(line.format(9, 8)).rows or only(line.format(9, 8)).numbers == ()
    assert not table(line.format(9, 9_999_999)).rows or only(line.format(9, 9_999_999)).numbers == ()
