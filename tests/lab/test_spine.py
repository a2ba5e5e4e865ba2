"""One command trains on two real nodes over real ssh, under every launcher, and outlives its cockpit."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess

import pytest

from cockpit.base.progress import ring
from tests.lab.cockpits import EXAMPLES, Cockpits
from tests.needs import require, require_module
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

PLAIN = str(EXAMPLES / "train_plain.py")


@pytest.mark.launch
@pytest.mark.parametrize("launcher", ["deepspeed", "torchrun", "accelerate"])
def test_trains_and_says_so(cockpits: Cockpits, launcher: str) -> None:
    """On nodes with different numbers of ranks, where the launcher has that."""
    require_module(launcher.replace("torchrun", "torch"))
    slots = (1, 1) if launcher == "accelerate" else (2, 1)
    ranks = dict(zip(cockpits.lab.nodes, slots, strict=True))
    nodes = "".join(f"{node} slots={count}\n" for node, count in ranks.items())
    script = "train_deepspeed.py" if launcher == "deepspeed" else "train_torch.py"
    words = () if launcher == "deepspeed" else ("--launcher", launcher)  # it is the default
    done = cockpits.run(*words, program=[str(EXAMPLES / script), "--steps", "5"], nodes=nodes)
    assert done.returncode == 0, done.stderr + done.stdout
    assert f"{sum(slots)} ranks on 2 nodes starting" in done.stderr
    assert "step 5/5" in done.stdout
    assert not cockpits.left_over()
    for node, count in ranks.items():
        exits = [event for event in cockpits.events(node) if event["e"] == "rank_exited"]
        assert [(event["code"], event["by"]) for event in exits] == [(0, "wrapper")] * count
        told = [event for event in cockpits.events(node) if event["e"] == "rank_probe"]
        assert {(event["server"], event["steps"]) for event in told} == {("", "")}
        rings = [ring.read(path.read_bytes()) for path in cockpits.node_folder(node).glob("probe/*.ring")]
        source = "deepspeed" if launcher == "deepspeed" else "optimizer"
        assert [(one.source, one.steps[-1].step) for one in rings] == [(source, 5)] * count
    cockpits.assert_spools_equal()


@pytest.mark.launch
@pytest.mark.nsys
def test_profiled_run_brings_two_reports_that_open(cockpits: Cockpits) -> None:
    nsys = require("nsys")
    program = [PLAIN, "--steps", "5"]
    nodes = "".join(f"{node} slots=1\n" for node in cockpits.lab.nodes)
    words = ("--launcher", "command", "--profile", "nsys", "--trace", "osrt")
    done = cockpits.run(*words, program=program, nodes=nodes, timeout=400)
    assert done.returncode == 0, done.stderr + done.stdout[-5000:]
    reports = sorted((cockpits.folder / "reports").glob("*/*.nsys-rep"))
    assert [report.stem for report in reports] == [f"{cockpits.name}-node1", f"{cockpits.name}-node2"]
    assert (cockpits.folder / "reports/manifest.json").exists()
    for report in reports:
        database = report.with_suffix(".sqlite")
        subprocess.run(
            [nsys, "export", "--type", "sqlite", "-f", "true", "-o", database, report],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        with sqlite3.connect(database) as opened:
            assert opened.execute("select count(*) from OSRT_API").fetchone()[0] > 0


def step_on(cockpits: Cockpits, step: str) -> None:
    """Return once each rank has made some more steps than it has now."""

    def made() -> list[int]:
        logs = {name: log for node in cockpits.lab.nodes for name, log in cockpits.logs(node).items()}
        return [logs[f"rank-{rank}.log"].count(b"\n") for rank in range(4)]

    before = made()
    until(lambda: all(now > then + 5 for now, then in zip(made(), before, strict=True)), f"{step}: steps")


def heard(cockpit: subprocess.Popen[str], text: str) -> None:
    """Return once a cockpit has said this."""
    assert cockpit.stderr
    line = ""
    while text not in line:
        line = cockpit.stderr.readline()
        assert line, f"the cockpit ended before it said {text!r}"


def test_a_lost_link_costs_nothing(cockpits: Cockpits) -> None:
    """Nor does an sshd that starts again, nor a cockpit that is killed."""
    lab = cockpits.lab
    process = cockpits.start("--launcher", "command", program=cockpits.steps(), stderr=subprocess.PIPE)

    lab.link_down("node2")
    try:
        step_on(cockpits, "a cable is pulled")
        heard(process, "node2: connection lost")
    finally:
        lab.link_up("node2")
    heard(process, "node2: link is back")

    lab.stop_sshd("node1", sessions=True)
    try:
        heard(process, "node1: connection lost")
        step_on(cockpits, "sshd has ended")
    finally:
        lab.start_sshd("node1")
    heard(process, "node1: link is back")

    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    step_on(cockpits, "the cockpit is killed")
    assert cockpits.name in cockpits.cockpit("ps").stdout
    cockpits.finish()
    attached = cockpits.cockpit("attach", cockpits.name)
    assert attached.returncode == 0, attached.stderr
    for rank in range(4):
        last = cockpits.logs(f"node{rank // 2 + 1}")[f"rank-{rank}.log"].splitlines()[-1].decode()
        assert f"| {last}\n" in attached.stdout
    cockpits.assert_spools_equal()


@pytest.mark.launch
def test_the_first_rank_to_fail_is_named(cockpits: Cockpits) -> None:
    require_module("torch")
    program = [PLAIN, "--steps", "2000", "--crash", "3@4"]
    done = cockpits.run("--launcher", "torchrun", "--failure-wait", "1", program=program)
    assert done.returncode == 1
    assert "first to fail: rank 3 on node2, exited 1" in done.stderr
    assert done.stdout.count("RuntimeError: injected fault: rank 3") == 1
    assert not cockpits.left_over()
    cockpits.assert_spools_equal()


def _ignoring(cockpits: Cockpits, node: str) -> int:
    """How many ranks of a node have said what they say once they ignore SIGTERM."""
    return sum(
        b"left child" in text for name, text in cockpits.logs(node).items() if name.startswith("rank-")
    )


def test_stop_ends_ranks_that_ignore_it_also_where_the_supervisor_was_killed(cockpits: Cockpits) -> None:
    program = [PLAIN, "--steps", "100000", "--ignore-term", "--child"]
    process = cockpits.start("--launcher", "command", program=program, stderr=subprocess.PIPE)
    lab = cockpits.lab
    until(lambda: all(_ignoring(cockpits, node) == 2 for node in lab.nodes), "all ranks ignore SIGTERM")
    pid = next(event["pid"] for event in cockpits.events("node1") if event["e"] == "supervisor_started")
    lab.run(["kill", "-9", str(pid)], node="node1", check=True)
    heard(process, "supervisor was killed")
    assert sum(left.startswith("node1: ") for left in cockpits.left_over()) >= 4, (
        "two ranks and their children"
    )
    done = cockpits.cockpit("stop", cockpits.name, "--grace", "1")
    assert done.returncode == 0, done.stderr
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert not cockpits.left_over()
    exits = [event for event in cockpits.events("node2") if event["e"] == "rank_exited"]
    assert [event["signal"] for event in exits] == [9, 9]


def test_headless_sighup_leaves_what_its_nodes_alone_know_and_sigterm_stops_it(cockpits: Cockpits) -> None:
    words = ("--launcher", "command", "--headless")
    process = cockpits.start(*words, program=[PLAIN, "--steps", "100000"])
    process.send_signal(signal.SIGHUP)
    assert process.wait(PATIENCE_S) == 130
    assert len(cockpits.left_over()) >= 4
    lab = cockpits.lab
    lab.run(["rm", "-r", str(cockpits.folder)], check=True)
    listed = cockpits.cockpit("ps", "--hostfile", str(lab.hostfile))
    assert re.search(rf"^{cockpits.name} +running +4/4 +node\[1-2\]", listed.stdout, re.MULTILINE), listed
    shown = cockpits.cockpit("ps", cockpits.name)
    assert len(re.findall(r"^[0-3] +node[12] +running", shown.stdout, re.MULTILINE)) == 4
    again = lab.popen(
        ["cockpit", "attach", cockpits.name, "--headless"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert again.stdout
    again.stdout.readline()
    again.send_signal(signal.SIGTERM)
    again.communicate(timeout=PATIENCE_S)
    assert again.returncode == 130, "who only watches ends nothing"
    assert cockpits.cockpit("stop", cockpits.name).returncode == 0
    assert not cockpits.left_over()


def test_events_and_logs_of_a_run(cockpits: Cockpits) -> None:
    done = cockpits.run("--launcher", "command", "--json", program=[PLAIN, "--steps", "5"])
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(isinstance(event, dict) and event["event"] for event in events)
    exited = [event for event in events if event["event"] == "rank_exited"]
    ends = sorted((event["node"], event["rank"], event["code"]) for event in exited)
    assert ends == [("node1", 0, 0), ("node1", 1, 0), ("node2", 2, 0), ("node2", 3, 0)]
    for rank in range(4):
        log = cockpits.logs(f"node{rank // 2 + 1}")[f"rank-{rank}.log"]
        said = [event for event in events if event["event"] == "log" and event["rank"] == rank]
        assert [event["text"] for event in said] == log.decode().splitlines()
        assert all(log[e["offset"] :].startswith(e["text"].encode()) for e in said)
    raw = cockpits.cockpit("logs", cockpits.name, "--rank", "2", "--raw")
    assert raw.stdout.encode() == cockpits.logs("node2")["rank-2.log"]
    some = cockpits.cockpit("logs", cockpits.name, "--rank", "2-3", "--grep", "step [45]/5")
    assert len(some.stdout.splitlines()) == 4
    assert re.search(r"^node2:2 +\| step 4/5", some.stdout, re.MULTILINE)
    tail = cockpits.cockpit("logs", cockpits.name, "--node", "node1", "--rank", "0", "--tail", "1")
    assert re.fullmatch(r"node1:0 +\| done\n", tail.stdout)


def test_an_alias_that_only_ssh_knows(cockpits: Cockpits) -> None:
    """Names of ~/.ssh/config are no names to the ranks: they get the first node's address."""
    lab = cockpits.lab
    config = lab.home() / ".ssh/config"
    kept = config.read_text()
    aliases = "".join(
        f"Host {alias}\n  HostName {lab.addresses[node]}\n"
        for alias, node in (("alpha", "node1"), ("beta", "node2"))
    )
    nodes = "alpha slots=1\nbeta slots=1\n"
    try:
        lab.write(None, config, aliases + kept.replace("Host node*", "Host alpha beta node*"))
        done = cockpits.run("--launcher", "command", program=["/usr/bin/env"], nodes=nodes)
    finally:
        lab.write(None, config, kept)
    assert done.returncode == 0, done.stderr
    assert f"| MASTER_ADDR={lab.addresses['node1']}\n" in done.stdout


RESTARTED = """
import os, time
attempt, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]
print("attempt", attempt, "of rank", rank, flush=True)
if attempt == "0" and rank == "1":
    raise RuntimeError("the first attempt fails")
time.sleep(4)
"""


@pytest.mark.launch
def test_a_rank_that_torchrun_restarts_stops_nothing(cockpits: Cockpits) -> None:
    """The end of the first attempt is recorded after the start of the second one."""
    require_module("torch")
    script = cockpits.lab.home() / "restarted.py"
    cockpits.lab.write(None, script, RESTARTED)
    words = ("--launcher", "torchrun", "--launcher-args", "--max-restarts 1", "--failure-wait", "1")
    done = cockpits.run(*words, program=[str(script)], nodes="node1 slots=2\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("attempt 1 of rank") == 2
    assert "stopping" not in done.stderr
