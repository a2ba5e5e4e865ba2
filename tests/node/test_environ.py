"""The environment of a rank, as its node tells it: without secrets, and of that very process."""

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
from cockpit.base.answers import EnvironAnswer
from cockpit.base.frames import MAX_HEADER, encode
from cockpit.base.gate import read
from cockpit.base.verbs import VERBS
from cockpit.engine.links import payload
from cockpit.node.calls import Call, NodeError
from cockpit.node.run import environ as verb
from cockpit.node.run import redact
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
    for name in ("A_TOKEN", "KEY", "x_passwd", "PASSPHRASE", "AWS_SECRET", "CREDENTIAL", "SSHPASS"):
        assert secret.is_secret(name)
    for name in (
        "TOKENIZERS_PARALLELISM",
        "GIT_AUTHOR_NAME",
        "PATH",
        "PWD",
        "OLDPWD",
        "BYPASS",
        "SSH_AUTH_SOCK",
    ):
        assert not secret.is_secret(name)


def test_any_bytes_fit_into_one_frame() -> None:
    answer = redact.told([b"junk", *(b"V%d=" % number + b"\xff\x01" * 3000 for number in range(100))])
    passes(answer)
    assert 0 < len(answer["environ"]) == 100 - answer["left_out"] < 100
    assert answer["environ"]["V0"].endswith("… (+1904 characters)")


def test_any_number_of_variables_with_names_of_any_length_passes_the_gate() -> None:
    answer = redact.told([b"%d=" % number for number in range(20_000)])
    passes(answer)
    assert len(answer["environ"]) == 20_000 - answer["left_out"] > 5000
    answer = redact.told([b"A=1", b"B" * 5000 + b"=2", b"C=3"])
    passes(answer)
    assert answer == {"environ": {"A": "1", "C": "3"}, "left_out": 1}


def passes(answer: dict[str, Any]) -> None:
    """It fits into a frame and through the gate; otherwise the link would be lost."""
    assert len(encode({"id": 1, "ok": answer})) < MAX_HEADER
    read(EnvironAnswer, json.loads(json.dumps(answer)))


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
    rank = program(tmp_path / "rank", "echo up; export MORE=1; exec sleep 600\n")
    run = launch("export GIVEN=yes\n" + command(2, rank))
    run.event("rank_started", rank=1)
    run.says(1, "up")
    found = until(lambda: ask(run.folder, 1)["environ"], "an environment")
    assert (found["RANK"], found["GIVEN"], found[record.ENV_RUN]) == ("1", "yes", run.run)
    until(lambda: "MORE" in ask(run.folder, 1)["environ"], "what the script added before it became another")


# Of a process that is gone


def test_of_ranks_that_ended_at_once(launch: Launch, tmp_path: Path) -> None:
    run = launch("export GIVEN=yes\n" + command(2, program(tmp_path / "rank", "exit 3\n")))
    for rank in (0, 1):
        # What is over is on record: no waiting, no second try.
        run.event("rank_exited", rank=rank, code=3)
        answer = ask(run.folder, rank)
        found = answer["environ"]
        assert (found["RANK"], found["GIVEN"], found[record.ENV_RUN]) == (str(rank), "yes", run.run)
        assert answer["left_out"] == 0
    run.ended()
    assert [path.name for path in run.folder.glob("*.tmp")] == []


def test_a_program_that_cannot_be_started_had_one(launch: Launch) -> None:
    run = launch("export GIVEN=yes\n" + command(1, Path("/no/such/program")))
    run.event("rank_exited", rank=0, code=127)
    assert ask(run.folder)["environ"]["GIVEN"] == "yes"


def test_it_is_the_same_before_and_after_the_end(launch: Launch) -> None:
    run = launch("export ODD=$(printf 'a\\377\\nb')\n" + command(1, Path("/bin/sleep 600")))
    run.event("rank_started", rank=0)
    argv = f"/proc/{run.event('rank_started', rank=0)['pid']}/cmdline"
    until(lambda: Path(argv).read_bytes() == b"/bin/sleep\x00600\x00", "the rank is what it will be")
    before = ask(run.folder)
    assert before["environ"]["ODD"] == "a\udcff\nb"
    run.stop(hard=True)
    run.event("rank_exited", rank=0)
    assert ask(run.folder) == before


