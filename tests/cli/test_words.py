"""Words of the command line: values that begin with a dash, and what was probably meant."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

import cockpit
from cockpit.cli import launch_options
from cockpit.cli.main import VERBS, main
from cockpit.cli.verbs import plan as plan_verb
from cockpit.cli.verbs import run
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.errors import CockpitError
from cockpit.plans.plan import build_plans
from cockpit.plans.profilers.nsys import Nsys
from cockpit.plans.script import launch_script, plan_json


@pytest.fixture
def hostfile(tmp_path: Path) -> str:
    """A hostfile of two nodes."""
    path = tmp_path / "hostfile"
    path.write_text("gpu01 slots=2\ngpu02 slots=2\n")
    return str(path)


def launch(*words: str) -> launch_options.LaunchOptions:
    """What ``run`` and ``plan`` make of their words."""
    return launch_options.parse(launch_options.parser("plan", "", ""), list(words))


@pytest.mark.parametrize("given", ["--max-restarts=3", "-x", "--a b --c=d", "plain"])
@pytest.mark.parametrize("joined", [False, True])
def test_words_for_other_programs_may_begin_with_a_dash(given: str, joined: bool, hostfile: str) -> None:
    def option(name: str) -> list[str]:
        return [f"{name}={given}"] if joined else [name, given]

    words = [*option("--launcher-args"), "--profile", "nsys", *option("--nsys-args"), hostfile]
    job = launch(*words, "--", "train.py", "--launcher-args", "-y").job
    assert job.launcher_args == tuple(given.split())
    assert job.profiler
    assert isinstance(job.profiler, Nsys)
    assert job.profiler.extra == tuple(given.split())
    assert job.program == ("train.py", "--launcher-args", "-y")


def test_what_was_typed_is_kept_without_secrets(hostfile: str) -> None:
    given = [
        "--env",
        "HF_TOKEN=hush",
        "--env=WANDB_API_KEY=hush",
        "--env",
        "NCCL_DEBUG=A=B",
        "--name",
        "TOKEN=x",
    ]
    program = ["--", "train.py", "--env", "MY_TOKEN=hush: as the program's own word"]
    with pytest.raises(CockpitError, match="not a valid run name"):
        launch(*given, hostfile, *program)
    with pytest.raises(CockpitError, match="it is too long: at most 64 characters"):
        launch(*given[:-1], "x" * 300, hostfile, *program)
    found = launch(*given[:-1], "x", hostfile, *program)
    kept = ["--env", "HF_TOKEN", "--env=WANDB_API_KEY", "--env", "NCCL_DEBUG=A=B", "--name", "x"]
    assert found.command == ("cockpit", "plan", *kept, hostfile, *program[:-1], "MY_TOKEN=(secret)")
    assert found.job.program[-1] == program[-1]
    assert found.job.env["HF_TOKEN"] == found.job.env["WANDB_API_KEY"] == "hush"
    request = run.request(launch_options.parse(run.parser(), [hostfile, *given[:2], "--", "x"]))
    assert request.command == ("cockpit", "run", hostfile, "--env", "HF_TOKEN", "--", "x")


def test_secrets_in_the_program_s_words_become_variables(
    hostfile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hush hush")
    program = ["train.py", "--token", "hush hush", "--wandb-key", "0f" * 20, "--db=postgres://u:hushed@h/x"]
    job = launch("--env", "HF_TOKEN", hostfile, "--", *program).job
    assert job.secrets == {"HF_TOKEN", "COCKPIT_SECRET_1", "COCKPIT_SECRET_2"}
    assert job.program == tuple(program)
    for plan in build_plans(job):
        assert not {"hush", "0f0f", "hushed"} & set(re.split(r"\W", json.dumps(plan_json(plan))))
        assert "hush" not in launch_script(plan)
        words = " ".join(launch_script(plan).replace("\\\n", " ").split())
        assert '--token "$HF_TOKEN" --wandb-key "$COCKPIT_SECRET_1"' in words
        assert '--db=postgres://u:"$COCKPIT_SECRET_2"@h/x' in launch_script(plan)
    with pytest.raises(CockpitError, match="command line contains a secret"):
        plan_verb.main(["--sbatch", "--nodes", "1", "--slots", "1", "--", *program])


@pytest.mark.parametrize(
    ("setup", "name"),
    [
        ("export HF_TOKEN=hush", "HF_TOKEN"),
        ("module load cuda; PASS='hush hush'", "PASS"),
        ("export DATABASE_URL=postgres://u:hushed@h/x", "DATABASE_URL"),
        ("wandb login 0123456789012345678901234567890123456789", "NAME"),
    ],
)
def test_a_secret_in_the_setup_is_refused(setup: str, name: str, hostfile: str) -> None:
    with pytest.raises(CockpitError, match="--setup: it contains a secret") as caught:
        launch("--setup", setup, hostfile, "--", "train.py")
    assert f"give --env {name}:" in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "setup",
    [
        "export HF_TOKEN=$(cat ~/.token)",
        "export KEY=$KEY",
        "export TOKENIZERS_PARALLELISM=no",
        "source ~/keys.sh",
    ],
)
def test_a_setup_that_reads_its_secrets_is_none(setup: str, hostfile: str) -> None:
    assert launch("--setup", setup, hostfile, "--", "train.py").job.setup == setup


def test_ranks_and_steps_of_a_profile(hostfile: str) -> None:
    for words, per_rank, ranks, steps in (
        ("--per-rank", True, None, None),
        ("--profile-ranks 0,2-3", True, {0, 2, 3}, None),
        ("--profile-steps 10-15 --step-ranges", True, None, (10, 15)),
        ("--profile-steps 7", True, None, (7, 7)),
        ("--node-sampler '--enable=efa_metrics'", False, None, None),
    ):
        nsys = launch("--profile", "nsys", *shlex.split(words), hostfile, "--", "train.py").job.profiler
        assert isinstance(nsys, Nsys)
        assert (nsys.per_rank, nsys.ranks, nsys.steps) == (per_rank, ranks, steps)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--profile-steps 15-10", "not steps: '15-10'"),
        ("--profile-steps 0-3", "not steps: '0-3'"),
        ("--profile-steps x", "not steps: 'x'"),
    ],
)
def test_steps_that_are_none(
    words: str, said: str, hostfile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        launch("--profile", "nsys", *words.split(), hostfile, "--", "train.py")
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    ["--per-rank", "--profile-ranks 0", "--profile-steps 3", "--delay 3", "--nsys /x", "--trace cuda"],
)
def test_options_of_a_profiler_need_one(
    words: str, hostfile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        launch(*words.split(), hostfile, "--", "train.py")
    assert f"{words.split()[0]} goes with: --profile nsys" in capsys.readouterr().err


def test_an_option_of_ours_is_no_forgotten_value(hostfile: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--nsys-args", "--profile", "nsys", hostfile], [hostfile, "--launcher-args"]):
        with pytest.raises(SystemExit) as ended:
            launch(*words, "--", "train.py")
        assert ended.value.code == 2
        assert "expected one argument" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("runn h", "no verb 'runn'; did you mean: cockpit run"),
        ("run --launchr torchrun h -- x", "no option '--launchr'; did you mean: --launcher"),
        ("run --exlude=gpu1 h -- x", "no option '--exlude'; did you mean: --exclude"),
        ("run --qqq h -- x", "no option '--qqq'; see: cockpit run --help"),
        ("run h train.py", "write -- before the program: -- train.py; see: cockpit run --help"),
        ("ps --al", "no option '--al'; did you mean: --all"),
        ("ps a b", "unexpected argument 'b'; see: cockpit ps --help"),
        ("logs --folow otter", "no option '--folow'; did you mean: --follow"),
        ("cockpit", "no verb 'cockpit'; see: cockpit --help"),
        ("topics", "no verb 'topics'; did you mean: cockpit help topics"),
        ("themes", "no verb 'themes'; did you mean: cockpit help themes"),
        ("profiling", "no verb 'profiling'; did you mean: cockpit profile"),
        ("logs last --hostfile x", "no option '--hostfile'; see: cockpit logs --help"),
        ("ps --ps", "no option '--ps'; see: cockpit ps --help"),
        ("top", "no verb 'top'; see: cockpit --help"),
        ("stpo x", "no verb 'stpo'; did you mean: cockpit stop"),
        ("hlep run", "no verb 'hlep'; did you mean: cockpit help"),
        ("--hepl", "no option '--hepl'; did you mean: cockpit --help"),
        ("--versoin", "no option '--versoin'; did you mean: cockpit --version"),
        ("logs ottr", "ottr: no such run; did you mean: night-otter"),
        ("logs OTTER", "OTTER: no such run; did you mean: night-otter"),
        ("clean ott", "ott: no such run; did you mean: night-otter"),
        ("stop ott", "ott: not a full run name; did you mean: night-otter"),
        ("stop night-oter", "night-oter: no such run; did you mean: night-otter"),
        ("stop lst", "lst: no such run; see: cockpit ps"),
        ("logs zzzzzz", "zzzzzz: no such run; see: cockpit ps"),
    ],
)
def test_what_was_probably_meant(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [NodeEntry("gpu01", "/nowhere", [0])]
    RunFolder.create(Manifest("night-otter", 1.0, nodes, "command", ["train.py"], "/"))
    try:
        code = main(words.split())
    except SystemExit as ended:
        code = ended.code  # type: ignore[assignment]
    assert code == 2
    assert capsys.readouterr().err == f"cockpit: {said}\n"


@pytest.mark.parametrize("verb", ["ps", "logs", "explain", "replay"])
def test_before_the_first_run_there_is_no_last_one(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "last"]) == 2
    assert capsys.readouterr().err.startswith("cockpit: no runs yet; start one: cockpit run ")


def test_a_choice_that_was_probably_meant(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--launcher", "deepsped", "h", "--", "x"])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("; did you mean: deepspeed")


def test_an_interface_is_for_the_test_of_torch(hostfile: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", hostfile, "--iface", "eth0"])
    assert ended.value.code == 2
    assert "--iface needs --deep" in capsys.readouterr().err


_TYPED = re.compile(r"\bcockpit ([a-z]+)\b([^`\"\n]*)")


def test_what_texts_say_to_type_has_only_options_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(cockpit.__file__).parent
    texts = [*root.rglob("*.py"), *(root.parent / "docs").glob("*.md"), root.parent / "README.md"]
    typed: dict[str, dict[str, str]] = {}
    for path in texts:
        for verb, words in _TYPED.findall(path.read_text()):
            command = re.split(r" -- |[,(;]", words)[0]
            for option in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", command) if verb in VERBS else ():
                typed.setdefault(verb, {})[option] = f"{path.name}: cockpit {verb}{words}"
    assert len(typed) > 5
    for verb, options in typed.items():
        with pytest.raises(SystemExit):
            main([verb, "--help-all"])
        known = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", capsys.readouterr().out))
        assert not [where for option, where in options.items() if option not in known]
