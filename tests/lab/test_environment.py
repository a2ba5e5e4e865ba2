"""The environment as people have it, on nodes with real sshd: modules, and whichever login shell."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.lab.cockpits import Cockpits
from tests.lab.lab import Lab
from tests.needs import require, require_module, require_modules

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@pytest.fixture(params=["bash", "tcsh"])
def shell(lab2: Lab, request: pytest.FixtureRequest) -> Iterator[str]:
    """The login shell of everybody in the lab, for one test."""
    lab2.set_shell(require(request.param))
    yield request.param
    lab2.set_shell("/bin/bash")


def test_module_load_keeps_the_rest(cockpits: Cockpits, shell: str) -> None:
    require_modules()
    files = cockpits.lab.home() / "modulefiles"
    cockpits.lab.write(None, files / "cuda", "#%Module\nsetenv CUDA_HOME /opt/cuda\n")
    setup = ("--setup", f"module use {files}; module load cuda", "--launcher", "command")
    done = cockpits.run(*setup, program=["/bin/sh", "-c", 'echo "$CUDA_HOME, $(command -v python)"'])
    assert done.returncode == 0, done.stderr
    logs = {name: log for node in cockpits.lab.nodes for name, log in cockpits.logs(node).items()}
    ranks = [logs[f"rank-{rank}.log"].decode() for rank in range(4)]
    assert ranks == [f"/opt/cuda, {sys.prefix}/bin/python\n"] * 4


def test_a_module_that_a_node_lacks_starts_nothing(cockpits: Cockpits) -> None:
    require_modules()
    done = cockpits.run("--setup", "module load cuda/99", "--launcher", "command", program=["/bin/true"])
    assert done.returncode == 3
    for node in cockpits.lab.nodes:
        assert f"{node}: --setup fails: " in done.stderr
    assert done.stderr.count("Unable to locate a modulefile for 'cuda/99'") == 2


def test_the_python_behind_the_launcher_on_path(cockpits: Cockpits) -> None:
    """With nothing active; the nodes have it, so they say only what is wrong with the rest."""
    require_module("torch")
    words = cockpits.words("--launcher", "torchrun", program=["missing.py"])
    words = [word for word in words[1:] if word not in ("--python", cockpits.lab.python)]
    done = cockpits.cockpit(*words, env={"VIRTUAL_ENV": "", "CONDA_PREFIX": ""})
    assert done.returncode == 3
    assert "cockpit: python: " in done.stderr
    assert "/bin/torchrun on this shell's PATH\n" in done.stderr
    assert done.stderr.count("no missing.py in ") == 2
