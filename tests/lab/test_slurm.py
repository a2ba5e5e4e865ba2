"""A SLURM job's nodes without sshd, where nothing outlives its step if this machine can do that.

Where something does, runs begin, fail and end in ``test_slurm_auto.py``, ``test_slurm_ends.py`` and
``test_slurm_kills.py``.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.cockpits import Cockpits
from tests.lab.lab import OTHER
from tests.lab.slurm import Slurm, without_sshd
from tests.needs import require
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

TRAINS = (
    "import os, time\n"
    "job, cores = os.environ['SLURM_JOB_ID'], os.sched_getaffinity(0)\n"
    "print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], 'job', job, 'cores', *cores)\n"
    "for step in range(1, 100000):\n"
    "    print('step', step)\n"
    "    time.sleep(0.1)\n"
)
REPORTS = (
    "import os\n"
    "with open(os.environ['COCKPIT_DIR'] + '/reports/' + os.environ['RANK'] + '.nsys-rep', 'wb') as file:\n"
    "    file.write(os.urandom(300_000))\n"
)


def program(text: str = TRAINS) -> list[str]:
    return ["/usr/bin/python3", "-u", "-c", text]


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    """Two nodes on which no sshd listens."""
    with without_sshd(Slurm.strictest()) as cluster:
        yield cluster


@pytest.fixture
def allocate(slurm: Slurm) -> Iterator[Callable[..., str]]:
    """Makes jobs that end with the test."""
    jobs: list[str] = []

    def make(*options: str) -> str:
        jobs.append(slurm.allocate("-N2", *options))
        return jobs[-1]

    yield make
    for job in jobs:
        slurm.cancel(job)


@pytest.fixture
def cockpits(slurm: Slurm, request: pytest.FixtureRequest) -> Cockpits:
    """Cockpits on the login node, which know where SLURM is."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)[:50]
    return Cockpits(slurm.lab, name, slurm.env)


def train(cockpits: Cockpits, job: str, text: str = TRAINS) -> subprocess.Popen[str]:
    process = cockpits.start("--slurm", job, "--launcher", "command", "--headless", program=program(text))
    until(lambda: all(step(cockpits, node) > 1 for node in cockpits.lab.nodes), "all ranks train")
    return process


def train_without_cockpit(cockpits: Cockpits, job: str, text: str = TRAINS) -> None:
    """As :func:`train`, and then the cockpit is killed."""
    process = train(cockpits, job, text)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def step(cockpits: Cockpits, node: str) -> int:
    """The last step that the first rank of a node has printed."""
    rank = 2 * list(cockpits.lab.nodes).index(node)
    log = cockpits.logs(node).get(f"rank-{rank}.log", b"").decode()
    return int(log.rpartition("step ")[2].split()[0]) if "step " in log else 0


def step_of(slurm: Slurm, job: str) -> str:
    """The step that holds the supervisors."""
    listed = slurm.run("squeue", "-h", "-s", "-o", "%i %j", "-j", job).splitlines()
    return next(line.split()[0] for line in listed if line.endswith(" cockpit"))


def steps(slurm: Slurm, job: str) -> list[str]:
    """Names of the steps of a job."""
    return slurm.run("squeue", "-h", "-s", "-o", "%j", "-j", job).split()


def test_a_run_on_the_nodes_and_with_the_ranks_of_a_job_from_start_to_end(
    slurm: Slurm, cockpits: Cockpits, allocate: Callable[..., str]
) -> None:
    job = allocate("--exclusive", "--ntasks-per-node=3")
    short = program(TRAINS.replace("100000", "6"))
    words = ["--slurm", job, "--name", cockpits.name, "--python", slurm.lab.python, "--launcher", "command"]
    done = cockpits.cockpit("run", *words, "--", *short)
    assert done.returncode == 0, done.stderr
    cores = " ".join(map(str, sorted(os.sched_getaffinity(0))))
    for rank in range(6):
        said = f"rank {rank} of 6 job {job} cores {cores}\n"
        assert said in done.stdout, "all that the job has on its node"
    cockpits.assert_spools_equal()
    assert not cockpits.left_over()
    assert slurm.state(job) == "RUNNING", "the job is not ours to end"
    until(lambda: steps(slurm, job) == [], "no step of ours is left")
    inside = cockpits.cockpit("ps", "--slurm", "--json", env={"SLURM_JOB_ID": job})
    assert inside.returncode == 0, inside.stderr