def test_what_is_recorded_has_no_secrets(launch: Launch, tmp_path: Path) -> None:
    given = "".join(f"export {name}='{value}'\n" for name, value in SECRETS.items())
    run = launch(given + command(1, program(tmp_path / "rank", "exit 3\n")))
    run.ended()
    told = ask(run.folder)["environ"]
    assert set(SECRETS) <= set(told)
    assert told["HF_TOKEN"] == "(secret, 9 characters)"
    path = run.folder / record.rank_environ(0)
    assert path.stat().st_mode & 0o777 == 0o600
    # launch.sh is this test's own: a real one gets its secrets from the supervisor.
    files = [each for each in run.folder.iterdir() if each.is_file() and each.name != record.LAUNCH_SH]
    assert path in files
    assert not [each.name for each in files if b"5ecret" in each.read_bytes()]


def test_of_the_newest_attempt(launch: Launch, tmp_path: Path) -> None:
    again = (
        'for n in 0 1; do TORCHELASTIC_RESTART_COUNT=$n RANK=0 "$COCKPIT_DIR"/rankwrap 1 /bin/false; done\n'
    )
    run = launch(again)
    run.ended()
    assert [event["attempt"] for event in run.events("rank_exited")] == [0, 1]
    assert ask(run.folder)["environ"]["TORCHELASTIC_RESTART_COUNT"] == "1"


def kept(folder: Path, **facts: Any) -> None:
    """A record that a wrapper wrote."""
    found = {"pid": 7, "ticks": 8, "environ": {"A": "1"}, "left_out": 0, **facts}
    (folder / record.rank_environ(0)).write_text(json.dumps(found))


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    """The folder of a run whose rank 0 had pid 7 and is gone, with its wrapper."""
    folders.make(tmp_path, [0], boot_id="an earlier boot")
    (tmp_path / record.rank_start(0)).write_text(folders.start(0, 7, ticks=8))
    return tmp_path


def test_after_a_boot(ended: Path) -> None:
    kept(ended)
    assert ask(ended) == {"environ": {"A": "1"}, "left_out": 0}


def test_that_none_was_recorded_is_said(ended: Path) -> None:
    error = refused(ended)
    assert error.kind == "gone"
    why = "the disk was full, or an older cockpit started the run"
    assert error.what == f"the environment of rank 0 was not recorded: {why}"


@pytest.mark.parametrize("facts", [{"pid": 9}, {"ticks": 9}])
def test_that_of_another_attempt_is_none(ended: Path, facts: dict[str, int]) -> None:
    kept(ended, **facts)
    assert "was not recorded" in refused(ended).what


def test_one_that_is_being_written_is_waited_for(start: Start, tmp_path: Path) -> None:
    wrapper = start({})
    (tmp_path / record.rank_start(0)).write_text(
        folders.start(0, 7, ticks=8, wrapper=wrapper.pid, wrapper_ticks=folders.ticks(wrapper.pid))
    )
    kept(tmp_path, pid=6)

    class Waits(Call):
        def pause(self, seconds: float) -> bool:
            kept(tmp_path)
            return True

    request = {"id": 1, "dir": str(tmp_path), "rank": 0}
    assert verb.environ(Waits(request, b"", lambda head, data: None))["environ"] == {"A": "1"}


def test_nobody_is_waited_for_in_vain(start: Start, tmp_path: Path) -> None:
    wrapper = start({})
    identity = {"wrapper": wrapper.pid, "wrapper_ticks": folders.ticks(wrapper.pid)}
    (tmp_path / record.rank_start(0)).write_text(folders.start(0, 7, ticks=8, **identity))
    call = Call({"id": 1, "dir": str(tmp_path), "rank": 0}, b"", lambda head, data: None)
    call.cancel()
    with pytest.raises(NodeError, match="was not recorded"):
        verb.environ(call)


def test_it_is_sent_to_the_nodes(tmp_path: Path) -> None:
    archive = tmp_path / "node.zip"
    archive.write_bytes(payload.archive())
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "from cockpit.node import agent; from cockpit.node.run import environ;"
        "print(agent._function('environ') is environ.environ)"
    )
    argv = [sys.executable, "-I", "-S", "-c", code, str(archive)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=os.sep)
    assert done.stdout.strip() == "True", done.stderr
    assert VERBS["environ"].at == "run.environ"
