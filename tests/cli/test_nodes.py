"""Nodes by file, list, option or default: what the verbs take, and what they say."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cockpit.base import verbs as requests
from cockpit.cli import node_options
from cockpit.cli.main import main
from cockpit.engine.links.link import Link
from cockpit.errors import CockpitError
from cockpit.transport.local import LocalTransport
from tests.cli.verbs import HERE, Verbs
from tests.needs import require
from tests.terminal import on_terminal
from tests.waiting import PATIENCE_S, until

CUDA = """
import ctypes, os
from types import SimpleNamespace
real = ctypes.CDLL
def count(found):
    found._obj.value = int(os.environ["FAKE_GPUS"])
    return 0
def error(code, said):
    said._obj.value = b"system not yet initialized"
    return 0
def cdll(name, *words, **more):
    if name != "libcuda.so.1":
        return real(name, *words, **more)
    code = int(os.environ.get("FAKE_CUDA_ERROR", 0))
    return SimpleNamespace(cuInit=lambda flags: code, cuDeviceGetCount=count, cuGetErrorString=error)
ctypes.CDLL = cdll
"""
"""A CUDA driver in place of the real one, for any Python that finds it as its sitecustomize."""


def fake_cuda(folder: Path, gpus: int, **more: str) -> str:
    """A setup under which a node seems to have GPUs."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(CUDA)
    settings = {"PYTHONPATH": str(folder), "FAKE_GPUS": str(gpus), **more}
    return "".join(f"export {name}='{value}'; " for name, value in settings.items())


@pytest.fixture
def here(tmp_path: Path, quick_cockpit: tuple[str, ...]) -> Verbs:
    """Verbs on this machine."""
    (tmp_path / "work").mkdir()
    return Verbs(tmp_path / "state", tmp_path / "work", quick_cockpit)


def launch(here: Verbs, name: str, *words: str) -> list[str]:
    """The words of a run whose ranks print their number."""
    where = ["--cwd", str(here.work), "--node-dir", str(here.work / "nodes"), "--name", name]
    return ["run", *HERE, *where, "--headless", "--python", sys.executable, *words]


