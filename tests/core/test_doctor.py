"""What the doctor says of nodes that differ or are unfit; of nodes that are alike it says nothing."""

from __future__ import annotations

from typing import Any

import pytest

from cockpit.base.answers import FoundRank, Meeting, OtherJob, SeekAnswer, Stuck
from cockpit.base.checkup_answers import (
    GpuUser,
    Holder,
    Interface,
    Leftover,
    Leftovers,
    Lock,
    Network,
    ReachAnswer,
)
from cockpit.core.doctor.diagnosis import checked, code, diagnosis, line, verdict
from cockpit.core.doctor.node_checks import Look, Looks
from cockpit.core.finding import RULE_FAILED, Finding
from cockpit.core.rules.explanation import translated
from cockpit.core.rules.table import table
from cockpit.errors import CockpitError, Exit
from cockpit.transport.base import LinkError
from tests.core.doctored import (
    GB,
    NODES,
    Plant,
    condition,
    disk,
    facts,
    gpu,
    healthy,
    look,
    looks,
    part,
)


def rank(number: int, run: str = "") -> FoundRank:
    return FoundRank(
        number, 8, number, 4711 + number, 1, "S", Meeting(), run, "alice", "torchrun", "python train.py", 1.0
    )


def said(plants: dict[int, Plant], **more: Any) -> list[str]:
    found = diagnosis(looks(plants, **more))
    assert RULE_FAILED not in {each.id for each in found}
    return [line(each) for each in found]


def test_nodes_that_are_alike_are_fit_and_nothing_else_is_said() -> None:
    alike = looks()
    assert diagnosis(alike) == ()
    told = verdict(alike, ())
    assert told == (
        "8 nodes fit: python 3.12.3, torch 2.13.0, deepspeed 0.19.8, 8 x NVIDIA H100, driver 570.86.15"
    )
    assert code(()) is Exit.OK


def test_what_was_checked_is_said_and_on_how_many_nodes() -> None:
    told = checked(looks({3: condition(gpus=None), 4: look(machine="", errors=(CockpitError("refused"),))}))
    assert told.startswith("checked on 7 of 8 nodes: versions, clocks, ")
    assert ", GPUs (6 nodes), " in told
    assert ", the rendezvous port, " in told, "it is on one node alone"
    assert "your Python files" in told
    assert "your Python files" not in checked(looks(dict.fromkeys(range(1, 9), condition(code={}))))
    assert checked(looks()).startswith("checked: versions, clocks, ")
    assert checked(Looks({})) == ""


def test_a_node_that_gave_no_part_of_an_answer_differs_in_nothing() -> None:
    bare = Looks({name: look(machine=name)(healthy(0)) for name in NODES[:2]})
    empty = {**bare.nodes, "gpu09": type(healthy(0))(machine="m")}
    assert diagnosis(Looks(empty)) == ()


