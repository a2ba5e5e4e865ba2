"""The environment a rank really got, as its node tells it: without secrets, and of that very process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cockpit.base import record, secret
from cockpit.base.frames import MAX_HEADER, encode
from cockpit.engine import payload
from cockpit.node import environ as verb
from cockpit.node.agent import VERBS
from cockpit.node.calls import Call, NodeError
from tests.node import folders
from tests.node.conftest import Launch
from tests.node.runs import command, program
from tests.waiting import until

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a process with exactly these variables, recorded as rank 0 of a run."""
    started: list[subprocess.Popen[bytes]] = []

    def run(env: dict[str, str], boot_id: str = "") -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["/bin/sh", "-c", "echo; read x"], env=env, stdin=-1, stdout=-1)
        assert process.stdout is not None
        process.stdout.readline()
        started.append(process)
        folders.make(tmp_path, [0], boot_id=boot_id)
        (tmp_path / record.rank_start(0)).write_text(folders.start(0, process.pid))
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def ask(folder: Path, rank: object = 0) -> dict[str, Any]:
    return verb.environ(Call({"id": 1, "dir": str(folder), "rank": rank}, b"", lambda head, data: None))


def refused(folder: Path, rank: object = 0) -> NodeError:
    with pytest.raises(NodeError) as caught:
        ask(folder, rank)
    return caught.value


def test_names_and_values_sorted(tmp_path: Path, start: Start) -> None:
    start({"RANK": "3", "A": "x=y\ttab", "EMPTY": "", "NCCL_DEBUG": "INFO", "TOKENIZERS_PARALLELISM": "no"})
    answer = ask(tmp_path)
    names = [name for name in answer["environ"] if name not in ("PWD", "SHLVL", "_", "OLDPWD")]
    assert names == ["A", "EMPTY", "NCCL_DEBUG", "RANK", "TOKENIZERS_PARALLELISM"]
    assert answer["environ"]["A"] == "x=y\ttab"
    assert answer["left_out"] == 0


SECRETS = {
    "WANDB_API_KEY": "5ecret",
    "HF_TOKEN": "hf_5ecret",
    "my_secret": "5ecret",
    "DB_PASSWORD": "5ecret",
    "MYSQL_PWD": "5ecret",
    "GOOGLE_APPLICATION_CREDENTIALS": "/home/5ecret.json",
    "HTTPS_PROXY": "http://me:5ecret@proxy:3128/",
    "SENTRY_DSN": "https://5ecret@sentry.io/1",
    "DSN": "host=db password=5ecret user=me",
    "HEADERS": "Authorization: Bearer 5ecret",
    "ARGS": "--api-key=5ecret --steps=5",
}


def test_no_secret_leaves_the_node(tmp_path: Path, start: Start) -> None:
    start(SECRETS)
    answer = ask(tmp_path)
    assert set(SECRETS) <= set(answer["environ"])
    assert "5ecret" not in json.dumps(answer)
    assert answer["environ"]["HF_TOKEN"] == "(secret, 9 characters)"
    assert answer["environ"]["HTTPS_PROXY"] == "http://(secret)@proxy:3128/"
    assert answer["environ"]["ARGS"].endswith(" --steps=5")


def test_secrets_are_told_by_name() -> None:
    for name in ("A_TOKEN", "KEY", "x_passwd", "PASSPHRASE", "AWS_SECRET", "CREDENTIAL", "SSH_AUTH_SOCK"):
        assert secret.is_secret(name)
    for name in ("TOKENIZERS_PARALLELISM", "GIT_AUTHOR_NAME", "PATH", "PWD", "OLDPWD", "BYPASS"):
        assert not secret.is_secret(name)


def test_any_bytes_fit_into_one_frame(tmp_path: Path) -> None:
    parts = [b"V%d=" % number + b"\xff\x01" * 3000 for number in range(2000)]
    answer = verb._told(b"\0".join([b"junk", *parts, b""]))
    assert answer["left_out"] == 2000 - len(answer["environ"])
    assert answer["left_out"] > 0
    assert answer["environ"]["V0"].endswith("… (+1904 characters)")
    assert len(encode({"id": 1, "ok": answer})) < MAX_HEADER


def test_an_ended_rank_has_none(tmp_path: Path, start: Start) -> None:
    process = start({})
    process.communicate(b"\n")
    error = refused(tmp_path)
    assert error.kind == "gone"
    assert error.what == "rank 0 has ended: its environment is gone with its process"


def test_another_process_with_the_same_pid_is_not_looked_at(tmp_path: Path, start: Start) -> None:
    process = start({"MINE": "1"})
    (tmp_path / record.rank_start(0)).write_text(folders.start(0, process.pid, ticks=1))
    assert refused(tmp_path).kind == "gone"
    start({"MINE": "1"}, boot_id="another boot")
    assert refused(tmp_path).kind == "gone"


def test_questions_that_make_no_sense(tmp_path: Path, start: Start) -> None:
    assert refused(tmp_path).kind == "gone"  # no run
    start({})
    assert refused(tmp_path, 7).kind == "early"
    assert refused(tmp_path, "../0").kind == "protocol"
    (tmp_path / record.rank_start(0)).write_text("[]")
    assert refused(tmp_path).kind == "gone"


def test_of_a_real_rank(launch: Launch, tmp_path: Path) -> None:
    rank = program(tmp_path / "rank", "echo up; exec sleep 600\n")
    run = launch("export GIVEN=yes\n" + command(2, rank))
    run.event("rank_started", rank=1)
    run.says(1, "up")
    found = until(lambda: ask(run.folder, 1)["environ"], "an environment")
    assert (found["RANK"], found["GIVEN"], found[record.ENV_RUN]) == ("1", "yes", run.run)


def test_it_is_sent_to_the_nodes(tmp_path: Path) -> None:
    archive = tmp_path / "node.zip"
    archive.write_bytes(payload.archive())
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from cockpit.node import agent, environ;"
        "print(agent._function('environ') is environ.environ)"
    )
    argv = [sys.executable, "-I", "-S", "-c", code, str(archive)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=os.sep)
    assert done.stdout.strip() == "True", done.stderr
    assert VERBS["environ"] == "environ"
