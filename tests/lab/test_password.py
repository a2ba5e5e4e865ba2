"""Real sshds that want a password: a person types it, once, and it is nowhere afterwards."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.lab.cockpits import EXAMPLES, Cockpits
from tests.lab.lab import USER, Lab
from tests.lab.terminals import Terminal, terminal
from tests.needs import lacking, require
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

SECRET = "Correct-Horse-7"
WANTS = ("PasswordAuthentication yes", "AuthorizedKeysFile none")
KBDINT = ("UsePAM yes", "KbdInteractiveAuthentication yes", "AuthorizedKeysFile none")
NO_SSHD = "connection refused: no sshd listens there"
PLAIN = str(EXAMPLES / "train_plain.py")


def give_password(lab: Lab) -> None:
    """Give the lab's user a password, on all nodes."""
    words = [require("openssl"), "passwd", "-6", "-stdin"]
    done = subprocess.run(words, input=SECRET, capture_output=True, text=True, check=True)
    shadow = lab.folder / "etc/shadow"
    text = shadow.read_text().replace(f"{USER}:*:", f"{USER}:{done.stdout.strip()}:")
    with open(shadow, "r+") as file:  # in place: the file itself is bound over /etc/shadow
        file.truncate()
        file.write(text)


def tries(lab: Lab) -> dict[str, list[int]]:
    """Passwords that each node's sshd refused and accepted."""
    said = {node: lab.sshd_log(node) for node in lab.nodes}
    return {
        node: [text.count(f"{verdict} password for {USER}") for verdict in ("Failed", "Accepted")]
        for node, text in said.items()
    }


def logged(lab: Lab, *wanted: list[int]) -> None:
    """Wait for these tries: sshd answers before it writes to its log."""
    until(lambda: sorted(tries(lab).values()) == list(wanted), f"{wanted}")


def found(folder: Path, secret: str) -> list[Path]:
    """Files below a folder that hold a secret."""
    return [each for each in folder.rglob("*") if each.is_file() and secret.encode() in each.read_bytes()]


def test_a_password_is_asked_once_and_kept_nowhere(make_lab: Callable[[int], Lab]) -> None:
    lab = make_lab(2)
    give_password(lab)
    for node in lab.nodes:
        lab.restart_sshd(node, *WANTS)
    cockpits = Cockpits(lab, "typed")

    refused = cockpits.run("--headless", "--launcher", "command", program=["echo", "hello"])
    assert refused.returncode == 3
    assert "wants a password or a code, but --headless never asks; load a key" in refused.stderr
    assert tries(lab) == {"node1": [0, 0], "node2": [0, 0]}

    words = cockpits.words("--plain", "--launcher", "command", program=cockpits.steps())
    with terminal(lab, words) as screen:
        screen.wait_for("password: ")
        screen.type("wrong\r")
        screen.wait_for("Refused; this is try 2 of 3.")
        logged(lab, [0, 0], [1, 0])  # the other node has not heard of it
        screen.type(f"{SECRET}\r")
        until(cockpits.all_started, "it runs")
        logged(lab, [0, 1], [1, 1])
        lab.stop_sshd("node2", sessions=True)
        lab.start_sshd("node2", *WANTS)
        screen.wait_for("node2: link is back")
        cockpits.finish()
        assert screen.end(120) == 0
        assert screen.text.count("password: ") == 2
        assert SECRET not in screen.text
        assert "wrong" not in screen.text
    assert found(lab.home(), SECRET) == []
    assert not any(SECRET.encode() in each for node in lab.nodes for each in cockpits.logs(node).values())
    until(lambda: sum(each[1] for each in tries(lab).values()) == 3, "node2 has accepted it again")


@pytest.mark.parametrize("transport", ["ssh", "openssh"])
def test_one_wrong_password_is_one_refusal(make_lab: Callable[[int], Lab], transport: str) -> None:
    lab = make_lab(3)
    give_password(lab)
    for node in lab.nodes:
        lab.restart_sshd(node, *WANTS)
    own = (lab.home() / ".ssh/config").read_text()
    lab.write(None, lab.home() / "once", f"NumberOfPasswordPrompts 1\n{own}")
    words = ["cockpit", "ps", "--hostfile", str(lab.hostfile), "--transport", transport]
    words += ["-F", str(lab.home() / "once")]
    with terminal(lab, words) as screen:
        screen.wait_for("password: ")
        screen.type("wrong\r")
        screen.end()
        assert screen.text.count(" refused the password; there is no automatic retry") == 3, screen.text
    logged(lab, [0, 0], [0, 0], [1, 0])
    with terminal(lab, words) as screen:
        screen.wait_for("password: ")
        screen.type(f"{SECRET}\r")
        assert screen.end() == 0
        assert "No runs yet" in screen.text
    logged(lab, [0, 1], [0, 1], [1, 1])
    with terminal(lab, words) as screen:  # ctrl-c is about this login
        screen.wait_for("password: ")
        screen.type("\x03")
        screen.end()
        assert screen.text.count("was cancelled") == 3
    assert found(lab.home(), SECRET) == []


