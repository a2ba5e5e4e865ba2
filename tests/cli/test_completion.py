"""Completion: what may come next, and the scripts of the shells with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import cockpit.cli
from cockpit.cli.completing import candidates
from cockpit.cli.main import VERBS, main
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.errors import Exit
from tests.needs import require


@pytest.fixture(autouse=True)
def runs() -> None:
    """Two runs of two nodes."""
    for name, first in (("otter", 0), ("heron", 4)):
        nodes = [
            NodeEntry(f"gpu{node}", "/none", [first + 2 * node, first + 2 * node + 1]) for node in (0, 1)
        ]
        RunFolder.create(Manifest(name, 1000.0 + first, nodes, "command", ["train.py"], "/"))


def next_words(*words: str) -> list[str]:
    return [word for word, _ in candidates(words, VERBS)]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["st"], ["stacks", "stop"]),
        (["run", "--launcher-"], ["--launcher-args"]),
        (["run", "--launcher", "c"], ["command"]),
        (["run", "--on-failure", ""], ["stop", "wait"]),
        (["run", "--theme", "high"], ["high-contrast"]),
        (["replay", "otter", "--theme", "li"], ["light"]),
        (["stacks", ""], ["last", "heron", "otter"]),
        (["attach", "o"], ["otter"]),
        (["logs", "otter", "--rank", ""], ["0", "1", "2", "3"]),
        (["logs", "--rank", ""], ["4", "5", "6", "7"]),
        (["plan", "h", "--node", "gpu"], ["gpu0", "gpu1"]),
        (["help", "exit"], ["exit-codes"]),
        (["help", "sta"], ["stacks", "stacks"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["run", "hostfile", "--", "--la"], []),
        (["run", "--cwd", ""], []),
        (["run", ""], []),
        (["nothing", ""], []),
        (["--v"], ["--version"]),
        (["run", "--launcher=c"], ["--launcher=command"]),
        (["run", "--launcher", "=", "c"], ["command"]),
        (["run", "--launcher", "="], ["deepspeed", "torchrun", "accelerate", "command", "per-node"]),
        (["logs", "otter", "--rank", "0,2,"], ["0,2,1", "0,2,3"]),
        (["run", "h", "--profile-ranks", "4"], ["4"]),
        (["run", "-w", "gpu0,g"], ["gpu0,gpu1"]),
        (["logs", "--node", "gpu0", "ot"], ["otter"]),
        (["logs", "otter", ""], []),
        (["collect", "otter", ""], []),
        (["compare", "otter", "h"], ["heron"]),
        (["clean", "otter", "h"], ["heron"]),
        (["profile", "sh"], ["show"]),
        (["profile", "show", ""], ["last", "heron", "otter"]),
        (["profile", "show", "otter", ""], []),
        (["profile", "otter", ""], []),
    ],
)
def test_what_may_come_next(words: list[str], found: list[str]) -> None:
    assert next_words(*words) == found


def test_a_run_is_offered_by_the_last_word_of_its_name_if_that_was_begun() -> None:
    for number in (1, 2):
        for word in ("grouse", f"tern{number}"):
            name = f"2026113{number}-101500-{word}"
            RunFolder.create(
                Manifest(name, 9.0 + number, [NodeEntry("gpu9", "/none", [0])], "command", ["train.py"], "/")
            )
    assert next_words("logs", "te") == ["tern2", "tern1"]
    assert next_words("logs", "gr") == [], "which one?"
    assert next_words("logs", "2026") == [
        f"2026113{number}-101500-{word}"
        for number, word in ((2, "tern2"), (2, "grouse"), (1, "tern1"), (1, "grouse"))
    ]


def test_a_damaged_run_is_offered_too() -> None:
    (RunFolder.find("heron").path / "manifest.json").write_text("{")
    assert set(next_words("logs", "")) == {"last", "heron", "otter"}


def test_nodes_are_those_of_the_hostfile(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("big1 slots=2\nbig2 slots=2\n")
    assert next_words("plan", str(hosts), "--node", "") == ["big1", "big2"]
    assert next_words("run", str(hosts), "--exclude", "big1,") == ["big1,big2"]


def test_what_a_word_is_for_is_cut_between_words() -> None:
    topics = dict(candidates(["help", ""], VERBS))
    assert topics["exit-codes"] == "Exit codes"
    texts = [text for verb in VERBS for _, text in candidates([verb, "--"], VERBS)]
    cut = [text.removesuffix(" …") for text in texts if text.endswith("…")]
    assert cut
    assert not [text for text in cut if not text[-1].isalnum() and text[-1] not in ",.:)'"]
    assert max(map(len, texts)) <= 70


@pytest.mark.parametrize("verb", VERBS)
def test_each_option_of_a_verb_is_offered_with_what_it_is_for(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = dict(candidates([verb, "--"], VERBS))
    assert "--help" in found
    assert all(found.values())
    with pytest.raises(SystemExit):
        main([verb, "--help-all"])
    text = capsys.readouterr().out
    assert all(name in text or name == "--help-all" for name in found)


def test_a_shell_that_is_not_known_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["completion", "ksh"])
    assert ended.value.code == Exit.USAGE
    with pytest.raises(SystemExit):
        main(["completion"])
    assert "give a SHELL" in capsys.readouterr().err


COMPLETIONS = Path(cockpit.cli.__file__).parent / "completions"


def in_shell(tmp_path: Path, shell: str, script: str) -> list[str]:
    require(shell)
    program = tmp_path / "bin/cockpit"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m cockpit "$@"\n')
    program.chmod(0o755)
    env = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run([shell, "-c", script], env=env, capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr
    return done.stdout.split("\n")[:-1]


def test_bash(tmp_path: Path) -> None:
    script = """
