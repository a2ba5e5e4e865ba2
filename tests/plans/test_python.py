"""Which Python is chosen, from an environment of variables and a folder of launchers."""

from __future__ import annotations

from pathlib import Path

import pytest

from cockpit.errors import CockpitError
from cockpit.plans.python import Python, choose


def tool(folder: Path, text: str, name: str = "torchrun") -> dict[str, str]:
    """A shell's environment with a program on its PATH."""
    (folder / "bin").mkdir(exist_ok=True)
    file = folder / "bin" / name
    file.write_text(text)
    file.chmod(0o755)
    return {"PATH": f"/nonexistent:{folder}/bin"}


def chosen(environ: dict[str, str], setup: str = "", launcher: str = "torchrun", given: str = "") -> Python:
    return choose(given, setup, launcher, environ, "/nonexistent/cockpit")


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("#!/opt/torch/bin/python3.11\nimport torch\n", "/opt/torch/bin/python3.11"),
        ("#! /usr/bin/python3 -sP\n", "/usr/bin/python3"),
        ("#!/opt/pypy/bin/pypy3\n", "/opt/pypy/bin/pypy3"),
        ("#!/bin/sh\n'''exec' /a/very/long/python \"$0\" \"$@\"\n' '''\n", "/a/very/long/python"),
        ("#!/bin/sh\n'''exec' \"/a b/python3\" \"$0\" \"$@\"\n' '''\n", "/a b/python3"),
    ],
)
def test_the_python_behind_the_launcher_on_path(tmp_path: Path, text: str, python: str) -> None:
    found = chosen(tool(tmp_path, text))
    assert (found.path, found.tool) == (python, f"{tmp_path}/bin/torchrun")
    assert found.note == f"python: {python}, behind {tmp_path}/bin/torchrun on this shell's PATH"


@pytest.mark.parametrize("words", ["python3", "-S python3 -u", "-S A=b python3"])
def test_a_python_that_the_launcher_looks_for_on_path(tmp_path: Path, words: str) -> None:
    tool(tmp_path, "", "python3")
    found = chosen(tool(tmp_path, f"#!/usr/bin/env {words}\n"))
    assert found.path == f"{tmp_path}/bin/python3"


@pytest.mark.parametrize(
    "text",
    ["#!/bin/bash\nexec singularity exec x torchrun\n", "\x7fELF", "", "#!", "#!/usr/bin/env python3\n"],
)
def test_a_launcher_that_hides_its_python_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(CockpitError) as caught:
        chosen(tool(tmp_path, text))
    assert f"{tmp_path}/bin/torchrun does not say which it starts" in caught.value.what
    assert "--python PATH" in caught.value.hint


def test_what_comes_first(tmp_path: Path) -> None:
    environ = tool(tmp_path, "#!/opt/torch/bin/python\n")
    conda = environ | {"CONDA_PREFIX": "/conda"}
    both = conda | {"VIRTUAL_ENV": "/venv"}
    assert chosen(both, given="/given/python") == Python("/given/python")
    assert chosen(both) == Python("/venv/bin/python")
    assert chosen(conda) == Python("/conda/bin/python")
    assert chosen(conda, launcher="command") == Python("/conda/bin/python")
    assert not chosen(conda).note
    tool(tmp_path, "", "python")
    own = choose("", "", "torchrun", {"PATH": ""}, str(tmp_path))
    assert own == Python(f"{tmp_path}/bin/python")


def test_a_setup_keeps_the_active_environment(tmp_path: Path) -> None:
    environ = tool(tmp_path, "#!/opt/torch/bin/python\n")
    assert chosen(environ, "module load cuda") == Python(None, "/opt/torch/bin")
    assert chosen(environ | {"VIRTUAL_ENV": "/venv"}, "module load cuda") == Python(None, "/venv/bin")
    assert chosen({"PATH": ""}, "module load cuda") == Python(None)
    assert not chosen(environ, "module load cuda").note


def test_nothing_to_go_by() -> None:
    with pytest.raises(CockpitError, match="no torchrun is on this PATH; activate it, or give --python PATH"):
        chosen({"PATH": ""})
    with pytest.raises(CockpitError, match="absolute"):
        chosen({}, given="python")


def test_where_there_is_no_python_beside_cockpit_it_is_python3(tmp_path: Path) -> None:
    tool(tmp_path, "", "python3")
    assert choose("", "", "command", {}, str(tmp_path)).path == f"{tmp_path}/bin/python3"
    tool(tmp_path, "", "python")
    assert choose("", "", "command", {}, str(tmp_path)).path == f"{tmp_path}/bin/python"