DIFFERENT: list[tuple[dict[int, Plant], str]] = [
    (dict.fromkeys((3, 7), facts(torch="2.11.0")), "gpu[03,07]: torch 2.11.0, others 2.13.0"),
    ({2: facts(python_version="3.10.12")}, "gpu02: python 3.10.12, others 3.12.3"),
    ({8: facts(deepspeed="0.18.2")}, "gpu08: deepspeed 0.18.2, others 0.19.8"),
    ({8: facts(accelerate=None)}, "gpu08: accelerate none, others 1.15"),
    (
        {5: facts(packages={"nvidia-nccl-cu12": "2.27.3", "numpy": "2.2.1"})},
        "gpu05: NCCL 2.27.3, others 2.29.2",
    ),
    ({4: condition(driver="550.54.15")}, "gpu04: NVIDIA driver 550.54.15, others 570.86.15"),
    ({1: part("system", kernel="5.15.0")}, "gpu01: kernel 5.15.0, others 6.8.0"),
    ({6: part("system", governor="powersave")}, "gpu06: frequency governor powersave, others performance"),
    ({3: part("system", memory_bytes=1546 * GB)}, "gpu03: memory 1.55 TB, others 2.16 TB"),
    (
        {3: lambda one: condition(gpus=(one.condition.gpus or ())[:7])(one)},
        "gpu03: GPUs: 7 x NVIDIA H100, others 8 x NVIDIA H100",
    ),
    (
        {2: gpu(5, clock_mhz=1410)},
        "gpu02: highest GPU clock (MHz) 1980 and 1410, others 1980",
    ),
    ({2: part("limits", open_files=4096)}, "gpu02: ulimit -n: 4096, others 65536"),
    (
        {5: condition(login={"CUDA_HOME": "/opt/cuda"})},
        "gpu05: set in login shells only: CUDA_HOME=/opt/cuda, others none",
    ),
    ({2: part("limits", locked_bytes=128 << 20)}, "gpu02: ulimit -l: 134 MB, others unlimited"),
    ({2: part("system", memory_max_bytes=64 * GB)}, "gpu02: cgroup's memory limit: 64 GB, others unlimited"),
    ({7: disk("/dev/shm", total_bytes=16 * GB, free_bytes=16 * GB)}, "gpu07: /dev/shm 16 GB, others 1.08 TB"),
    (
        {7: disk("working directory", type="ext4")},
        "gpu07: the working directory's file system: ext4, others nfs4",
    ),
    ({7: part("profiling", ptrace_scope=0)}, "gpu07: kernel.yama.ptrace_scope = 0, others 1"),
    ({7: look(uid=1007)}, "gpu07: your user id: 1007, others 1000"),
]
"""Plants by the number of the node, and what is said."""


@pytest.mark.parametrize(("plants", "expected"), DIFFERENT, ids=[text[:50] for _, text in DIFFERENT])
def test_what_differs_is_one_line_with_the_nodes_that_do(plants: dict[int, Plant], expected: str) -> None:
    assert said(plants) == [expected]
    (found,) = diagnosis(looks(plants))
    assert found.severity == "warning"
    assert found.steps
    assert found.nodes == tuple(NODES[number - 1] for number in sorted(plants))
    assert code([found]) is Exit.RANK_FAILED


def test_an_interface_of_another_name_or_mtu() -> None:
    def with_interface(**changed: Any) -> Plant:
        def plant(one: Any) -> Any:
            (there,) = one.condition.network.interfaces
            there = type(there)(**{**vars(there), **changed})
            reached = ReachAnswer("", "10.0.0.3", there.name)
            return part("network", interfaces=(there,))(look(reached=reached)(one))

        return plant

    assert said({3: with_interface(mtu=1500)}) == ["gpu03: MTU 1500, others 9000"]
    assert said({3: with_interface(name="eth0")}) == [
        "gpu03: interface to the other nodes: eth0, others eno1"
    ]
    cards = part("network", rdma=healthy(0).condition.network.rdma[:1])  # type: ignore[union-attr]
    (one,) = said({4: cards})
    assert one.startswith("gpu04: InfiniBand: mlx5_0/1 ACTIVE 400 Gb/sec (4X NDR), others mlx5_0/1 ACTIVE")
    assert said({3: with_interface(mbit=1000)}) == ["gpu03: Mbit/s of the interface: 1000, others 100000"]


def test_at_a_tie_both_are_named_and_of_several_each_has_its_nodes() -> None:
    half = said(dict.fromkeys((1, 2, 3, 4), facts(torch="2.11.0")))
    assert half == ["gpu[01-08]: torch 2.11.0 on gpu[01-04], 2.13.0 on gpu[05-08]"]
    three = said({1: facts(torch="2.11.0"), 2: facts(torch="2.9.1"), 3: facts(torch="2.9.1")})
    assert three == ["gpu[01-03]: torch 2.9.1 on gpu[02-03], 2.11.0 on gpu01, others 2.13.0"]


