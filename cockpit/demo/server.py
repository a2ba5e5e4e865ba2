"""The process that plays a demo's nodes: one ssh server a node on loopback, and the end of all behind them.

:mod:`cockpit.demo.cluster` starts it, in a session of its own. Its stdin is a pipe from the cockpit: when
that closes, because the demo is over or the cockpit gone, everything the demo started is ended and removed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

import asyncssh

from cockpit.demo.ending import TAG, end
from cockpit.private import DEMO, temporary_dir

USER = "demo"
"""The one user the servers know; commands run as whoever started the demo."""


class _Node(asyncssh.SSHServer):
    """Lets in who has the demo's key, and forwards nothing (asyncssh's default)."""

    def begin_auth(self, username: str) -> bool:
        return True


class Nodes:
    """The ssh servers of a demo, and the files by which one reaches them: ``ssh_config`` and its like.

    :param folder: the demo's, private to the user
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._servers: list[asyncssh.SSHAcceptor] = []
        key = asyncssh.generate_private_key("ssh-ed25519")
        _write(folder / "id", key.export_private_key())
        self._authorized = asyncssh.import_authorized_keys(key.export_public_key().decode())
        self._known: list[str] = []
        self._config = [
            "Host *",
            f"  User {USER}",
            f'  IdentityFile "{folder / "id"}"',
            "  IdentitiesOnly yes",
            "  IdentityAgent none",
            f'  UserKnownHostsFile "{folder / "known_hosts"}"',
            "  StrictHostKeyChecking yes",
        ]

    async def add(self, name: str) -> None:
        """Start the server of a node on a free port."""
        home = self.folder / name
        home.mkdir(0o700)
        host_key = asyncssh.generate_private_key("ssh-ed25519")

        async def serve(process: asyncssh.SSHServerProcess[bytes]) -> None:
            await _serve(process, self.folder, home)

        server = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_factory=_Node,
            server_host_keys=[host_key],
            authorized_client_keys=self._authorized,
            process_factory=serve,
            encoding=None,
            password_auth=False,
            kbdint_auth=False,
            host_based_auth=False,
            gss_kex=False,
            gss_auth=False,
            agent_forwarding=False,
            x11_forwarding=False,
            allow_pty=False,
        )
        self._servers.append(server)
        port = server.get_port()
        self._config = [f"Host {name}", "  HostName 127.0.0.1", f"  Port {port}", *self._config]
        self._known.append(f"[127.0.0.1]:{port} {host_key.export_public_key().decode()}")

    def write(self) -> None:
        """Write the files by which ssh reaches the nodes."""
        _write(self.folder / "ssh_config", "\n".join(self._config).encode() + b"\n")
        _write(self.folder / "known_hosts", "".join(self._known).encode())


async def _serve(process: asyncssh.SSHServerProcess[bytes], folder: Path, home: Path) -> None:
    """Run what one ssh session asks for, as sshd would."""
    if process.command is None:
        process.stderr.write(b"a node of a demo has no interactive shell\n")
        process.exit(1)
        return
    peer, own = process.get_extra_info("peername"), process.get_extra_info("sockname")
    environment = {
        **os.environ,
        TAG: str(folder),
        "TMPDIR": str(home),
        "SSH_CONNECTION": f"{peer[0]} {peer[1]} {own[0]} {own[1]}",
    }
    pipe = asyncio.subprocess.PIPE
    shell = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        process.command,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env=environment,
        cwd=home,
        start_new_session=True,
    )
    if process.is_closing():  # the client is gone again, and asyncssh redirects nothing any more
        await shell.communicate()
        return
    await process.redirect(shell.stdin, shell.stdout, shell.stderr)
    process.exit(await shell.wait())
    await process.wait_closed()  # asyncssh has coroutines that wait for that


def _write(file: Path, data: bytes) -> None:
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.write(data)


async def _play(folder: Path, names: list[str]) -> None:
    """Be the nodes until stdin ends or somebody sends a signal."""
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, over.set)

    def heard() -> None:
        if not os.read(0, 1024):
            loop.remove_reader(0)
            over.set()

    loop.add_reader(0, heard)
    nodes = Nodes(folder)
    for name in names:
        await nodes.add(name)
    nodes.write()
    print(json.dumps({"folder": str(folder)}), flush=True)
    await over.wait()


def main(argv: list[str]) -> int:
    """Play the nodes named in ``argv``; one line of JSON on stdout says in which folder their files are."""
    folder = temporary_dir(tempfile.gettempdir(), DEMO).resolve()
    try:
        asyncio.run(_play(folder, argv))
    finally:
        # The links are cut by now: no agent can start anything any more that this would miss.
        left = end(folder)
    for sentence in left:
        print(sentence, file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
