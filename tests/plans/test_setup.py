"""Setups, run by a real bash that nobody logged in to: `module` and `conda activate` work in them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cockpit.plans import setup
from tests.needs import require_modules
from tests.waiting import PATIENCE_S

# As conda's own does it: a function, since a program cannot change its shell.
CONDA_SH = """
conda() {
  [ "$1" = activate ] || return 1
  [ -d "%(root)s/envs/$2" ] || { echo "EnvironmentNameNotFound: $2" >&2; return 1; }
  export CONDA_PREFIX="%(root)s/envs/$2"
  export PATH=$CONDA_PREFIX/bin:$PATH
}
"""


def bash(text: str, path: str = "/usr/bin:/bin", **variables: str) -> subprocess.CompletedProcess[str]:
    """A bash that has read no start-up file runs this; then it prints which python it finds."""
    script = f"{{\n{text}\n}} || exit 93\ncommand -v python\n"
    env = {"PATH": path, "HOME": "/nonexistent", **variables}
    command = ["/bin/bash", "--norc", "-c", script]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


def python(folder: Path) -> str:
    """An environment with a python in it; its folder of programs."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").write_text("#!/bin/sh\n")
    (folder / "bin/python").chmod(0o755)
    return f"{folder}/bin"


def conda(root: Path) -> str:
    """A conda with one environment, `train`; its program."""
    python(root / "envs/train")
    (root / "etc/profile.d").mkdir(parents=True)
    (root / "etc/profile.d/conda.sh").write_text(CONDA_SH % {"root": root})
    (root / "bin").mkdir()
    (root / "bin/conda").write_text("#!/bin/sh\necho 'Run conda init before conda activate' >&2\nexit 1\n")
    (root / "bin/conda").chmod(0o755)
    return f"{root}/bin/conda"


def test_module_load_keeps_the_active_environment_unless_it_changes_python(tmp_path: Path) -> None:
    require_modules()
    (tmp_path / "files").mkdir()
    (tmp_path / "files/cuda").write_text(
        "#%Module\nsetenv CUDA_HOME /opt/cuda\nprepend-path PATH /opt/cuda/bin\n"
    )
    active, module = python(tmp_path / "active"), python(tmp_path / "module")
    (tmp_path / "files/python").write_text(f"#%Module\nprepend-path PATH {module}\n")
    use = f"module use {tmp_path}/files"
    done = bash(setup.text(f"{use}; module load cuda && echo $CUDA_HOME", active, ""))
    assert done.stdout.splitlines() == ["/opt/cuda", f"{active}/python"], done.stderr
    assert bash(setup.text(f"{use}; module load python", active, "")).stdout == f"{module}/python\n"
    done = bash(setup.text(f"{use}; module load gcc", active, ""))
    assert (done.returncode, done.stdout) == (93, "")
    assert "Unable to locate a modulefile for 'gcc'" in done.stderr


def test_conda_activate_wherever_conda_is_known_from(tmp_path: Path) -> None:
    program = conda(tmp_path / "my conda")
    wanted = f"{tmp_path}/my conda/envs/train/bin/python\n"
    active = python(tmp_path / "active")
    assert bash(setup.text("conda activate train", active, program)).stdout == wanted
    text = setup.text("conda activate train", active, "")
    assert bash(text, CONDA_EXE=program).stdout == wanted
    assert bash(text, path=f"{Path(program).parent}:/usr/bin:/bin").stdout == wanted
    done = bash(setup.text("conda activate eval", active, program))
    assert (done.returncode, done.stdout) == (93, "")
    assert "EnvironmentNameNotFound: eval" in done.stderr


def test_a_conda_that_the_node_defines_stays(tmp_path: Path) -> None:
    text = setup.text("conda activate train", "", conda(tmp_path))
    assert bash(f"conda() {{ echo mine; }}\n{text}").stdout.splitlines()[0] == "mine"


def test_no_conda_anywhere() -> None:
    done = bash(setup.text("conda activate train", "", ""))
    assert done.returncode == 93
    assert "conda: command not found" in done.stderr


def test_no_setup_is_no_shell() -> None:
    assert setup.text(" \n", "/venv/bin", "/opt/conda/bin/conda") == ""