def test_it_outlives_the_cockpit_and_is_found_again_also_from_elsewhere(
    slurm: Slurm, cockpits: Cockpits, allocate: Callable[..., str]
) -> None:
    job = allocate()
    train_without_cockpit(cockpits, job, REPORTS + TRAINS)
    until(lambda: steps(slurm, job) == ["cockpit"], "one step, which holds the supervisors")
    before = step(cockpits, "node2")
    until(lambda: step(cockpits, "node2") > before, "it trains on")
    shown = json.loads(cockpits.cockpit("ps", cockpits.name, "--json").stdout)
    assert {rank["state"] for rank in shown["ranks"]} == {"running"}
    lines = cockpits.cockpit("logs", "--slurm", job, "--rank", "2", "--tail", "3")
    assert lines.stdout.count("step ") == 3, lines.stderr
    found_by_its_step(cockpits, job, step_of(slurm, job))
    reports_are_collected(cockpits, job)
    # A machine that did not start it, and has no record of it.
    elsewhere = {"XDG_STATE_HOME": str(slurm.lab.home() / f"elsewhere-{cockpits.name}")}
    found = cockpits.cockpit("ps", "--slurm", job, "--json", env=elsewhere)
    assert cockpits.name in {run["run"] for run in json.loads(found.stdout)}, found.stderr
    stacks = cockpits.cockpit("stacks", "--slurm", job, "--json", env=elsewhere)
    assert set(json.loads(stacks.stdout)["ranks"]) == {"0", "1", "2", "3"}, stacks.stderr
    stopped = cockpits.cockpit("stop", cockpits.name, env=elsewhere)
    assert stopped.returncode == 0, stopped.stderr
    until(lambda: steps(slurm, job) == [], "its step has ended")
    assert not cockpits.left_over()
    assert slurm.state(job) == "RUNNING"


def found_by_its_step(cockpits: Cockpits, job: str, held: str) -> None:
    """By the step that holds its supervisors, and by no other one."""
    by_step = json.loads(cockpits.cockpit("stacks", "--slurm", held, "--json").stdout)
    assert (set(by_step["ranks"]), by_step["missing"]) == ({"0", "1", "2", "3"}, {})
    wrong = cockpits.cockpit("stacks", "--slurm", f"{job}.77")
    assert wrong.returncode == 2
    assert f"--slurm {job}.77: has no running step 77; running: {held} (cockpit)" in wrong.stderr
    other = cockpits.cockpit("stop", "--slurm", f"{job}.77")
    assert other.returncode == 2, other.stdout
    listed = json.loads(cockpits.cockpit("ps", "--slurm", held, "--json").stdout)
    assert [run["run"] for run in listed] == [cockpits.name]


def reports_are_collected(cockpits: Cockpits, job: str) -> None:
    """All four, byte by byte."""
    collected = json.loads(cockpits.cockpit("collect", "--slurm", job, "--json").stdout)
    assert [report["state"] for report in collected["reports"]] == ["collected"] * 4
    for report in collected["reports"]:
        there = (cockpits.node_folder(report["node"]) / "reports" / report["name"]).read_bytes()
        assert (cockpits.folder / "reports" / report["file"]).read_bytes() == there
        assert hashlib.sha256(there).hexdigest() == report["sha256"]


def test_a_second_user_is_in_the_way(slurm: Slurm, cockpits: Cockpits, allocate: Callable[..., str]) -> None:
    """Their job is on the same nodes, their process says it is a rank of ours, they have made our folder."""
    lab, mine = slurm.lab, slurm.lab.ids["ckplab"]
    theirs = slurm.allocate("-N2", user=OTHER)
    claims = {"COCKPIT_RUN": cockpits.name, "COCKPIT_NODE": "node1", "RANK": "0", "WORLD_SIZE": "4"}
    says = " ".join(f"{name}={value}" for name, value in claims.items())
    way = f"/tmp/way-{cockpits.name}"
    pretend = f"mkdir -p {way}/cockpit-{mine}; exec env {says} sleep 600"
    words = ["srun", "--overlap", f"--jobid={theirs}", "-N2", "/bin/sh", "-c", pretend]
    other = lab.popen(words, user=OTHER, env=slurm.env, stdin=subprocess.DEVNULL)
    try:
        until(lambda: len(cockpits.left_over()) == 2, "their processes say that they are ours")
        job = allocate()
        python = ["--python", lab.python, "--launcher", "command"]
        done = cockpits.cockpit(
            "run", "--slurm", theirs, *python, "--slots", "2", "--", *program(), timeout=PATIENCE_S
        )
        assert f"job {theirs}: belongs to 'mallory" in done.stderr
        hostfile = cockpits.run(
            "--slurm", theirs, "--launcher", "command", program=program(), timeout=PATIENCE_S
        )
        assert f"node1: SLURM job {theirs} belongs to another user" in hostfile.stderr
        assert done.returncode == 2
        assert hostfile.returncode == 3
        refused = cockpits.run("--slurm", job, "--node-dir", way, "--launcher", "command", program=program())
        assert refused.returncode == 3
        assert f"node1: {way} belongs to {OTHER}; give another place: --node-dir DIR" in refused.stderr

        process = train(cockpits, job)
        whys = {"stacks": "belongs to", "stop": "no known cockpit run", "attach": "belongs to"}
        for verb, why in whys.items():
            tried = lab.run(["cockpit", verb, "--slurm", job], user=OTHER, env=slurm.env)
            assert (tried.returncode, why in tried.stderr) == (2, True), f"{verb}: {tried.stderr}"
        stacks = json.loads(cockpits.cockpit("stacks", "--slurm", job, "--json").stdout)
        assert (set(stacks["ranks"]), stacks["missing"]) == ({"0", "1", "2", "3"}, {})
        assert cockpits.cockpit("stop", "--slurm", job).returncode == 0
        process.wait(PATIENCE_S)
        assert len(cockpits.left_over()) == 2, "theirs are not ours to end, and ours are gone"
    finally:
        lab.run(["scancel", theirs], user="root", env=slurm.env)
        other.wait(PATIENCE_S)