def piped(here: Verbs, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A verb with a text on its stdin."""
    return subprocess.run(
        [*here.quick, *words],
        input=text,
        env={**os.environ, "XDG_STATE_HOME": str(here.state)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_a_list_on_stdin_runs_and_is_not_needed_again(here: Verbs) -> None:
    words = launch(here, "listed", "-", "--slots", "2", "--", "sh", "-c", "echo I am $RANK")
    done = piped(here, "localhost\n127.0.0.1\n", *words)
    assert done.returncode == 0, done.stderr
    assert {line.split("| ")[1] for line in done.stdout.splitlines()} == {f"I am {n}" for n in range(4)}
    manifest = json.loads((here.runs / "listed" / "manifest.json").read_text())
    assert [(node["name"], node["ranks"]) for node in manifest["nodes"]] == [
        ("localhost", [0, 1]),
        ("127.0.0.1", [2, 3]),
    ]
    assert manifest["hostfile"] == ""
    assert json.loads(here.call("ps", "listed", "--json").out)["state"] == "ended"
    assert here.call("logs", "listed", "--rank", "3", "--raw").out == "I am 3\n"


@pytest.mark.slow
def test_a_job_is_looked_at_on_nodes_that_are_named(here: Verbs) -> None:
    script = here.work / "sleeper.py"
    script.write_text("import time\nprint('up', flush=True)\ntime.sleep(600)\n")
    run = here.start(*launch(here, "looked-at", "-w", "localhost:2", "--", str(script)))
    try:
        until(
            lambda: here.call("logs", "looked-at", "--no-fold").out.count("up") == 2, "both ranks are up", 60
        )
        where = ["--transport", "local", "--python", sys.executable, "--job", "looked-at"]
        done = piped(here, "localhost\n", "stacks", "-", *where, "--samples", "1")
        assert done.returncode == 0, done.stderr
        assert "2 ranks 0-1: sleep\n" in done.stdout
        assert "next: cockpit stacks -w localhost --job looked-at " in done.stdout
        watching = here.start("attach", "--headless", "-w", "localhost", *where)
        assert watching.stderr
        assert any("found: run looked-at, " in line for line in watching.stderr)
    finally:
        here.call("stop", "looked-at", "--now")
        here.end(run)
    assert "ranks 0-1 killed by SIGKILL" in here.end(watching).err


def test_slots_from_gpus_of_the_node(here: Verbs, tmp_path: Path) -> None:
    setup = fake_cuda(tmp_path / "cuda", 2, CUDA_VISIBLE_DEVICES="4,6")
    program = ["--", "sh", "-c", "echo $RANK of $WORLD_SIZE, $CUDA_VISIBLE_DEVICES"]
    done = here.call(*launch(here, "gpus", "-w", "localhost", "--setup", setup, *program))
    assert done.code == 0, done.err
    assert "cockpit: slots, one per GPU: localhost 2 (4,6)\n" in done.err
    assert "cockpit: gpus: 2 ranks on 1 node starting\n" in done.err
    assert {line.split("| ")[1] for line in done.out.splitlines()} == {"0 of 2, 4,6", "1 of 2, 4,6"}


def test_without_gpus_it_says_what_to_type(here: Verbs, tmp_path: Path) -> None:
    setup = fake_cuda(tmp_path / "cuda", 8, FAKE_CUDA_ERROR="802")
    done = here.call(*launch(here, "none", "-w", "localhost", "--setup", setup, "--", "true"))
    assert done.code == 3
    assert done.err.splitlines()[-1] == (
        "cockpit: localhost: no number of slots given, and no GPU is visible there "
        "(CUDA error 802: system not yet initialized); "
        "give it: --slots 8 for all nodes, -w 'localhost:8', or slots=8 in the hostfile"
    )
    assert not (here.runs / "none").exists()


def test_gpus_are_counted_only_where_slots_are_open(tmp_path: Path) -> None:
    setup = fake_cuda(tmp_path / "cuda", 2, CUDA_VISIBLE_DEVICES="0,1,2")

    async def ask(request: requests.Facts) -> object:
        link = Link("here", LocalTransport("here"), [sys.executable])
        await link.open()
        try:
            return (await link.call(request)).gpus
        finally:
            await link.close()

    assert asyncio.run(ask(requests.Facts(str(tmp_path), setup))) is None
    found = asyncio.run(ask(requests.Facts(str(tmp_path), setup, gpus=True, visible="0,1")))
    assert (found.count, found.visible, found.why) == (2, "0,1", "")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "run -- x",
            "no nodes named; give a HOSTFILE, - for a list on stdin, or -w 'gpu[01-04]:8'",
        ),
        (
            "attach",
            "no nodes named; give a run (see: cockpit ps), a HOSTFILE, -w NODES, or --pid N",
        ),
        (
            "stacks",
            "no nodes named; give a run (see: cockpit ps), a HOSTFILE, a SNAPSHOT",
        ),
        ("plan hosts -w gpu1:8 -- x", "hosts and -w both name nodes; give one of the two"),
        ("stacks last -w gpu1", "last and -w both name nodes; give one of the two"),
        ("ps --hostfile hosts -w gpu1", "hosts and -w both name nodes; give one of the two"),
        (
            "run -w gpu1:2 train.py",
            "no program given after --; like this: cockpit run -w gpu1:2 -- train.py ARGS",
        ),
        ("plan -w gpu1 --slots 0 -- x", "argument --slots: out of range: '0' (1 to 4096)"),
        ("plan -w=-oProxyCommand=x -- x", "-w -oProxyCommand=x: bad host name -oProxyCommand=x; "),
        ("attach -w /etc/passwd", "-w /etc/passwd: bad host name /etc/passwd; "),
        ("ps -w gpu[0-99999]", "-w gpu[0-99999]: range [0-99999] is more than 10000 hosts; check it"),
    ],
)
def test_words_that_name_no_nodes(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(words.split())
    except SystemExit as ended:
        code = ended.code  # type: ignore[assignment]
    assert code == 2
    assert capsys.readouterr().err.startswith(f"cockpit: {said}")


def test_deepspeed_s_default_is_taken_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    default = tmp_path / "job-hostfile"
    default.write_text("gpu01 slots=1\n")
    monkeypatch.setattr(node_options, "DEFAULT", str(default))
    words = ["--launcher", "command", "--python", "/p", "--json", "--", "x"]
    assert main(["plan", *words]) == 0
    shown = capsys.readouterr()
    assert f"cockpit: nodes: {default}, DeepSpeed's default\n" in shown.err
    assert [plan["node"] for plan in json.loads(shown.out)["plans"]] == ["gpu01"]
    assert main(["plan", "-w", "big1:2,big2:2", *words]) == 0
    shown = capsys.readouterr()
    assert "default" not in shown.err
    assert [plan["ranks"] for plan in json.loads(shown.out)["plans"]] == [[0, 1], [2, 3]]


def test_several_lists_are_one() -> None:
    assert main(["plan", "-w", "a:1", "-w", "b:1", "--python", "/p", "--node", "b", "--", "x"]) == 0


def test_a_list_that_is_gone_is_named_again() -> None:
    assert node_options.words_again(["-"], ["gpu01", "gpu02", "big"]) == ["-w", "gpu[01-02],big"]
    assert node_options.words_again(["-"], ["gpu01:22"]) == ["-"]
    assert node_options.words_again(["-w", "gpu01:8"], ["gpu01"]) == ["-w", "gpu01:8"]
    assert node_options.words_again(["hosts"], ["gpu01"]) == ["hosts"]


def test_after_a_list_on_stdin_keys_come_from_the_terminal(tmp_path: Path) -> None:
    require("setsid")
    script = (
        "import sys; from cockpit.cli import node_options as o; "
        "print(sys.stdin.isatty(), [h.name for h in o.nodes(['-'])], sys.stdin.isatty())"
    )
    words = ["sh", "-c", 'printf "a\nb\n" | "$0" -c "$1"', sys.executable, script]
    code, shown = on_terminal(words, os.environ, Path.cwd())
    assert (code, shown.strip()) == (0, b"False ['a', 'b'] True")


def test_too_long_a_list(here: Verbs) -> None:
    done = piped(here, "#" * (5 << 20), "plan", "-", "--", "x")
    assert done.returncode == 2
    assert "stdin: too large for a list of nodes" in done.stderr
    with pytest.raises(CockpitError, match="contains no host"):
        node_options.nodes([os.devnull])
