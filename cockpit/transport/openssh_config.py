"""What the ssh program is started with: options that nothing overrides, then a person's own configuration.

They are a file, not options of the command line: ssh hands only the file on to the ssh that it starts for a
``ProxyJump``, which must check host keys and ask nobody just as strictly. An option's first value counts.
Sources: OpenSSH 9.2 (``readconf.c``, ``ssh.c``), ssh_config(5).
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from cockpit import paths
from cockpit.base.shell import join, quote
from cockpit.errors import CockpitError, os_error
from cockpit.private import private_dir
from cockpit.transport import effective
from cockpit.transport.base import LinkError

_ALWAYS = (
    # DEBUG1 has how far it got, as whom, and the fingerprint it saw; see openssh_words.
    "LogLevel DEBUG1",
    "StrictHostKeyChecking yes",
    "NoHostAuthenticationForLocalhost no",
    "UpdateHostKeys no",  # many at once would rewrite known_hosts
    "VisualHostKey no",
    "RequestTTY no",
    "EscapeChar none",
    "ClearAllForwardings yes",  # of ports and sockets, and tunnels
    "ForwardAgent no",
    "ForwardX11 no",
    "PermitLocalCommand no",
    "ControlMaster no",  # one that is open is used; those of ours say otherwise (openssh_masters)
    "ServerAliveInterval 5",
    "ServerAliveCountMax 3",
)
_SINCE = {
    (7, 6): ("RemoteCommand none",),
    (8, 7): ("SessionType default", "StdinNull no", "ForkAfterAuthentication no"),
}
"""Options by the version that brought them. ``IgnoreUnknown`` is no help: it would replace the user's own."""

PLAIN_PATH = re.compile(r"[\w@+,./-]+\Z")
"""A path that ssh may put into the command of a jump host: it does not quote it."""

_VERSION = re.compile(r"OpenSSH\w{0,40}_(\d+)\.(\d+)")


class OpensshConfig:
    """The configuration of the ssh program, and what it makes of it for a node.

    :param chosen: a file in place of the user's and the system's (as ``ssh -F``)
    :param patience_s: seconds that ssh may take to read it: ``Match exec`` runs commands
    """

    def __init__(self, chosen: str = "", patience_s: float = 30) -> None:
        self.env = {**os.environ, "SSH_ASKPASS": "/bin/false", "SSH_ASKPASS_REQUIRE": "never"}
        """The environment of ssh: a ProxyCommand, too, asks nobody."""
        self._chosen = chosen
        self._patience_s = patience_s
        self._version: tuple[int, int] | None = None

    async def words(self, *, asks: bool = False) -> tuple[str, ...]:
        """The beginning of every command: ssh with its configuration.

        :param asks: whether it may ask a person, by ``SSH_ASKPASS``
        :raises LinkError: there is no ssh, or its configuration cannot be read or written
        """
        if self._version is None:
            _, out, err = await self._run("ssh", "-V")
            found = _VERSION.search(out + err)
            self._version = (int(found[1]), int(found[2])) if found else (99, 0)
        return ("ssh", "-F", str(self._file(self._version, asks=asks)))

    async def ask(self, node: str, *options: str) -> Mapping[str, str]:
        """What the configuration says about a node (``ssh -G``), by option in lower case.

        :raises LinkError: ssh does not understand the configuration
        """
        words = await self.words()
        code, out, err = await self._run(*effective.question([*words, *options], node))
        try:
            said = effective.answer(code, out, self._translated(err, words[-1]), f"ssh -G ended with {code}")
        except ValueError as error:
            hint = f"correct it, then try: {join((*self.typed, '-G', node))}"
            raise LinkError(f"ssh configuration: {error}", where=node, hint=hint, retry=False) from None
        return {name: values[0] for name, values in said.items()}

    async def has_master(self, node: str, asked: Mapping[str, str], *options: str) -> bool:
        """Whether a ControlMaster connection to a node is open, by the configuration's ControlPath.

        :param asked: what the configuration says about it
        """
        if asked.get("controlpath", "none") == "none":
            return False
        code, _, _ = await self._run(*await self.words(), *options, "-O", "check", "--", node)
        return code == 0

    @property
    def typed(self) -> tuple[str, ...]:
        """What a person types to get there with the same configuration, up to the node."""
        return ("ssh", *(("-F", self._chosen) if self._chosen else ()))

    def _file(self, version: tuple[int, int], *, asks: bool) -> Path:
        name = f"config-{sha256(self._chosen.encode()).hexdigest()[:16]}"
        path = paths.ssh() / (f"{name}-asks" if asks else name)
        if not PLAIN_PATH.match(str(path)):
            what, hint = "ssh cannot use a path with such characters", "set another one: XDG_STATE_HOME=DIR"
            raise LinkError(what, where=str(path), hint=hint, retry=False)
        text = self._text(version, asks=asks)
        try:
            private_dir(path.parent)
            if not path.exists() or path.read_text(encoding="utf-8", errors="surrogateescape") != text:
                _write(path, text)
        except OSError as error:
            raise _for_link(os_error("cannot write it", str(path), error)) from None
        return path

    def _text(self, version: tuple[int, int], *, asks: bool = False) -> str:
        newer = [line for since, lines in _SINCE.items() if version >= since for line in lines]
        asked = () if asks else ("BatchMode yes",)
        first = "".join(f"{line}\n" for line in (*_ALWAYS, *asked, *newer))
        if not self._chosen:
            # Both are checked for their owner and mode, as ssh does; a missing one is ignored.
            return f"{first}Include ~/.ssh/config\nInclude /etc/ssh/ssh_config\n"
        try:
            # Not an Include, which takes the name for a pattern, and only a file of ours or root's.
            return first + Path(self._chosen).read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            what, hint = "ssh configuration cannot be read", f"check it: ls -l {quote(self._chosen)}"
            raise LinkError(what, where=self._chosen, retry=False, hint=hint) from None

    def _translated(self, said: str, ours: str) -> str:
        """What ssh said about our file, as if it were about the chosen one."""
        if not self._chosen:
            return said
        above = self._text(self._version or (99, 0)).count("\n") - _lines(self._chosen)

        def line(found: re.Match[str]) -> str:
            return f"{self._chosen}:{int(found[1]) - above}"

        said = re.sub(re.escape(ours) + r":? line (\d+)", line, said)
        return said.replace(ours, self._chosen)

    async def _run(self, *words: str) -> tuple[int, str, str]:
        """Exit status, stdout and stderr of a command that asks nothing of any node."""
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=pipe,
                stderr=pipe,
                env=self.env,
                start_new_session=True,
            )
        except OSError as error:
            what = f"cannot start {words[0]}: {error.strerror}"
            hint = "install OpenSSH's client, or use --transport ssh"
            raise LinkError(what, where="this machine", hint=hint, retry=False) from None
        try:
            out, err = await asyncio.wait_for(process.communicate(), self._patience_s)
        except (TimeoutError, asyncio.TimeoutError):
            what = f"{join(words[:1])} has not read its configuration within {self._patience_s:g} s"
            raise LinkError(what, where=words[-1]) from None
        finally:
            if process.returncode is None:
                process.kill()
        assert process.returncode is not None
        return process.returncode, out.decode(errors="replace"), err.decode(errors="replace")


def _lines(file: str) -> int:
    return Path(file).read_bytes().count(b"\n")


def _write(path: Path, text: str) -> None:
    """Replace a file at once: another ssh may be reading it."""
    number, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(number, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _for_link(error: CockpitError) -> LinkError:
    return LinkError(error.what, where=error.where, hint=error.hint, retry=False)
