"""Configurations as people have them, on real sshds: where ssh gets, cockpit gets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.cockpits import cockpit
from tests.lab.connecting import connect
from tests.lab.lab import OTHER, USER, Lab

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@pytest.fixture
def files(lab2: Lab) -> Iterator[Path]:
    """A folder for this test's configuration, in the user's home."""
    folder = lab2.home() / "configurations"
    yield folder
    lab2.run(["rm", "-rf", folder], check=True)


def there(lab: Lab, folder: Path, config: str, name: str) -> str:
    """Who this configuration makes us on a node, or why nobody."""
    lab.write(None, folder / "config", config)
    return connect(lab, name, folder / "config")


def keys(lab: Lab, folder: Path) -> str:
    """Lines of a Host block: the user's own key after one that is missing, hashed known hosts."""
    ssh = lab.home() / ".ssh"
    lab.write(None, folder / "known_hosts", (ssh / "known_hosts").read_text())
    lab.run(["ssh-keygen", "-H", "-f", folder / "known_hosts"], check=True)
    return (
        f"  User {USER}\n  IdentityFile {ssh}/nothing\n  IdentityFile {ssh}/id_ed25519\n"
        f"  UserKnownHostsFile {folder}/nothing {folder}/known_hosts\n"
    )


def test_what_ssh_passes_over_or_evaluates_alone(lab2: Lab, files: Path) -> None:
    block = f"Host alpha\n  HostName {lab2.addresses['node1']}\n  ServerAliveInterval 10m\n"
    config = f"{block}Match final all\n{keys(lab2, files)}"
    assert there(lab2, files, config, "alpha") == USER
    by_ssh = lab2.run(["ssh", "-F", files / "config", "-o", "BatchMode=yes", "alpha", "whoami"])
    assert by_ssh.stdout == f"{USER}\n", by_ssh.stderr


def test_through_one_node_to_another(lab2: Lab, files: Path) -> None:
    first, second = lab2.addresses.values()
    config = (
        f"Host bastion\n  HostName {first}\nHost inner\n  HostName {first}\n  ProxyJump bastion\n"
        f"Host beta\n  HostName {second}\n  ProxyJump inner\nHost gamma\n  HostName {second}\n"
        f"  ProxyCommand ssh -F {files}/config -v -W %h:%p bastion || exit 1\nHost *\n{keys(lab2, files)}"
    )
    assert there(lab2, files, config, "beta") == USER
    assert there(lab2, files, config, "gamma") == USER
    failing = config.replace("ProxyJump inner", f"ProxyJump {OTHER}@inner")
    said = there(lab2, files, failing, "beta")
    assert f"jump host {OTHER}@inner: login refused: no key of {OTHER} is accepted" in said


def test_a_new_key_is_kept_once_and_a_changed_one_never(lab2: Lab, files: Path) -> None:
    address, known = lab2.addresses["node1"], files / "known_hosts"
    config = f"Host alpha\n  HostName {address}\n  HashKnownHosts yes\n  UserKnownHostsFile {known}\n"
    lab2.write(None, files / "config", config + keys(lab2, files))
    lab2.write(None, files / "hostfile", "alpha slots=1\n")
    lab2.write(None, known, "")

    def ps(*options: str) -> str:
        where: list[str | Path] = ["--hostfile", files / "hostfile", "-F", files / "config"]
        done = cockpit(lab2, "ps", *where, *options)
        assert done.returncode == 0, done.stderr
        return done.stderr

    assert "alpha: host key is not known" in ps()
    assert "host key" not in ps("--accept-new-host-keys")
    assert known.read_text().startswith("|1|")
    assert "host key" not in ps()
    changed = f"{address} {(lab2.folder / 'nodes/node2/host_key.pub').read_text()}"
    lab2.write(None, known, changed)
    assert "alpha: host key changed" in ps("--accept-new-host-keys")
    assert known.read_text() == changed