def test_a_job_that_has_no_nodes_says_why(slurm: Slurm, cockpits: Cockpits) -> None:
    done = cockpits.cockpit("run", "--slurm", "99999", "--python", "/usr/bin/python3", "--", "train.py")
    assert done.returncode == 2
    assert "job 99999: no such job" in done.stderr
    outside = cockpits.cockpit("run", "--slurm", "--python", "/usr/bin/python3", "--", "train.py")
    assert "this shell is in no SLURM job" in outside.stderr


def test_the_nodes_of_a_job_are_examined(cockpits: Cockpits, allocate: Callable[..., str]) -> None:
    words = ["doctor", "--slurm", allocate(), "--slots", "2", "--python", "/usr/bin/python3"]
    words += ["--launcher", "command"]
    fit = cockpits.cockpit(*words, "--json")
    assert fit.returncode == 0, fit.stderr
    told = json.loads(fit.stdout)
    assert set(told["nodes"]) == set(cockpits.lab.nodes)
    assert told["findings"] == []
    unfit = cockpits.cockpit(*words, "--cwd", "/no/where")
    assert unfit.returncode == 3, unfit.stderr
    assert "node[1-2]: no directory /no/where" in unfit.stdout


def test_an_element_of_an_array(slurm: Slurm, cockpits: Cockpits) -> None:
    text = "#!/bin/sh\nsleep 600\n"
    slurm.lab.write(None, slurm.lab.home() / "array.sh", text)
    words = ["sbatch", "--parsable", "--array=3,5", "-N2", "--ntasks-per-node=1", "--output=/dev/null"]
    array = slurm.run(*words, str(slurm.lab.home() / "array.sh")).strip()
    try:
        element = f"{array}_5"  # which has the array's number
        until(lambda: slurm.state(f"{array}_3") == slurm.state(element) == "RUNNING", "both run")
        python = ["--python", slurm.lab.python]
        said = ["--", "/bin/sh", "-c", "echo in ${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"]
        job = ["--slurm", element, "--name", cockpits.name, "--launcher", "command"]
        done = cockpits.cockpit("run", *job, *python, *said)
        assert done.returncode == 0, done.stderr
        assert "2 ranks on 2 nodes" in done.stderr
        again = cockpits.cockpit("logs", "--slurm", element)
        assert again.stdout.endswith(f"| in {element}\n"), again.stdout + again.stderr
        inside = {f"SLURM_{name}_ID": array for name in ("JOB", "ARRAY_JOB")}
        inside |= {"SLURM_ARRAY_TASK_ID": "5"}
        planned = cockpits.cockpit("plan", "--slurm", *job[2:], *python, "--", "true", env=inside)
        assert planned.returncode == 0, planned.stderr
        wrong = cockpits.cockpit("stacks", "--slurm", f"{element}.5")
        assert "has no running step 5" in wrong.stderr
    finally:
        slurm.run("scancel", array)
        until(lambda: slurm.state(array) == "", "it has ended")