def test_code_beside_the_script_that_differs() -> None:
    plants = {4: condition(code={"train.py": "aa" * 8, "data.py": "cc" * 8}), 5: condition(code={})}
    (found,) = diagnosis(looks(plants))
    assert line(found) == "gpu[04-05]: code differs from the other nodes: data.py, train.py"
    assert found.evidence == (
        "data.py: gpu[04-05]: cccccccc on gpu04, no such file on gpu05, others bbbbbbbb",
        "train.py: gpu05: no such file, others aaaaaaaa",
    )


RANKS = SeekAnswer((rank(4, "otter"), rank(5, "otter")))
LOCK = Lock("/home/alice/.cache/torch_extensions/py312_cu128/fused_adam/lock", 11_000.0)

WRONG: list[tuple[str, dict[int, Plant], str]] = [
    (
        "error",
        {
            3: look(
                machine="",
                facts=None,
                errors=(LinkError("connection refused", where="gpu03", hint="try: ssh gpu03 true"),),
            )
        },
        "gpu03: connection refused",
    ),
    (
        "error",
        {
            3: look(
                facts=None, errors=(CockpitError("no directory /data/work", where="gpu03", hint="create it"),)
            )
        },
        "gpu03: no directory /data/work",
    ),
    (
        "error",
        {3: look(reached=ReachAnswer("No route to host"))},
        "gpu03: cannot connect to gpu01 at 10.0.0.1: No route to host",
    ),
    ("error", {3: condition(gpus=())}, "gpu03: driver 570.86.15 is loaded, but it shows no GPU"),
    ("error", {3: gpu(2, errors=2)}, "gpu03: GPU 2: 2 uncorrected memory errors"),
    (
        "warning",
        {1: condition(port=(Holder(29500, 4711, "python"),))},
        "gpu01: port 29500, the default of DeepSpeed and torchrun, is held by python (pid 4711)",
    ),
    (
        "warning",
        dict.fromkeys((3, 4), look(ranks=RANKS)),
        "gpu[03-04]: ranks 4-5 of run otter are running there",
    ),
    ("warning", {3: look(ranks=SeekAnswer((rank(0),)))}, "gpu03: rank 0 of a job is running there"),
    (
        "warning",
        {3: look(ranks=SeekAnswer((), (OtherJob("bob", 7, 4, "torchrun t.py"),)))},
        "gpu03: bob runs a job there: torchrun t.py",
    ),
    (
        "warning",
        {3: look(ranks=SeekAnswer((), stuck=(Stuck(9, "python", "D"),)))},
        "gpu03: python (pid 9, state D) does not respond",
    ),
    (
        "warning",
        {3: gpu(3, memory_bytes=38 * GB, users=(GpuUser(4711, 38 * GB, "python", "alice"),))},
        "gpu03: GPU 3: 38 GB of 85 GB held by python (pid 4711, alice)",
    ),
    ("warning", {3: gpu(3, slowed=("heat",))}, "gpu03: GPU 3 is slowed down: heat"),
    ("warning", {3: condition(silent={"gpus": "no answer within 3 s"})}, "gpu03: GPUs: no answer within 3 s"),
    (
        "warning",
        {3: condition(silent={"gpus": "no answer within 3 s", "limits": "no answer within 3 s"})},
        "gpu03: GPUs: no answer within 3 s (1 more like it)",
    ),
    (
        "warning",
        {3: condition(silent=dict.fromkeys(NODES, "no answer within 3 s"))},
        "gpu03: did not resolve gpu[01-08]: no answer within 3 s (getaddrinfo)",
    ),
    (
        "warning",
        {
            3: condition(silent={"gpu01": "no answer within 3 s"}),
            4: condition(silent={"gpu02": "no answer within 3 s"}),
        },
        "gpu[03-04]: did not resolve some of gpu[01-02]: no answer within 3 s (getaddrinfo)",
    ),
    (
        "warning",
        {3: condition(names={"gpu01": (), "gpu02": ("10.0.0.2",)})},
        "gpu03: cannot resolve gpu01",
    ),
    ("warning", {3: condition(names={"gpu01": ("127.0.1.1",)})}, "gpu03: resolves gpu01 to 127.0.1.1"),
    (
        "warning",
        {3: condition(names={"gpu01": ("10.0.0.6",)})},
        "gpu03: resolves gpu01 to 10.0.0.6, others to 10.0.0.1",
    ),
    ("warning", {3: disk("/tmp", free_bytes=12_000_000)}, "gpu03: /tmp: 12 MB free"),
    ("warning", {3: disk("/tmp", free_bytes=9 * GB)}, "gpu03: /tmp: 9 GB free, others 904 GB"),
    (
        "warning",
        dict.fromkeys(range(1, 9), disk("/dev/shm", total_bytes=64 << 20, free_bytes=64 << 20)),
        "gpu[01-08]: /dev/shm: 67.1 MB free of 67.1 MB",
    ),
    (
        "warning",
        dict.fromkeys(range(1, 9), disk("run folders", type="nfs4")),
        "gpu[01-08]: run folders (/tmp/cockpit-1000) are on nfs4",
    ),
    ("warning", {3: part("system", memory_free_bytes=20 * GB)}, "gpu03: 20 GB of 2.16 TB memory free"),
    (
        "warning",
        dict.fromkeys(range(1, 9), part("limits", locked_bytes=65536)),
        "gpu[01-08]: ulimit -l is 66 kB: InfiniBand cannot register memory",
    ),
    (
        "warning",
        dict.fromkeys(range(1, 9), part("limits", open_files=256)),
        "gpu[01-08]: ulimit -n is 256: data loaders need more",
    ),
    (
        "warning",
        dict.fromkeys(range(1, 9), part("profiling", ptrace_scope=3)),
        "gpu[01-08]: kernel.yama.ptrace_scope = 3: no stacks can be taken",
    ),
    (
        "warning",
        {3: part("session", kills=True)},
        "gpu03: kills processes at logout (KillUserProcesses): runs end with your last session",
    ),
    ("warning", {3: look(offset_s=41.2)}, "gpu03: its clock is 41 s ahead of the others"),
    ("warning", {3: look(offset_s=-3.3)}, "gpu03: its clock is 3.3 s behind the others"),
    (
        "warning",
        dict.fromkeys(range(1, 9), look(offset_s=-70.0)),
        "gpu[01-08]: the clock there is 70 s behind this machine's",
    ),
    (
        "warning",
        {3: condition(leftovers=Leftovers((LOCK,)))},
        "gpu03: a build lock is 3.1 h old: /home/alice/.cache/torch_extensions/py312_cu128/fused_adam/lock",
    ),
    (
        "warning",
        {3: condition(leftovers=Leftovers((), (Leftover("nccl-x1", 80 << 20), Leftover("nccl-x2", 5))))},
        "gpu03: 83.9 MB of unused shared memory: /dev/shm/nccl-x1 and 1 more",
    ),
    (
        "warning",
        {3: condition(login={"ninja": "/opt/bin/ninja", "CUDA_HOME": "/usr/local/cuda"})},
        "gpu03: ninja on PATH in login shells only, not for ranks",
    ),
]
"""How severe it is, plants, and what is said."""


