"""What is wrong by NCCL's own words, and what is not."""

from __future__ import annotations

from cockpit.core.finding import Finding
from cockpit.core.nccl.findings import found, notable
from cockpit.core.nccl.reading import Reader
from cockpit.core.nccl.table import Table
from cockpit.core.rules.explanation import translated
from cockpit.core.rules.table import table
from tests.nccl.samples import EFA, IB_2_18, IB_2_28, SOCKET_2_10


def ids(text: str) -> list[str]:
    return [one.id for one in of(text)]


def of(*texts: str) -> tuple[Finding, ...]:
    return found(tables(*texts))


def tables(*texts: str) -> Table:
    reader = Reader()
    for rank, text in enumerate(texts):
        reader.take(text.encode(), rank if len(texts) > 1 else None)
    return reader.table({rank: f"n{rank}" for rank in range(len(texts))} if len(texts) > 1 else None)


def the(id: str, *texts: str) -> Finding:
    (one,) = [each for each in of(*texts) if each.id == id]
    return one


def test_a_healthy_run_has_none() -> None:
    assert ids(IB_2_18) == []
    assert ids(EFA) == []
    assert of(*[IB_2_18] * 8) == ()
    assert found(Reader().table()) == ()


def test_docker0_between_nodes() -> None:
    one = the("nccl-bridge", SOCKET_2_10)
    assert (one.ranks, one.nodes, one.severity) == (1, ("n01",), "error")
    assert "docker0" in one.what
    assert one.steps[0].command == "--env NCCL_SOCKET_IFNAME=eth0"  # as the other node has it


def test_docker0_on_one_node_is_none() -> None:
    alone = "\n".join(SOCKET_2_10.splitlines()[:5]).replace("NET/Socket/0", "")
    assert "nccl-bridge" not in ids(alone)


def test_docker0_of_tcp_that_is_not_used_is_none() -> None:
    extra = "gpu1:900:960 [0] NCCL INFO NET/Socket : Using [0]bond0:10.2.0.1<0> [1]docker0:172.17.0.1<0>\n"
    assert "nccl-bridge" not in ids(IB_2_18 + extra)


def test_docker0_beside_another() -> None:
    text = SOCKET_2_10.replace("Using docker0:172.17.0.1<0>", "Using eth0:10.1.0.1<0>").replace(
        "[0]docker0:172.17.0.1<0>", "[0]eth0:10.1.0.1<0> [1]docker0:172.17.0.1<0>"
    )
    one = the("nccl-bridge", text)
    assert (one.severity, one.certainty) == ("warning", "likely")


def test_tcp_though_infiniband_is_there() -> None:
    text = IB_2_18.replace("Using network IB", "Using network Socket").replace(
        "NET/IB/0/GDRDMA", "NET/Socket/0"
    )
    one = the("nccl-tcp", text)
    assert one.severity == "warning"
    assert "mlx5_0:1/IB" in one.what


def test_tcp_while_others_use_infiniband() -> None:
    slow = IB_2_18.replace("Using network IB", "Using network Socket").replace(
        "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/RoCE [RO]; OOB bond0:10.2.0.1<0>",
        "NET/IB : No device found.",
    )
    one = the("nccl-tcp", IB_2_18, slow, IB_2_18)
    assert (one.ranks, one.nodes, one.severity) == (2, ("n1",), "warning")
    assert "while others use IB" in one.what


def test_tcp_because_nothing_else_is_there_is_worth_a_remark() -> None:
    one = the("nccl-tcp", SOCKET_2_10)
    assert one.severity == "info"


def test_one_rank_on_another_interface() -> None:
    one = the("nccl-interface", *[IB_2_18] * 3, IB_2_18.replace("bond0", "eth1"))
    assert (one.ranks, one.nodes) == (8, ("n3",))
    assert one.steps[0].command == "--env NCCL_SOCKET_IFNAME=bond0"


def test_two_halves_on_two_interfaces_are_nobodys_fault() -> None:
    eth = IB_2_18.replace("bond0", "eth1")
    assert "nccl-interface" not in [one.id for one in of(IB_2_18, IB_2_18, eth, eth)]


def test_mixed_versions() -> None:
    one = the("nccl-versions", IB_2_18, IB_2_18, IB_2_18.replace("2.18.6", "2.20.5"))
    assert (one.ranks, one.severity) == (4, "error")
    assert one.evidence == ("NCCL 2.18.6: ranks 0-1 (n[0-1])", "NCCL 2.20.5: rank 2 (n2)")


def test_no_p2p_no_gpudirect() -> None:
    assert ids(IB_2_28) == ["nccl-p2p", "nccl-gdr"]
    one = the("nccl-gdr", IB_2_28)
    assert any("mlx5_0+mlx5_1" in text for text in one.evidence)


def test_p2p_off_by_choice() -> None:
    text = IB_2_18 + "gpu1:900:900 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1\n"
    one = the("nccl-p2p", text)
    assert (one.severity, one.certainty) == ("info", "likely")


def test_shared_memory_alone_is_no_fault() -> None:
    text = IB_2_18.replace("via P2P/CUMEM/read", "via SHM/direct/direct")
    assert "nccl-p2p" not in ids(text)
    assert "nccl-p2p" in [one.id for one in of(IB_2_18, text)]


def test_acs_by_the_hint_of_2_30() -> None:
    hint = (
        "gpu1:900:960 [0] NCCL INFO HINT: In many cases this error occurs when ACS is enabled which would "
        "break GPU Direct RDMA protocol.\n"
    )
    assert any("ACS" in text for text in the("nccl-p2p", IB_2_18 + hint).evidence)


def test_each_says_what_a_rule_says_of_it() -> None:
    slow = IB_2_18.replace("Using network IB", "Using network Socket")
    loop = SOCKET_2_10.replace("docker0", "lo")
    off = SOCKET_2_10 + "n01:801:801 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1\n"
    every = [*of(SOCKET_2_10), *of(loop), *of(IB_2_28), *of(slow), *of(off)]
    every += of(*[IB_2_18] * 3, IB_2_18.replace("bond0", "eth1").replace("2.18.6", "2.20.5"))
    assert {one.rule for one in every} == {
        *("on-bridge", "on-loopback", "nccl-tcp", "ib-missing", "nccl-interface", "nccl-versions-differ"),
        *("p2p-off", "nccl-gdr"),
    }
    checked = {row.id for check, row in table().by_check.items() if check.startswith("nccl-")}
    assert checked == {one.rule for one in every}
    for one in every:
        row = table().by_id[one.rule]
        assert one.meaning == row.means
        assert [step.reason for step in one.steps] == [each.reason for each in row.next]
        assert one.certainty != "sure"  # words of a log


def test_in_chinese_the_very_interface_is_still_named() -> None:
    (one,) = [each for each in notable(tables(SOCKET_2_10), "zh") if each.id == "nccl-bridge"]
    row = table().by_id["on-bridge"]
    assert one.meaning == row.zh
    assert (one.steps[0].command, one.steps[0].reason) == (
        "--env NCCL_SOCKET_IFNAME=eth0",
        row.next[0].zh,
    )
    assert translated(one, "en") == the("nccl-bridge", SOCKET_2_10)


def test_what_is_but_a_remark_is_not_said_unasked() -> None:
    assert [one.id for one in of(SOCKET_2_10)] == ["nccl-bridge", "nccl-tcp"]
    assert [one.id for one in notable(tables(SOCKET_2_10), "en")] == ["nccl-bridge"]