@pytest.mark.parametrize(
    ("launcher", "tag"), [("srun --label", "%d: "), ("mpirun --tag-output", "[1,%d]<stdout>:")]
)
def test_a_batch_job_that_cockpit_did_not_start_is_watched_and_cancelled(
    slurm: Slurm, cockpits: Cockpits, launcher: str, tag: str
) -> None:
    name = launcher.split()[0]
    job = submitted(slurm, launcher)
    watch: subprocess.Popen[str] | None = None
    try:
        until(lambda: f"{tag % 3}step 1" in printed(slurm, name), "it runs")
        watched = ["cockpit", "attach", "--slurm", job, "--name", name, "--headless", "--json"]
        watch = slurm.lab.popen(
            watched, env=slurm.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        all_ranks_are_shown(watch, tag)
        refused = cockpits.cockpit("stop", name)
        assert refused.returncode == 2
        assert f"scancel {job}" in refused.stderr
        done = cockpits.cockpit("stop", name, "--foreign")
        assert (done.returncode, slurm.state(job)) == (0, ""), done.stderr
        assert f"stopped: SLURM job {job} is over" in done.stdout
    finally:
        if watch is not None:
            watch.kill()
            watch.communicate()
        slurm.run("scancel", job, check=False)
        until(lambda: slurm.state(job) == "", "it has ended")
    ours = cockpits.cockpit("logs", name, "--rank", "3", "--raw").stdout
    lines = printed(slurm, name).splitlines(keepends=True)
    theirs = "".join(line for line in lines if line.startswith(tag % 3))
    assert ours
    assert theirs.startswith(ours)


def submitted(slurm: Slurm, launcher: str) -> str:
    """A batch job of two ranks a node, each below a shell, as it would be below torchrun."""
    name, home = launcher.split()[0], slurm.lab.home()
    require(name)
    # Whole lines: mpirun tags each piece that it reads, also the end of a line that comes by itself.
    rank = (
        "import os, time\nfor n in range(100000):\n    os.write(1, b'step %d\\n' % n)\n    time.sleep(0.1)\n"
    )
    slurm.lab.write(None, home / "batch.py", rank)
    text = f"#!/bin/sh\n{launcher} sh -c '/usr/bin/python3 -u {home}/batch.py; exit'\n"
    slurm.lab.write(None, home / f"{name}.sh", text)
    words = ["sbatch", "--parsable", "-N2", "--ntasks-per-node=2", f"--output={home}/{name}.out"]
    return slurm.run(*words, str(home / f"{name}.sh")).strip()


def printed(slurm: Slurm, name: str) -> str:
    """What a batch job has printed."""
    return slurm.lab.run(["cat", slurm.lab.home() / f"{name}.out"]).stdout


def all_ranks_are_shown(watch: subprocess.Popen[str], tag: str) -> None:
    """Lines of each rank come; then the watching ends."""
    assert watch.stdout is not None
    seen: set[int] = set()
    for line in watch.stdout:
        event = json.loads(line)
        if event["event"] == "log" and event["rank"] is not None:
            assert event["text"].startswith(f"{tag % event['rank']}step")
            seen.add(event["rank"])
        if seen == {0, 1, 2, 3}:
            break
    assert seen == {0, 1, 2, 3}
    watch.terminate()
    watch.communicate(timeout=PATIENCE_S)
    assert watch.returncode == 130


def test_what_srun_prints_on_the_machine_where_it_was_typed(
    slurm: Slurm, cockpits: Cockpits, allocate: Callable[..., str]
) -> None:
    """Of two steps of one job each has its own srun: one writes to a file, the other to a terminal."""
    job, home = allocate(), slurm.lab.home()
    text = "import time\nfor n in range(100000):\n    print('%s', n)\n    time.sleep(0.2)\n"
    srun = ["srun", "--overlap", f"--jobid={job}", "-N2", "-n2", "--label"]
    master, terminal = os.openpty()
    files = [(home / f"srun-{cockpits.name}").open("wb"), os.fdopen(terminal, "wb")]
    steps = [
        slurm.lab.popen(
            [*srun, "/usr/bin/python3", "-u", "-c", text % word],
            env=slurm.env,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
        for word, file in zip(("red", "blue"), files, strict=True)
    ]
    try:
        until(lambda: b"1: red 1" in Path(files[0].name).read_bytes(), "one runs")
        until(lambda: b"1: blue 1" in os.read(master, 4096), "the other runs")
        told = slurm.run("squeue", "-h", "-s", "-j", job, "-o", "%i").split()
        numbers = sorted(step for step in told if step.partition(".")[2].isdigit())
        seen = {}
        for number in numbers:
            name = f"{cockpits.name}-{number.partition('.')[2]}"
            words = ["cockpit", "attach", "--slurm", number, "--name", name, "--headless"]
            watch = slurm.lab.popen(words, env=slurm.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            try:
                assert watch.stdout is not None
                said = ""
                while not ("1: red" in said and "0: red" in said) and "no output here" not in said:
                    line = watch.stdout.readline()
                    assert line, said
                    said += line.decode()
            finally:
                watch.kill()
                with watch:
                    watch.wait()
            seen[name] = said
        red, blue = sorted(seen.values(), key=lambda text: "red" not in text)
        assert "node2:1 " in red, red
        assert "blue" not in red
        assert "no output here: each rank writes through srun (pid " in blue
        assert "to a terminal" in blue
        assert "srun --output=FILE" in blue
    finally:
        for step in steps:
            step.kill()
            step.wait()
        for file in files:
            file.close()
        os.close(master)
