"""Host-based login by real sshd and ssh-keysign: a machine vouches for its users, who need no key."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from cockpit.transport.identities import KEYSIGN
from tests.lab.connecting import connect
from tests.lab.lab import USER, Lab
from tests.needs import lacking, require

pytestmark = [pytest.mark.lab, pytest.mark.slow]


def vouch(lab: Lab) -> None:
    """Let the login node vouch for its users to node1, which accepts nothing else."""
    folder = lab.folder / "login-ssh"
    folder.mkdir(mode=0o755)
    key = folder / "ssh_host_ed25519_key"
    subprocess.run([require("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    # ssh-keysign reads this file only, whatever the user's says.
    (folder / "ssh_config").write_text("Host *\n  HostbasedAuthentication yes\nEnableSSHKeysign yes\n")
    lab.run(["mount", "--bind", folder, "/etc/ssh"], user="root", check=True)
    lab.write(None, lab.home() / ".shosts", f"login {USER}\n", mode=0o600)
    known = lab.home() / ".ssh/known_hosts"
    known.write_text(known.read_text() + f"login {key.with_suffix('.pub').read_text()}")
    hostbased = "HostbasedAuthentication yes", "IgnoreRhosts no", "HostbasedUsesNameFromPacketOnly yes"
    lab.restart_sshd("node1", *hostbased, "AuthorizedKeysFile none")


def test_a_user_without_a_key_logs_in_by_this_machine(make_lab: Callable[[int], Lab]) -> None:
    if not any(subprocess.run(["test", "-u", program], check=False).returncode == 0 for program in KEYSIGN):
        lacking("ssh-keysign is not installed, or not setuid")
    lab = make_lab(1)
    vouch(lab)
    by_ssh = lab.run(["ssh", "-v", "-o", "BatchMode=yes", "node1", "whoami"])
    assert by_ssh.stdout == f"{USER}\n", by_ssh.stderr
    assert connect(lab, "node1") == USER, lab.sshd_log("node1")
    assert "Accepted hostbased for" in lab.sshd_log("node1")


def test_an_sshd_that_lets_anybody_in_is_refused(make_lab: Callable[[int], Lab]) -> None:
    """Also where host-based login, which proves something, is wanted."""
    lab = make_lab(1)
    vouch(lab)
    shadow = lab.folder / "etc/shadow"
    with open(shadow, "r+") as file:  # in place: the file itself is bound over /etc/shadow
        text = file.read().replace(f"{USER}:*:", f"{USER}::")
        file.seek(0)
        file.truncate()
        file.write(text)
    lab.restart_sshd("node1", "PasswordAuthentication yes", "PermitEmptyPasswords yes")
    assert lab.run(["ssh", "-o", "BatchMode=yes", "node1", "whoami"]).stdout == f"{USER}\n"
    assert "node1: login refused: its sshd accepts anyone without authentication" in connect(lab, "node1")