@pytest.mark.parametrize(("severity", "plants", "expected"), WRONG, ids=[text[:50] for _, _, text in WRONG])
def test_what_is_wrong_is_named_with_its_nodes_and_a_step(
    severity: str, plants: dict[int, Plant], expected: str
) -> None:
    found = diagnosis(looks(plants))
    (first, *rest) = [each for each in found if line(each) == expected]
    assert not rest
    assert first.severity == severity
    assert all(step.text for step in first.steps)
    assert first.steps
    # What follows from it may differ too: a node without GPUs has other GPUs than the rest.
    assert {each.id.partition("_")[0] for each in found} - {"differs"} == {first.id.partition("_")[0]}
    assert code(found) is (Exit.NODE_UNFIT if severity == "error" else Exit.RANK_FAILED)


def test_a_port_that_was_asked_for_must_be_free() -> None:
    plants = {1: condition(port=(Holder(29501),))}
    (found,) = diagnosis(looks(plants, port=29501, port_asked=True))
    assert (line(found), found.severity) == (
        "gpu01: port 29501 is held by another user's process",
        "error",
    )


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        ("eno", True),
        ("eth0", False),
        ("=eno", False),
        ("=eno1", True),
        ("eth0,eno1", True),
        ("^docker0,lo", True),
        ("^e", False),
    ],
)
def test_an_interface_that_was_chosen_must_be_there(value: str, fits: bool) -> None:
    told = said({}, env={"NCCL_SOCKET_IFNAME": value, "OTHER": "eth9"})
    assert told == ([] if fits else [f"gpu[01-08]: NCCL_SOCKET_IFNAME={value} matches no interface (eno1)"])


