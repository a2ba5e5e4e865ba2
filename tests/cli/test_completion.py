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
    ],
)
def test_what_may_come_next(words: list[str], found: list[str]) -> None:
    assert next_words(*words) == found


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
for line in "cockpit st" "cockpit stop " "cockpit logs otter --rank "; do
    read -ra COMP_WORDS <<< "$line"
    [[ $line == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _cockpit
    echo "${COMPREPLY[*]}"
done
complete -p cockpit
"""
    *found, bound = in_shell(tmp_path, "bash", script)
    assert found == ["stacks stop", "last heron otter", "0 1 2 3"]
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
