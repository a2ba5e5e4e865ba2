"""What a rehearsal shows: findings with the right nodes, words of nodes made harmless, pairs to measure."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.base.gate import read
from cockpit.base.rehearsal_answers import TrialAnswer
from cockpit.core.doctor.deep import (
    _SENTENCES,
    NO_TORCH,
    Attempt,
    Rehearsed,
    found,
    slow,
    summary,
    tournament,
)
from cockpit.core.doctor.hunt import Culprit
from cockpit.core.doctor.nccl_words import meanings
from cockpit.core.finding import Finding
from cockpit.core.nccl.reading import networks
from tests.hostile.values import EVIL, good_object, odd_characters

NODES = ("gpu01", "gpu02", "gpu03", "gpu04")
LINES = """
gpu01:4711:4711 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>
gpu01:4711:4790 [0] NCCL INFO NET/IB : No device found.
gpu01:4711:4790 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>
gpu01:4711:4790 [0] transport/net_socket.cc:56 NCCL WARN NET/Socket : no interface found
gpu01:4711:4790 [0] misc/socket.cc:58 NCCL WARN socketStartConnect: Connect to 172.17.0.1<40001> failed : \
No route to host
gpu01:4711:4790 [0] init.cc:1089 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 7000
"""


def answer(
    step: str = "done", interface: str = "eth0", address: str = "10.0.0.1", error: str = ""
) -> TrialAnswer:
    return TrialAnswer(step, error, address, interface)


def attempt(group: tuple[str, ...], **failed: TrialAnswer) -> Attempt:
    return Attempt(group, "10.0.0.1:4000", ranks={**{who: answer() for who in group}, **failed})


def only(done: Rehearsed) -> Finding:
    (one,) = found(done)
    return one


def test_nothing_is_wrong() -> None:
    rates = {("gpu01", "gpu02"): 2e9, ("gpu03", "gpu04"): 2.4e9, ("gpu01", "gpu04"): 1.5e9}
    done = Rehearsed(NODES, torch="2.13.0", attempts=(attempt(NODES),), rates=rates)
    assert found(done) == ()
    assert summary(done) == [
        "torch 2.13.0, gloo: gpu[01-04], all-reduce of 4 MB in 0 ms",
        "interface eth0: gpu[01-04]",
        "3 pairs measured, median 2 GB/s; the slowest:",
        "  gpu01 - gpu04  1.5 GB/s",
        "  gpu01 - gpu02  2 GB/s",
        "  gpu03 - gpu04  2.4 GB/s",
    ]
    told = done.as_json()
    assert told["interfaces"]["gpu03"] == {"name": "eth0", "address": "10.0.0.1"}
    assert told["pairs"][0] == {"nodes": ["gpu01", "gpu04"], "bytes_per_s": 1_500_000_000}


def test_what_says_most_about_a_link_is_the_smallest_trial_that_has_both() -> None:
    error = "RuntimeError: [/src/pair.cc:1] connectFullMesh failed. This is typically caused by x"
    late = answer("connect", error=error)
    attempts = (
        attempt(NODES, gpu01=answer("gather", error="DistStoreError: wait timeout")),
        attempt(("gpu02", "gpu04"), gpu02=late),
        attempt(("gpu02", "gpu03")),
    )
    one = only(Rehearsed(NODES, attempts=attempts, culprits=(Culprit("link", ("gpu02",), ("gpu04",)),)))
    assert (one.id, one.nodes, one.severity) == ("deep_link", ("gpu02", "gpu04"), "error")
    assert one.evidence == (
        "gpu02: took eth0 (10.0.0.1); connecting with the other ranks: RuntimeError: connectFullMesh failed.",
    )
    assert (one.rule, "firewall" in one.meaning) == ("packets-lost", True)
    assert [step.command for step in one.steps][:1] == ["sudo nft list ruleset; ip route"]
    assert not [step for step in one.steps if step.command.startswith("cockpit ")], "it is being typed"


def test_who_took_another_interface_though_it_has_the_usual_one() -> None:
    wrong = answer("connect", "docker0", "172.17.0.1", error="timed out after 10 s")
    attempts = (attempt(NODES, gpu03=wrong),)
    has = dict.fromkeys(NODES, frozenset({"eth0", "docker0"}))
    blamed = (Culprit("member", ("gpu03",)),)
    one = only(Rehearsed(NODES, has=has, attempts=attempts, culprits=blamed))
    assert one.what.endswith("it took docker0 (172.17.0.1), most others eth0")
    assert one.steps[0].command == "--deep --iface eth0"
    # It worked this time.
    one = only(Rehearsed(NODES, has=has, attempts=attempts))
    assert (one.id, one.nodes, one.severity) == ("deep_interface", ("gpu03",), "warning")
    # Names that differ from node to node are no fault; loopback is.
    has["gpu03"] = frozenset({"docker0"})
    assert found(Rehearsed(NODES, has=has, attempts=attempts)) == ()
    loopback = attempt(NODES, gpu02=answer(interface="lo", address="127.0.1.1"))
    assert only(Rehearsed(NODES, attempts=(loopback,))).nodes == ("gpu02",)


def test_a_port_that_is_dropped() -> None:
    dropped = Attempt(NODES, "gpu01:29500", unreached=dict.fromkeys(NODES[1:], "no answer within 8 s"))
    one = only(Rehearsed(NODES, dropped=dropped))
    assert (one.id, one.nodes) == ("deep_port", NODES[1:])
    assert one.what == "cannot connect to gpu01 at gpu01:29500, though other ports are reachable"
    assert one.evidence == ("gpu[02-04]: no answer within 8 s",)


def test_who_did_not_take_part() -> None:
    done = Rehearsed(
        ("gpu04",),
        iface="ib0",
        out={"gpu01": "ranks are running there"},
        lacking={"gpu02": "it has eth0"},
        broken={"gpu03": "No module named 'torch'"},
    )
    assert {one.id: one.nodes for one in found(done)} == {
        "deep_no_interface": ("gpu02",),
        "deep_left_out": ("gpu01",),
        "deep_no_torch": ("gpu03",),
    }


def test_a_node_without_torch_needs_another_python() -> None:
    steps = {one.steps[0].command for one in found(Rehearsed(("gpu01",), out={"gpu02": NO_TORCH}))}
    assert steps == {"--python PATH"}


@pytest.mark.parametrize("kind", list(_SENTENCES))
def test_there_is_a_step_even_if_nothing_is_known_of_the_words(kind: str) -> None:
    pair = kind in ("link", "pair", "between")
    culprit = Culprit(kind, NODES[:1], NODES[1:2]) if pair else Culprit(kind, NODES[:2])  # type: ignore[arg-type]
    mute = Attempt(NODES[:2], "gpu01:4000", unreached={"gpu02": "Permission denied"})
    one = only(Rehearsed(NODES, attempts=(mute,), culprits=(culprit,)))
    assert one.id == f"deep_{kind}"
    assert [bool(step.command and step.reason) for step in one.steps] == [True]


def test_whoever_was_lost_or_left_out_gets_a_step_too() -> None:
    lost = Attempt(("gpu02",), errors={"gpu02": "the link broke"})
    done = Rehearsed(
        NODES[1:],
        out={"gpu01": "ranks are running there"},
        attempts=(lost,),
        culprits=(Culprit("alone", ("gpu02",)),),
    )
    told = {one.id: one for one in found(done)}
    assert told.keys() == {"deep_left_out", "deep_lost"}
    assert all(one.steps for one in told.values())


def test_a_gpu_of_a_node() -> None:
    done = Rehearsed(NODES, "nccl", culprits=(Culprit("member", ("gpu02/5",)),))
    assert (only(done).nodes, only(done).id) == (("gpu02",), "deep_member")
    assert only(done).what == "GPU 5: does not work with other GPUs, though they work with each other"


@pytest.mark.parametrize(
    ("bad", "nodes"), [({"gpu02", "gpu04"}, ("gpu02", "gpu04")), ({"gpu03"}, ("gpu03",))]
)
def test_slow_pairs(bad: set[str], nodes: tuple[str, ...]) -> None:
    nodes_of_all = (*NODES, "gpu05", "gpu06")
    rates = {pair: 1e8 if bad <= set(pair) else 1e9 for pair in combinations(nodes_of_all, 2)}
    one = only(Rehearsed(nodes_of_all, rates=rates))
    assert (one.id, one.nodes, one.severity) == ("deep_slow", nodes, "warning")
    assert slow(dict.fromkeys(rates, 1000000000.0)) == []


@given(st.integers(0, 130), st.integers(1, 12))
def test_a_tournament(size: int, rounds: int) -> None:
    members = [f"n{number}" for number in range(size)]
    played = tournament(members, rounds)
    assert len(played) <= rounds
    every = [frozenset(pair) for pairs in played for pair in pairs]
    assert len(every) == len(set(every))
    for pairs in played:
        there = [each for pair in pairs for each in pair]
        assert len(there) == len(set(there)) >= size - 1
    if 1 < size <= rounds:
        assert len(every) == size * (size - 1) // 2


def test_lines_of_nccl() -> None:
    assert networks(LINES) == ["bootstrap eth0", "Socket eth0"]
    known = [row.id for _, row in meanings(LINES)]
    assert len(known) == 3
    assert known[2] == "duplicate-gpu"


def test_what_nccl_says_is_read_like_that_of_a_run() -> None:
    said = LINES.replace("[0]eth0:", "[0]docker0:")
    done = Rehearsed(
        NODES[:3],
        backend="nccl",
        attempts=(
            attempt(
                NODES[:3],
                gpu01=replace(answer(), said=LINES + "a:1:1 [0] NCCL INFO Using network Socket\n"),
                gpu02=replace(answer(), said=LINES + "a:1:1 [0] NCCL INFO Using network Socket\n"),
                gpu03=replace(answer(), said=said + "a:1:1 [0] NCCL INFO Using network Socket\n"),
            ),
        ),
    )
    told = {one.id: one for one in found(done)}
    assert told["nccl-bridge"].nodes == ("gpu03",)
    assert "gpu03 uses a different interface" in told["nccl-interface"].what
    assert done.as_json()["nccl"]["differs"][0]["column"] == "interfaces"
    assert "NCCL says: Socket docker0: gpu03" in summary(done)


@pytest.mark.parametrize(
    ("line", "means"),
    [
        ("NCCL WARN Bootstrap : no socket interface found", "NCCL_SOCKET_IFNAME matches no interface"),
        ("Error while creating shared memory segment /dev/shm/nccl-Yr6 (size 9637888)", "/dev/shm is too"),
        ("NET/IB : Got completion from peer 10.0.0.2<1> with status=IBV_WC_RETRY_EXC_ERR(12)", "InfiniBand"),
        ("socketStartConnect: Connect to 10.0.0.2<4> failed : Connection refused", "nothing listens"),
        ("Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory", "may not lock memory"),
        ("RuntimeError: Unable to find address for: eth7", "GLOO_SOCKET_IFNAME names no interface"),
        ("The server socket has failed to listen: EADDRINUSE", "The rendezvous port is in use"),
    ],
)
def test_what_a_line_means(line: str, means: str) -> None:
    ((_, row),) = meanings(line)
    assert means in row.means


def test_a_rank_that_gave_its_loopback_address() -> None:
    line = "failed with timed out connecting: SO_ERROR: Connection refused, remote=[127.0.1.1]:13211$0"
    failed = TrialAnswer("connect", f"RuntimeError: {line}", "127.0.1.1", "lo", f"ERROR retry=1 {line}")
    attempts = (attempt(NODES[:2], gpu01=failed),)
    one = only(Rehearsed(NODES[:2], attempts=attempts, culprits=(Culprit("pair", NODES[:2]),)))
    assert "/etc/hosts" in one.steps[0].text
    assert len(one.evidence) == 1, "said once"


def test_ordinary_lines_mean_nothing() -> None:
    quiet = "gpu01:1:1 [0] NCCL INFO Channel 00/02 : 0 1\nNCCL version 2.27.5+cuda12.9\nInit COMPLETE\n"
    assert list(meanings(quiet)) == []


@pytest.mark.parametrize("seed", range(30))
def test_no_node_is_believed(seed: int) -> None:
    """Whatever passes the gate: its text is harmless wherever it is shown."""
    rng = random.Random(seed)

    def hostile() -> TrialAnswer:
        made = read(TrialAnswer, good_object(TrialAnswer, rng))
        step = rng.choice([*EVIL, "connect", "done"])
        error, interface, address, said = (rng.choice(EVIL) for _ in range(4))
        return replace(made, step=step, error=error, interface=interface, address=address, said=said)

    group = NODES[: rng.randint(1, 4)]
    tried = Attempt(
        group,
        rng.choice(EVIL),
        {"gpu02": rng.choice(EVIL)},
        {who: hostile() for who in group},
        {"gpu03": rng.choice(EVIL)},
    )
    done = Rehearsed(
        NODES,
        torch=rng.choice(EVIL),
        out={"gpu01": rng.choice(EVIL)},
        lacking={"gpu01": rng.choice(EVIL)},
        broken={"gpu01": rng.choice(EVIL)},
        has=dict.fromkeys(NODES, frozenset(EVIL)),
        dropped=tried,
        attempts=(tried, tried),
        culprits=(Culprit("member", group[:1]), Culprit("between", group[:1], group[1:])),
        rates={("gpu01", "gpu02"): 1e15, ("gpu01", "gpu03"): 0.1, ("gpu02", "gpu03"): 1e15},
    )
    told = json.dumps([done.as_json(), *(one.as_json() for one in found(done))], ensure_ascii=False)
    assert odd_characters(told + "".join(summary(done))) == []