def test_loopback_joins_only_what_is_on_one_machine() -> None:
    env = {"GLOO_SOCKET_IFNAME": "lo"}
    assert said({}, env=env) == ["gpu[01-08]: GLOO_SOCKET_IFNAME=lo: that interface leads to no other node"]
    here = dict.fromkeys(range(1, 9), look(machine="here"))
    assert not [text for text in said(here, env=env, run="demo") if "IFNAME" in text]


def test_names_that_no_node_knows_are_aliases_of_ssh() -> None:
    assert said(dict.fromkeys(range(1, 9), condition(names=dict.fromkeys(NODES, ())))) == []


def test_a_step_of_a_job_outlives_no_logout_anyway() -> None:
    assert said({3: part("session", kills=True)}, scheduler=True) == []
    assert said({3: part("session", kills=True, lingers=True)}) == []


def test_what_a_launch_lacks_is_not_said_twice() -> None:
    unfit = Finding("no_torch", "no torch in /opt/venv/bin/python", nodes=("gpu03",))
    found = diagnosis(looks({3: facts(torch=None)}), [unfit])
    assert [each.id for each in found] == ["no_torch"]


def test_the_worst_comes_first_and_is_counted() -> None:
    seen = looks({2: facts(torch="2.9"), 3: look(reached=ReachAnswer("Connection refused"))})
    found = diagnosis(seen)
    assert [each.severity for each in found] == ["error", "warning"]
    assert verdict(seen, found) == "8 nodes: 1 unfit, 1 warning"
    assert verdict(seen, found[1:]) == "8 nodes fit, 1 warning"


def test_what_a_node_says_is_harmless_on_a_terminal() -> None:
    evil = "2.9\x1b]0;gone\x07" + "x" * 500
    network = Network(rdma=())
    plants = {3: facts(torch=evil), 4: condition(network=network, silent={evil: evil}, driver=evil)}
    told = said(plants)
    assert len(told) >= 3
    assert not [text for text in told if "\x1b" in text or "\x07" in text or len(text) > 600]


def test_what_is_too_little_is_not_said_to_differ_as_well() -> None:
    little = disk("/dev/shm", total_bytes=64 << 20, free_bytes=64 << 20)
    assert said({3: little}) == ["gpu03: /dev/shm: 67.1 MB free of 67.1 MB"]
    files = part("limits", open_files=256)
    assert said({3: files}) == ["gpu03: ulimit -n is 256: data loaders need more"]
    both = said({3: files, 4: part("limits", processes=5000)})
    assert both == [
        "gpu03: ulimit -n is 256: data loaders need more",
        "gpu04: ulimit -u: 5000, others 8000000",
    ]