def one_time_codes(lab: Lab, node: str, codes: list[str]) -> None:
    """Let a node's sshd ask, through PAM, for the password and then for one of these codes."""
    modules = [path for root in ("/lib", "/usr/lib", "/usr/lib64") for path in Path(root).glob("**/security")]
    if not any((path / "pam_google_authenticator.so").exists() for path in modules):
        lacking("pam_google_authenticator is not installed")
    secret = lab.home() / ".google_authenticator"
    lab.write(None, secret, "\n".join(["JBSWY3DPEHPK3PXP", '" TOTP_AUTH', *codes, ""]), mode=0o600)
    rules = "auth required pam_unix.so", "auth required pam_google_authenticator.so"
    rest = "account required pam_permit.so", "session required pam_permit.so"
    pam = lab.folder / "nodes" / node / "pam"
    pam.write_text("\n".join([*rules, *rest, ""]))
    lab.run(["mount", "--bind", pam, "/etc/pam.d/sshd"], node=node, user="root", check=True)
    lab.restart_sshd(node, *KBDINT)


def test_a_login_host_that_wants_a_one_time_code(make_lab: Callable[[int], Lab]) -> None:
    """Asked once for all nodes behind it; after a lost link nobody is asked before a person wants it."""
    lab = make_lab(3)
    give_password(lab)
    codes = [f"{number}2345678" for number in range(1, 7)]
    one_time_codes(lab, "node1", codes)
    own = (lab.home() / ".ssh/config").read_text()
    behind = "".join(f"Host {node}\n  ProxyJump node1\n" for node in ("node2", "node3"))
    lab.write(None, lab.home() / ".ssh/config", behind + own, mode=0o600)
    nodes = "node2 slots=1\nnode3 slots=1\n"
    program = [PLAIN, "--steps", "100000"]
    for transport in ("ssh", "openssh"):
        cockpits = Cockpits(lab, f"codes-{transport}")
        words = cockpits.words(
            *("--plain", "--launcher", "command", "--transport", transport), program=program, nodes=nodes
        )
        first, second, *rest = codes if transport == "ssh" else codes[2:]
        with terminal(lab, words) as screen:
            screen.wait_for(") Password: ")
            screen.type(f"{SECRET}\r")
            screen.wait_for("Verification code: ")
            screen.type(f"{first}\r")
            screen.wait_for("step 3/100000", timeout=PATIENCE_S)
            assert screen.text.count("Verification code: ") == 1
            log = lab.sshd_log("node1")
            lab.stop_sshd("node1", sessions=True)
            lab.start_sshd("node1", *KBDINT)
            screen.wait_for("node[2-3]: login required again (Ctrl-C, then r)")
            assert screen.text.count("Verification code: ") == 1
            assert "keyboard-interactive" not in lab.sshd_log("node1")[len(log) :]
            screen.type("\x03")
            screen.wait_for("[r] log in again")
            back = {node: screen.text.count(f"{node}: link is back") for node in ("node2", "node3")}
            screen.type("r\r")
            until(lambda: screen.text.count("Verification code: ") == 2, "asked for a code again")
            assert screen.text.count(") Password: ") == 1, "it is known"
            screen.type(f"{second}\r")
            for node, before in back.items():
                until(partial(more_often, screen, f"{node}: link is back", before), "the link is back")
            if transport == "openssh":
                assert sshs(lab), "there is something to leave behind"
                screen.process.kill()
                until(lambda: not sshs(lab), "its ssh processes end with it")
            else:
                screen.type("\x03")
                until(lambda: screen.text.count("[Enter] leave") == 2, "asked how to leave")
                screen.type("s\r")
                assert screen.end(90) == 1
            assert SECRET not in screen.text
    lab.stop_sshd("node3", sessions=True)
    for code, verb, said in zip(rest, (["ps"], ["stop", "--now"]), (NO_SSHD, "stopped"), strict=True):
        with terminal(lab, ["cockpit", *verb, cockpits.name]) as screen:
            screen.wait_for(") Password: ")
            screen.type(f"{SECRET}\r")
            screen.wait_for("Verification code: ")
            screen.type(f"{code}\r")
            screen.end(90)
            assert said in screen.text, screen.text
            assert screen.text.count("Verification code: ") == 1
        if verb == ["ps"]:
            lab.start_sshd("node3")
    assert not [path for path in lab.home().rglob("*") if path.is_socket()]
    for secret in (SECRET, *codes):
        assert found(lab.home(), secret) == []


def more_often(screen: Terminal, text: str, before: int) -> bool:
    return screen.text.count(text) > before


def sshs(lab: Lab) -> list[tuple[str, ...]]:
    """The ssh processes on the login node."""
    return [process.cmdline for process in lab.processes(None) if process.cmdline[:1] == ("ssh",)]
