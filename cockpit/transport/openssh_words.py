"""What the ssh program says on its stderr at LogLevel DEBUG1: how far it has got, and why it failed.

Sources: OpenSSH 9.2 as observed, 7.4 from its source (``sshconnect.c``, ``sshconnect2.c``, ``clientloop.c``,
``mux.c``); its messages are never translated. The other side can write to the same stream: what it says here
decides about words, and about when to try again.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cockpit.base.shell import join, quote
from cockpit.transport.adopt import barred
from cockpit.transport.base import ConnectStage, Dropped, LinkError, Progress, Tail

_STAGES = (
    (re.compile(r"Executing proxy command"), ConnectStage.JUMP),
    (re.compile(r"Connecting to "), ConnectStage.DIALING),
    (re.compile(r"Connection established"), ConnectStage.BANNER),
    (re.compile(r"Remote protocol version"), ConnectStage.KEYS),
    (re.compile(r"SSH2_MSG_NEWKEYS received"), ConnectStage.LOGIN),
)
_AS = re.compile(r"Authenticating to (.+):\d+ as '(.*)'")
_SHOWN = re.compile(r"Server host key: (\S+ \S+)")
_NOISE = re.compile(
    r"OpenSSH_\S+ |Authenticated (to|with|using) |Transferred: sent |Bytes per second: "
    r"|Pseudo-terminal will not |\*\* |@{20,}"
)
"""Lines of ssh itself that are not about a failure; ``**`` is how OpenSSH 10 begins advice."""

_DEBUG = "debug1: "


class StderrReader(Tail):
    """Reads stderr of an ssh: keeps what a person should see, and how far the connection has got."""

    OPENED = re.compile(r"Sending command|mux_client_request_session: master session id")
    """What it says once it is logged in and has asked for what was wanted."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self.opened = asyncio.Event()
        """Set once it is logged in and has asked for the command."""
        self.host = ""
        """The machine to which it logs in, or did: maybe a jump host."""
        self.user = ""
        """As whom."""
        self.shown = ""
        """Kind and fingerprint of the newest host key that was shown."""
        self.partial = False
        """Whether the other side accepted a key and wanted more."""
        self.logged_in: Callable[[], None] | None = None
        """Called after each login, at a jump host or at the node."""
        self._progress = progress
        self._rest = b""

    def add(self, data: bytes) -> None:
        """See :meth:`cockpit.transport.base.Tail.add`."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > self.LIMIT:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            self._hear(line)

    def text(self) -> str:
        """See :meth:`cockpit.transport.base.Tail.text`."""
        rest = self._rest.decode(errors="replace").strip()
        return f"{super().text()}\n{rest}".strip()

    def _hear(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip("\r")
        if text.startswith(_DEBUG):
            self._learn(text[len(_DEBUG) :])
        elif _NOISE.match(text):
            self.partial |= "partial success" in text
            if text.startswith("Authenticated to ") and self.logged_in and not self.opened.is_set():
                self.logged_in()
        else:
            super().add(line + b"\n")

    def _learn(self, text: str) -> None:
        if self.opened.is_set():
            return  # from here on, it may be the node that writes such lines
        for pattern, stage in _STAGES:
            if pattern.match(text):
                self._progress.reach(stage)
        if found := _AS.match(text):
            self.host, self.user = found[1], found[2]
        elif found := _SHOWN.match(text):
            self.shown = found[1]
        elif self.OPENED.match(text):
            self.opened.set()


class Failure:
    """What is needed to explain why an ssh ended.

    :param asked: what the configuration says about the node, by option
    :param typed: what a person types to get to the node
    """

    def __init__(self, node: str, said: StderrReader, asked: Mapping[str, str], typed: Sequence[str]) -> None:
        self.node = node
        self.said = said
        self.asked = asked
        self.typed = tuple(typed)

    def explain(self, status: int | None) -> LinkError | None:
        """One sentence and one thing to type; None: it ended as the command on the node did.

        :param status: the exit status: negative for a signal, None if it is not known
        """
        text = self.said.text()
        if status == 255 and not self.said.opened.is_set() and (error := barred(text, self.node)):
            return error
        if status is not None and status < 0:
            return LinkError(f"its ssh was ended here by signal {-status}", where=self.node)
        if status != 255 and (self.said.opened.is_set() or status is None):
            return None
        for pattern, sentence in _SENTENCES:
            if found := pattern.search(text):
                what, hint, retry = sentence(found, self)
                kind = Dropped if sentence is _CLOSED else LinkError
                about = "" if sentence is _refused and self.said.partial else _ABOUT.get(sentence, "")
                return kind(what, where=self.node, hint=hint, retry=retry, about=about)
        last = text.splitlines()[-1][:300] if text else f"ssh ended with {status} and no message"
        return LinkError(f"connection failed: {last}", where=self.node, hint=f"try: {self.command('true')}")

    def stuck(self, stage: ConnectStage, seconds: float) -> LinkError:
        """It has stayed too long in one stage."""
        if stage is ConnectStage.DIALING:
            what = f"no answer to the connection for {seconds:g} s"
            hint = "is the node up, a firewall between?"
        else:
            what = f"no answer for {seconds:g} s: still waiting for {stage.value}"
            hint = f"is the node overloaded, its disk gone? try: {self.command('true')}"
        return LinkError(what, where=self.node, hint=hint)

    def command(self, *more: str) -> str:
        """What a person types to do something with the node."""
        return join((*self.typed, *more))

    @property
    def hop(self) -> str:
        """The jump host at which it was, as a person types it; empty: it was at the node itself."""
        host = self.said.host
        if not host or host == self.asked.get("hostname", host):
            return ""
        hops = self.asked.get("proxyjump", "none").split(",")
        return hops[0] if len(hops) == 1 and hops[0] != "none" else host

    @property
    def at(self) -> str:
        """Where it was, if not at the node itself: `` at jump host bastion``."""
        return f" at jump host {self.hop}" if self.hop else ""

    @property
    def user(self) -> str:
        """Who tried to log in."""
        return self.said.user or self.asked.get("user", "")


_Sentence = tuple[str, str, bool]


def _changed(found: re.Match[str], failure: Failure) -> _Sentence:
    text = failure.said.text()
    where = re.search(r"Offending \S+ key in (.+):\d+", text)
    own = str(Path.home() / ".ssh/known_hosts")
    file = f"-f {quote(where[1])} " if where and where[1] != own else ""
    shown = f" (it shows {failure.said.shown})" if failure.said.shown else ""
    return (
        f"host key changed{failure.at}: a different machine, or somebody in between{shown}",
        f"verify with its admin, then: ssh-keygen {file}-R {quote(found['host'])}",
        False,
    )


def _unknown(found: re.Match[str], failure: Failure) -> _Sentence:
    shown = f": {failure.said.shown}" if failure.said.shown else ""
    if _keeps_none(failure):
        hint = "the ssh configuration stores none: give it a UserKnownHostsFile"
    else:
        hint = f"check it and accept it with: {failure.command('true')}"
    return f"host key is not known{failure.at}{shown}", hint, False


def _failed(found: re.Match[str], failure: Failure) -> _Sentence:
    if _keeps_none(failure):  # ssh then says no more than this
        return _unknown(found, failure)
    shown = f": {failure.said.shown}" if failure.said.shown else ""
    return f"host key refused{failure.at}{shown}", f"see why: {failure.command('true')}", False


def _keeps_none(failure: Failure) -> bool:
    """Whether the configuration keeps no host keys for a person."""
    return failure.asked.get("userknownhostsfile", "") in ("none", "/dev/null")


def _refused(found: re.Match[str], failure: Failure) -> _Sentence:
    methods = found["methods"]
    asks = f" ({methods})" if methods else ""
    place = failure.hop or failure.typed[-1]
    keep = f"log in once and keep that open: {join(('ssh', '-fNM', *failure.typed[1:-1], place))}"
    if failure.hop or failure.asked.get("controlpath", "none") == "none":
        keep = f"with a ControlPath in the ssh configuration, {keep}"
    if failure.said.partial:
        return f"login refused{failure.at}: {failure.user} needs more than a key{asks}", keep, False
    tries = []
    if "publickey" in methods or not methods:
        tries.append(f"try: {join(('ssh-copy-id', *failure.typed[1:-1], place))}")
    provider = failure.asked.get("pkcs11provider", "none")
    if "publickey" in methods and provider != "none":
        tries.append(f"for a card or token: {join(('ssh-add', '-s', provider))}")
    if "gssapi" in methods and failure.asked.get("gssapiauthentication") == "yes":
        tries.append("with Kerberos: kinit")
    if "password" in methods or "keyboard-interactive" in methods:
        tries.append(f"for a password or a code, {keep}")
    what = f"login refused{failure.at}: {failure.user} is not accepted{asks}"
    return what, " · ".join(tries) or f"try: {failure.command('true')}", False


def _said(what: str, hint: str, retry: bool) -> Callable[[re.Match[str], Failure], _Sentence]:
    """The same for every node; in the hint ``{try}`` is what a person types to see more, ``{file}`` their
    configuration."""

    def sentence(found: re.Match[str], failure: Failure) -> _Sentence:
        said = found.groupdict().get("said") or found[0]
        file = join(failure.typed[2:-1]) if failure.typed[1:2] == ("-F",) else "~/.ssh/config"
        more = hint.replace("{try}", failure.command("true")).replace("{file}", file)
        return what.format(said=said.strip()[:300]), more, retry

    return sentence


# How ssh begins what a connection came to: its own, and that of a jump host to the node.
_CONNECT = r"^(?:ssh: connect to host .{0,400}|channel \d+: open failed: connect failed): "

_CLOSED = _said("connection lost: {said}", "sshd may be dropping parallel logins", True)
_MANY = _said("too many keys offered", "set IdentitiesOnly and one IdentityFile for it in {file}", False)
_NAME = _said("name unknown", "correct the hostfile, /etc/hosts or ~/.ssh/config", False)

_ABOUT: dict[Callable[[re.Match[str], Failure], _Sentence], str] = {
    _changed: "changed-key",
    _unknown: "host-key",
    _refused: "login",
    _MANY: "many-keys",
    _NAME: "name",
    _CLOSED: "dropped",
}
"""Which of the failures that rules know a sentence is about."""

_SENTENCES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], Failure], _Sentence]], ...] = tuple(
    (re.compile(pattern, re.MULTILINE), sentence)
    for pattern, sentence in (
        (r"^(?:\S+ h|H)ost key for (?P<host>\S+) has changed", _changed),
        (r"^No \S+ host key is known for \S+", _unknown),
        (
            r"^(?P<said>.{0,400}REVOKED HOST KEY.{0,400}|Host key .{0,400}revoked.{0,400})",
            _said("host key refused: it is revoked", "ask its admin for a new host key", False),
        ),
        (r"^Host key verification failed", _failed),
        (r"Too many authentication failures", _MANY),
        (r"^(?:\S{1,200}@\S{1,200}: )?Permission denied \((?P<methods>[\w,.@-]*)\)", _refused),
        (
            r"^ssh: Could not resolve hostname |" + _CONNECT + r".{0,400}(?:not known|resolution)",
            _NAME,
        ),
        (
            _CONNECT + r"Connection refused",
            _said("connection refused: no sshd listens there", "start sshd, or set its Port", True),
        ),
        (
            _CONNECT + r"(?:No route to host|Network is unreachable|Host is down)",
            _said("no route to it", "is the node up, on this network?", True),
        ),
        (
            _CONNECT + r".{0,400}timed out|^Connection timed out during banner exchange",
            _said("no answer to the connection", "is the node up, a firewall between?", True),
        ),
        (_CONNECT + r"(?P<said>.{0,400})", _said("no connection to it: {said}", "see why: {try}", True)),
        (
            r"^Unable to negotiate .{0,400}?: (?P<said>no matching .{0,400})",
            _said("no common ssh algorithm: {said}", "see which: {try}", False),
        ),
        (
            r"^Timeout, server .{0,400} not responding",
            _said("connection lost: no answer", "", True),
        ),
        (
            r"^(?P<said>(?:kex|ssh)_exchange_identification: .{0,400}|Connection (?:closed|reset) by .{0,400}"
            r"|client_loop: send disconnect.{0,400}|Connection to .{0,400} closed.{0,400}"
            r"|.{0,400}Broken pipe)",
            _CLOSED,
        ),
    )
)