def test_that_no_run_folder_can_be_made_is_not_said_twice() -> None:
    def plant(one: Look) -> Look:
        return facts(folder="its disk is full")(disk("run folders", free_bytes=0)(one))

    assert said({3: plant}) == []


def test_each_cause_has_its_own_words_and_steps() -> None:
    """But for numbers and the node's own name, in which many nodes with one cause differ."""

    def lost(what: str, hint: str = "") -> Plant:
        return look(machine="", errors=(LinkError(what, where="", hint=hint),))

    plants = {
        1: lost("connection refused", "start sshd"),
        2: lost("no answer for 7 s"),
        3: lost("login refused", "ssh-copy-id gpu03"),
        4: lost("no answer for 8 s"),
        5: lost("gpu05 is another machine"),
        6: lost("gpu06 is another machine"),
        7: look(machine="", errors=(LinkError("no route", where="jump host login1"),)),
    }
    found = [each for each in diagnosis(looks(plants)) if each.id == "unreachable"]
    assert [line(each) for each in found] == [
        "gpu01: connection refused",
        "gpu[02,04]: no answer for 7 s (gpu02; 1 more like it)",
        "gpu03: login refused",
        "gpu[05-06]: gpu05 is another machine (gpu05; 1 more like it)",
        "gpu07: jump host login1: no route",
    ]
    assert [step.text for step in found[0].steps] == ["start sshd"]
    assert [step.text for step in found[2].steps] == ["ssh-copy-id gpu03"]


def test_nodes_that_were_not_tried_are_not_unfit() -> None:
    untried = look(machine="", untried=True)
    seen = looks({2: untried, 3: untried})
    found = [each for each in diagnosis(seen) if each.severity == "warning"]
    assert [line(each) for each in found] == [
        "gpu[02-03]: not tried: the connections ahead of them did not finish"
    ]
    assert verdict(seen, found) == "8 nodes: 2 not tried"
    assert code(found) is Exit.RANK_FAILED
    worse = looks({1: look(machine="", errors=(LinkError("no route", where="gpu01"),)), 2: untried})
    assert verdict(worse, diagnosis(worse)) == "8 nodes: 1 unfit, 1 not tried"


@pytest.mark.parametrize(
    ("path", "step"),
    [
        ("/home/ada/ext/fused/lock", "rm /home/ada/ext/fused/lock"),
        ("/tmp/x;reboot/lock", "rm FILE"),
        ("-rf", "rm FILE"),
    ],
)
def test_a_file_that_is_in_the_way_is_removed_by_its_name_if_that_is_harmless(path: str, step: str) -> None:
    leftovers = Leftovers((Lock(path, 7200),), ())
    (found,) = diagnosis(looks({3: condition(leftovers=leftovers)}))
    assert [(one.command, one.node) for one in found.steps] == [(step, "gpu03")]


def test_names_lead_to_the_machines_that_they_are_of() -> None:
    """Not what a name of one's own leads to, nor a network that a node has beside, nor one by itself."""
    both = (Interface("eno1", 9000, 100_000, ("10.0.0.1",)), Interface("ib0", 2044, 100_000, ("10.9.0.1",)))
    beside = {1: condition(network=Network(both)), 3: condition(names={"gpu01": ("10.9.0.1",)})}
    assert [text for text in said(beside) if "resolves" in text] == []
    own = {1: condition(names={"gpu01": ("10.0.0.6",), "gpu02": ("10.0.0.2",)})}
    assert [text for text in said(own) if "resolves" in text] == []
    nodes = looks({2: condition(names={"gpu01": ("10.0.0.3",)})}).nodes
    two = Looks({name: nodes[name] for name in NODES[:2]})
    assert [line(each) for each in diagnosis(two) if each.id == "name_differs"] == []
    three = Looks({name: nodes[name] for name in NODES[:3]})
    told = [line(each) for each in diagnosis(three) if each.id == "name_differs"]
    assert told == ["gpu02: resolves gpu01 to 10.0.0.3, which is gpu03"]


