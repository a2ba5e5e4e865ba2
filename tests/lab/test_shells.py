"""Whatever the login shell is and whatever its start-up files print, a node can be used."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.cockpits import Cockpits
from tests.lab.lab import Lab
from tests.needs import require

pytestmark = [pytest.mark.lab, pytest.mark.slow]

NOISE = "printf 'Welcome to \\033[1mthe cluster\\033[0m\\ncockpit-0123 ok 3.11\\n"

SHELLS = {
    "fish": ("fish", ".config/fish/config.fish", NOISE + "'\n"),
    "tcsh": ("tcsh", ".tcshrc", NOISE + "'\n"),
    "bash": (
        "bash",
        ".bashrc",
        f"if [ $(hostname) = node1 ]; then {NOISE}no newline'; printf 'on stderr' >&2\n"
        "else head -c 300000 /dev/urandom; fi\n",
    ),
}
"""Where they differ by node, one prints words and the other one much that is none."""


@pytest.fixture
def shell(lab2: Lab, request: pytest.FixtureRequest) -> Iterator[str]:
    """The login shell of everybody in the lab, for one test."""
    tool, rc, text = SHELLS[request.param]
    path = require(tool)
    file = lab2.home() / rc
    lab2.write(None, file, text)
    lab2.set_shell(path)
    yield path
    lab2.set_shell("/bin/bash")
    file.unlink()


@pytest.mark.parametrize("shell", SHELLS, indirect=True)
def test_a_login_shell_of_any_kind(cockpits: Cockpits, shell: str) -> None:
    said = cockpits.lab.run(["ssh", "node1", "env"], errors="replace").stdout
    assert f"SHELL={shell}\n" in said
    assert not said.startswith("SHELL=")  # it did print something first, or this test shows nothing
    done = cockpits.run("--launcher", "command", program=["/bin/sh", "-c", 'echo "rank $RANK lives"'])
    assert done.returncode == 0, done.stderr
    assert [f"rank {rank} lives" in done.stdout for rank in range(4)] == [True] * 4
    assert "Welcome" not in done.stdout + done.stderr
    cockpits.assert_spools_equal()