source <(cockpit completion bash)
for line in "cockpit st" "cockpit stop " "cockpit logs otter --rank " "cockpit run --launcher = c"; do
    read -ra COMP_WORDS <<< "$line"
    [[ $line == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _cockpit
    echo "${COMPREPLY[*]}"
done
complete -p cockpit
"""
    *found, bound = in_shell(tmp_path, "bash", script)
    assert found == ["stacks stop", "last heron otter", "0 1 2 3", "command"]
    assert bound == "complete -o default -F _cockpit cockpit"


@pytest.mark.slow
def test_fish(tmp_path: Path) -> None:
    found = in_shell(
        tmp_path,
        "fish",
        "cockpit completion fish | source; complete -C 'cockpit stop '; complete -C 'cockpit run ./c'",
    )
    assert found[:3] == ["heron\ttrain.py", "last\tthe newest run", "otter\ttrain.py"]
    assert "./cockpit/" in found[3:], "a file"


@pytest.mark.slow
def test_zsh_finds_it_in_a_folder_of_functions(tmp_path: Path) -> None:
    functions = tmp_path / "site-functions"
    functions.mkdir()
    (functions / "_cockpit").write_text((COMPLETIONS / "cockpit.zsh").read_text())
    script = f"""
fpath=({functions} $fpath)
autoload -U compinit && compinit -u -D
print -- "$_comps[cockpit]"
_describe() {{ print -l -- "${{(@P)2}}" }}
words=(cockpit stop ""); CURRENT=3; $_comps[cockpit]
"""
    found = in_shell(tmp_path, "zsh", script)
    assert [line.partition(":")[0] for line in found] == ["_cockpit", "last", "heron", "otter"]


@pytest.mark.slow
def test_zsh(tmp_path: Path) -> None:
    script = """
autoload -U compinit && compinit -u -D
source <(cockpit completion zsh)
_describe() { print -l -- "${(@P)2}" }
words=(cockpit stop ""); CURRENT=3; _cockpit
print -- "$_comps[cockpit]"
"""
    found = in_shell(tmp_path, "zsh", script)
    assert [line.partition(":")[0] for line in found] == ["last", "heron", "otter", "_cockpit"]