def test_a_first_node_that_cannot_be_reached_is_told_of_by_its_address_there() -> None:
    reached = look(reached=ReachAnswer("Connection refused"))
    for address, place, step in (
        ("10.0.0.9", "10.0.0.9", "ip route get 10.0.0.9"),
        ("gpu01", "10.0.0.1", "ip route get 10.0.0.1"),
        ("elsewhere", "elsewhere", "getent hosts elsewhere"),
    ):
        (found,) = diagnosis(looks({3: reached}, address=address))
        assert line(found) == f"gpu03: cannot connect to gpu01 at {place}: Connection refused"
        assert found.steps[0].command == step


def test_a_disk_that_has_run_folders_and_tmp_is_told_of_once() -> None:
    def plant(one: Look) -> Look:
        return disk("/tmp", free_bytes=GB // 2)(disk("run folders", free_bytes=GB // 2)(one))

    assert said({3: plant}) == ["gpu03: run folders (/tmp/cockpit-1000): 500 MB free"]


def test_the_ranks_of_a_job_that_is_watched_are_meant_to_be_there() -> None:
    found = SeekAnswer((rank(0), rank(1)))
    pids = {"gpu03": frozenset(each.pid for each in found.ranks)}
    plants = {3: look(ranks=found), 4: look(ranks=found)}
    told = [line(each) for each in diagnosis(looks(plants, pids=pids))]
    assert told == ["gpu04: ranks 0-1 of a job are running there"]


@pytest.mark.parametrize(
    ("known", "step"),
    [(frozenset({"heron"}), "cockpit stop heron"), (frozenset(), "cockpit attach -w 'gpu[03-04]'")],
)
def test_what_is_left_of_a_run_is_stopped_where_it_is_known(known: frozenset[str], step: str) -> None:
    left = look(ranks=SeekAnswer((rank(0, "heron"),)))
    (found,) = diagnosis(looks({3: left, 4: left}, known=known))
    assert (found.id, found.nodes, found.severity) == ("leftover_ranks", ("gpu03", "gpu04"), "warning")
    assert [one.command for one in found.steps] == [step]
    (found,) = diagnosis(looks({3: left, 4: left}, known=known, config="/a b"))
    assert [one.command for one in found.steps] == [step.replace("-w", "-F '/a b' -w")]


def test_another_run_of_ones_own_is_no_fault_unless_both_use_a_gpu() -> None:
    mine, other = rank(0, "otter"), rank(4, "heron")
    there = look(ranks=SeekAnswer((mine, other)))

    def using(index: int, *pids: int) -> Plant:
        users = tuple(GpuUser(pid, name="python", user="alice") for pid in pids)
        return gpu(index, memory_bytes=40 * GB, users=users)

    def doctored(*plants: Plant, **more: Any) -> tuple[Finding, ...]:
        def all_of_them(one: Look) -> Look:
            for plant in (there, *plants):
                one = plant(one)
            return one

        return diagnosis(looks({3: all_of_them}, run="otter", own=frozenset({"heron"}), **more))

    slots = {"gpu03": frozenset({0, 1})}
    (found,) = doctored(using(0, mine.pid), using(4, other.pid), slots=slots)
    assert (found.id, found.severity) == ("own_run", "info")
    assert line(found) == "gpu03: rank 4 of your run heron is running there too"
    assert [step.command for step in found.steps] == ["cockpit attach heron"]
    assert code([found]) is Exit.OK
    shared, _ = doctored(using(0, mine.pid, other.pid), slots=slots)
    assert (shared.id, shared.severity) == ("gpu_busy", "warning")
    assert line(shared) == "gpu03: GPU 0 is used by your run heron as well"
    taken, _ = doctored(using(1, other.pid), slots=slots)
    assert line(taken) == "gpu03: GPU 1: 40 GB of 85 GB held by python (pid 4715, alice)"
    # A run that is over, or that nobody here knows, is one that was left behind.
    assert said({3: there}, run="otter") == ["gpu03: rank 4 of run heron is running there"]


def test_counters_of_gpus_that_are_kept_from_users_count_where_a_profiler_is_to_run() -> None:
    kept = dict.fromkeys(range(1, 9), part("profiling", gpu_counters=False))
    assert said(kept) == []
    (found,) = diagnosis(looks(kept, profiled=True))
    assert line(found) == "gpu[01-08]: GPU performance counters are for root alone (ERR_NVGPUCTRPERM)"
    assert found.severity == "info"
    assert any("NVreg_RestrictProfilingToAdminUsers=0" in step.command for step in found.steps)
    free = {number: part("profiling", gpu_counters=number != 3) for number in range(1, 9)}
    assert said(free) == ["gpu03: GPU performance counters: for root alone, others for everybody"]


def test_several_names_of_one_machine_are_said_once() -> None:
    same = {3: look(machine="m"), 5: look(machine="m")}
    (told,) = diagnosis(looks(same))
    assert (told.id, told.nodes, told.severity) == ("same_machine", ("gpu03", "gpu05"), "warning")
    assert told.what == "gpu[03,05] are the same machine"
    # Before each run, names are not asked for, and a run that is there was meant so.
    asked = looks(same)
    bare = {name: condition(names=None)(one) for name, one in asked.nodes.items()}
    assert diagnosis(Looks(bare)) == ()
    assert diagnosis(looks(same, run="otter")) == ()


def test_what_a_fault_means_and_what_to_type_is_that_of_the_table_with_what_is_known_of_the_node() -> None:
    (found,) = diagnosis(looks({1: condition(port=(Holder(29507, 4711, "python"),))}, port_asked=True))
    row = table().by_id["port-in-use"]
    assert (found.rule, found.meaning) == (row.id, row.means)
    assert [(step.node, step.command) for step in found.steps] == [
        ("gpu01", "ss -ltnp 'sport = :29507'"),
        ("", "export MASTER_PORT=29501"),
        ("gpu01", "ps -fp 4711"),
    ]
    told = translated(found, "zh")
    assert (told.what, told.meaning) == (found.what, row.zh)
    assert [step.command for step in told.steps] == [step.command for step in found.steps]
    assert [step.reason for step in told.steps] == [one.zh for one in row.next]
    # Who it is, nobody knows: there is nothing to show.
    (other,) = diagnosis(looks({1: condition(port=(Holder(29507),))}, port_asked=True))
    assert [step.command for step in other.steps] == [step.command for step in found.steps[:2]]


def test_faults_with_one_id_and_other_meanings_are_told_apart() -> None:
    low = part("limits", open_files=256, processes=512)
    found = diagnosis(looks({3: low, 4: low}))
    assert [(each.id, each.rule, each.nodes) for each in found] == [
        ("limits_low", "open-files", ("gpu03", "gpu04")),
        ("limits_low", "no-more-threads", ("gpu03", "gpu04")),
    ]
    chosen = {"NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "lo"}
    rules = {each.rule for each in diagnosis(looks(env=chosen))}
    assert rules == {"nccl-no-interface", "on-loopback"}


def test_a_failed_login_means_what_it_means_in_a_log() -> None:
    refused = LinkError("login refused", where="gpu03", hint="try: ssh-copy-id gpu03", about="login")
    (found,) = diagnosis(looks({3: look(machine="", facts=None, errors=(refused,))}))
    assert (found.what, found.rule) == ("login refused", "ssh-refused")
    assert [step.command for step in found.steps] == [
        "ssh-copy-id gpu03",
        "ssh -v NODE true 2>&1 | grep -E 'Offering|as user'",
    ]
