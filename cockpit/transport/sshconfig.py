"""What the user's ssh configuration says about one host, evaluated as ssh does.

asyncssh reads the files. What it cannot evaluate or parse (``Match final``, ``Match exec``, canonical names,
``ServerAliveInterval 10m``) is asked of ``ssh -G``, for that host alone. asyncssh skips keywords that it does
not know; those of them that decide whom to trust are kept here, and honoured or refused.
Sources: asyncssh 2.24 (``config.py``); OpenSSH 9.2: ``ssh_config(5)``, ``ssh -G``.
"""

from __future__ import annotations

import getpass
import glob
import os
import socket
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asyncssh.config import SSHClientConfig, SSHConfig

from cockpit.base.shell import quote
from cockpit.transport import effective
from cockpit.transport.base import LinkError, NoLogin

_SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
_SYSTEM_KNOWN_HOSTS = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")

_ONLY_SSH = frozenset({"exec", "final"})
"""Conditions of Match that asyncssh evaluates otherwise than ssh: it expands no tokens in the command of
``exec``, and forgets before ``final`` what the first pass has found."""

_REFUSED = {
    "KnownHostsCommand": "it may revoke host keys",
    "ProxyUseFdpass": "such a ProxyCommand hands over a connection and does not carry it",
    "GSSAPIServerIdentity": "another server would be accepted",
    "GSSAPIClientIdentity": "another identity would be used",
    "RefuseConnection": "the configuration refuses this connection",
}
"""Keywords that cockpit cannot do as they say, and why it must not go on without."""


class _AskSsh(ValueError):
    """Only ssh itself can evaluate this configuration."""


class _Reader(SSHClientConfig):
    """asyncssh's reader, which also keeps the keywords that decide whom to trust."""

    # Done once all files are read: User or HostName may follow in the next one.
    _percent_expand = set()  # noqa: RUF012

    def _match_unless_ssh_must(self, option: str, args: list[str]) -> None:
        for word in args:
            if word.lstrip("!").lower() in _ONLY_SSH:
                raise _AskSsh(f"{self._path} line {self._line_no}: Match {word} cannot be evaluated here")
        self._match(option, args)

    def _include_in_order(self, option: str, args: list[str]) -> None:
        # asyncssh takes the files of a pattern in no order, and the first value counts.
        base = _SYSTEM_CONFIG.parent if self._path == _SYSTEM_CONFIG else Path.home() / ".ssh"
        found = [path for each in args for path in sorted(glob.glob(str(base / os.path.expanduser(each))))]
        args[:] = [glob.escape(path) for path in found]
        self._include(option, args)

    def _only_ssh_expands(self, option: str, args: list[str]) -> None:
        raise _AskSsh(f"{self._path} line {self._line_no}: {option} cannot be evaluated here")

    _handlers = {  # noqa: RUF012
        **SSHClientConfig._handlers,
        "match": ("Match", _match_unless_ssh_must),
        "include": ("Include", _include_in_order),
        **{
            name.lower(): (name, handler)
            for handler, names in (
                (SSHConfig._set_bool, ("BatchMode", "CheckHostIP", "HashKnownHosts", "ProxyUseFdpass")),
                (SSHConfig._set_int, ("RequiredRSASize", "NumberOfPasswordPrompts")),
                (SSHConfig._set_string, ("StrictHostKeyChecking", "RevokedHostKeys")),
                (SSHConfig._set_string, ("GSSAPIServerIdentity", "GSSAPIClientIdentity")),
                (SSHConfig._set_string_list, ("KnownHostsCommand", "RefuseConnection")),
                # Their patterns and their + and - refer to lists that only ssh has.
                (_only_ssh_expands, ("CASignatureAlgorithms", "PubkeyAcceptedAlgorithms")),
                (_only_ssh_expands, ("HostbasedAcceptedAlgorithms", "PubkeyAcceptedKeyTypes")),
                (_only_ssh_expands, ("HostbasedAcceptedKeyTypes", "HostbasedKeyTypes")),
            )
            for name in names
        },
    }

    def finished(self, values: dict[str, Any] | None = None) -> _Reader:
        """With all tokens known; ``values`` in place of what it has read."""
        if values is not None:
            self._options = values
        self._set_tokens()
        self._tokens["%"] = "%"
        self._tokens["k"] = str(self.get("HostKeyAlias") or self._orig_host)
        self._tokens["j"] = str(self.get("ProxyJump") or "")
        return self

    def names(self) -> list[str]:
        """Keywords that have a value, the first one first."""
        return list(self._options)

    def expanded(self, text: str) -> str:
        """A value with its tokens and variables expanded.

        :raises ValueError: unknown token or variable
        """
        return self._expand_val(text)

    def for_asyncssh(self) -> SSHClientConfig:
        """Only what asyncssh is to apply by itself, with ssh's defaults where its own are wider."""
        found = {name: self._options[name] for name in _APPLIED_BY_ASYNCSSH if name in self._options}
        found.setdefault("GSSAPIAuthentication", False)
        if "PubkeyAcceptedAlgorithms" in self._options:
            # What asyncssh calls CASignatureAlgorithms is what it signs logins with.
            found["CASignatureAlgorithms"] = self._options["PubkeyAcceptedAlgorithms"]
        self._options = found
        return self


_APPLIED_BY_ASYNCSSH = (
    *("Hostname", "HostKeyAlias", "Port", "User", "AddressFamily", "BindAddress", "TCPKeepAlive"),
    *("Ciphers", "MACs", "KexAlgorithms", "HostKeyAlgorithms", "Compression", "RekeyLimit"),
    *("GSSAPIAuthentication", "GSSAPIDelegateCredentials", "PubkeyAuthentication", "PKCS11Provider"),
    *("PasswordAuthentication", "KbdInteractiveAuthentication", "ChallengeResponseAuthentication"),
    *("HostbasedAuthentication", "IdentitiesOnly", "SendEnv", "SetEnv"),
)

_STRINGS = (
    *("User", "Hostname", "HostKeyAlias", "BindAddress", "ProxyCommand", "ProxyJump", "IdentityAgent"),
    *("Ciphers", "MACs", "KexAlgorithms", "HostKeyAlgorithms", "CASignatureAlgorithms", "PKCS11Provider"),
    *("PubkeyAcceptedAlgorithms", "HostbasedAcceptedAlgorithms", "PreferredAuthentications"),
    *("StrictHostKeyChecking", "RevokedHostKeys", "GSSAPIServerIdentity", "GSSAPIClientIdentity"),
    *("KnownHostsCommand", "RefuseConnection"),
)
_INTEGERS = ("Port", "RequiredRSASize", "NumberOfPasswordPrompts")
_FLAGS = (
    *("Compression", "TCPKeepAlive", "GSSAPIAuthentication", "GSSAPIDelegateCredentials"),
    *("PubkeyAuthentication", "HostbasedAuthentication", "IdentitiesOnly"),
    *("PasswordAuthentication", "KbdInteractiveAuthentication"),
    *("BatchMode", "CheckHostIP", "HashKnownHosts", "ProxyUseFdpass"),
)
_REPEATED = ("IdentityFile", "CertificateFile", "SetEnv")
_WORDS = ("UserKnownHostsFile", "GlobalKnownHostsFile", "SendEnv")
_FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}


@dataclass(frozen=True)
class Asked:
    """A host as it was named.

    :param user: empty: as configured; ``port`` None: as configured
    :param name: what messages call it
    """

    host: str
    user: str = ""
    port: int | None = None
    name: str = ""


@dataclass(frozen=True)
class HostConfig:
    """What the configuration says about one host; ``~``, tokens and variables are expanded.

    :param options: what asyncssh applies by itself
    :param host: the name or address to connect to
    :param jump: ProxyJump; empty: none
    :param identity_files: None: ssh's default ones; files may be missing
    :param agent: socket of the ssh agent, empty: none; None: the one of the environment
    :param methods: ways to log in, in order; None: all
    :param prompts: how often a person may be asked in one login; 0: never
    :param user_known_hosts: files, which may be missing; a new key goes into the first
    :param strict: ``yes`` (an unknown host key is refused), ``ask``, ``accept-new`` (it is kept)
    :param revoked: a file of host keys; empty: none
    :param rsa_bits: shorter RSA keys are refused
    :param authorities: signatures accepted on a host's certificate; None: ssh's default
    """

    options: SSHClientConfig
    host: str
    port: int
    user: str
    alias: str
    jump: str
    proxy_command: str
    identity_files: tuple[str, ...] | None
    certificate_files: tuple[str, ...]
    identities_only: bool
    agent: str | None
    methods: tuple[str, ...] | None
    prompts: int
    host_based: bool
    host_based_algorithms: tuple[str, ...] | None
    user_known_hosts: tuple[str, ...]
    global_known_hosts: tuple[str, ...]
    hash_known_hosts: bool
    check_ip: bool
    strict: str
    revoked: str
    rsa_bits: int
    authorities: tuple[str, ...] | None
    has_ciphers: bool


def read_config(asked: Asked, file: Path | None, limit_s: float) -> HostConfig:
    """What the configuration says about a host; may run ``ssh -G``, for ``limit_s`` seconds at most.

    :param file: in place of the user's and the system's configuration
    :raises LinkError: it cannot be read, or says what cockpit cannot do
    """
    try:
        reader = _read_files(asked, file)
    except ValueError as error:  # asyncssh.ConfigParseError and UnicodeDecodeError are ValueErrors
        reader = _ask_ssh(asked, file, limit_s, str(error))
    for keyword, why in _REFUSED.items():
        if value := reader.get(keyword):
            said = f" {' '.join(value)}" if isinstance(value, list) else ""
            raise NoLogin(
                f"ssh configuration: {keyword}{said}: {why}",
                where=asked.name,
                hint="use ssh itself: --transport openssh",
                refused=False,
            )
    try:
        return _host_config(reader, asked)
    except ValueError as error:
        raise _wrong(asked, str(error)) from None


def _wrong(asked: Asked, why: str, hint: str = "correct that line") -> LinkError:
    return LinkError(f"ssh configuration: {why}", where=asked.name, hint=hint, retry=False)


def _local_user(asked: Asked) -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # as in a container that runs with a number for a user
        what = f"this machine knows no name for your user id {os.geteuid()}"
        hint = "export USER=NAME, the name to log in with"
        raise LinkError(what, where=asked.name, hint=hint, retry=False) from None


def _new_reader(asked: Asked) -> _Reader:
    port = () if asked.port is None else asked.port
    # Empty tuples are asyncssh's "not given".
    local_user, user = _local_user(asked), asked.user or ()
    return _Reader(None, False, False, False, local_user, user, asked.host, port)  # type: ignore[arg-type]


def _read_files(asked: Asked, file: Path | None) -> _Reader:
    if file and not os.access(file, os.R_OK):
        what, hint = "ssh configuration cannot be read", f"check it: ls -l {quote(str(file))}"
        raise LinkError(what, where=str(file), retry=False, hint=hint)
    files = [file] if file else [Path.home() / ".ssh" / "config", _SYSTEM_CONFIG]
    reader = _new_reader(asked)
    try:
        for each in files:
            if os.access(each, os.R_OK):
                reader.parse(each)
    except OSError as error:
        raise _wrong(asked, f"{error.filename}: {error.strerror}", "make it readable") from None
    if reader.get("CanonicalizeHostname"):
        raise _AskSsh("CanonicalizeHostname cannot be evaluated here")
    return reader.finished()


def _ask_ssh(asked: Asked, file: Path | None, limit_s: float, why: str) -> _Reader:
    """What ``ssh -G`` says.

    :raises LinkError: there is no ssh, or it does not understand the configuration either
    """
    words = ["ssh", "-T", "-o", "RemoteCommand=none", *(["-F", str(file)] if file else [])]
    words += ["-l", asked.user] if asked.user else []
    words += ["-p", str(asked.port)] if asked.port is not None else []
    try:
        done = subprocess.run(
            effective.question(words, asked.host, "true"),  # a command: Match sessiontype is to say exec
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=limit_s,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        raise _wrong(asked, f"no answer from ssh -G for {limit_s:g} s", "does a Match exec hang?") from None
    except OSError:
        hint = "install ssh, which cockpit asks about such lines, or rewrite it"
        raise _wrong(asked, why, hint) from None
    out, err = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
    try:
        said = effective.answer(done.returncode, out, err, why)
    except ValueError as error:
        raise _wrong(asked, str(error)) from None
    return _new_reader(asked).finished(_values(said))


def _values(lines: Mapping[str, list[str]]) -> dict[str, Any]:
    """The answer of ``ssh -G`` as asyncssh would have read it."""

    def said(names: tuple[str, ...]) -> list[tuple[str, list[str]]]:
        return [(name, lines[name.lower()]) for name in names if name.lower() in lines]

    found: dict[str, Any] = {name: None if v[0] == "none" else v[0] for name, v in said(_STRINGS)}
    found |= {name: int(values[0]) for name, values in said(_INTEGERS)}
    found |= {name: values[0] not in ("no", "false") for name, values in said(_FLAGS)}
    found |= {name: [each for each in values if each != "none"] for name, values in said(_REPEATED)}
    for name, values in said(_WORDS):
        words = [word for value in values for word in value.split()]
        found[name] = [] if words == ["none"] else words
    family = lines.get("addressfamily", [""])[0]
    if family in _FAMILIES:
        found["AddressFamily"] = _FAMILIES[family]
    size, _, seconds = lines.get("rekeylimit", ["0 0"])[0].partition(" ")
    found["RekeyLimit"] = (() if size == "0" else size, () if seconds in ("", "0") else seconds)
    if str(found.get("Ciphers")).startswith("chacha20-poly1305@"):
        del found["Ciphers"]  # OpenSSH's own order: nobody has asked for it
    for keyword in ("KnownHostsCommand", "RefuseConnection"):
        if found.get(keyword):
            found[keyword] = [found[keyword]]
    return found


def _host_config(reader: _Reader, asked: Asked) -> HostConfig:
    """:raises ValueError: a token or a variable is unknown"""

    def text(name: str) -> str:
        return reader.expanded(str(reader.get(name) or ""))

    def path(value: str) -> str:
        return os.path.expanduser(reader.expanded(value))

    def paths(name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        value = reader.get(name)
        return tuple(path(each) for each in value) if isinstance(value, list) else default

    def words(name: str) -> tuple[str, ...] | None:
        value = reader.get(name)
        return tuple(str(value).split(",")) if value else None

    # Whichever comes first counts, ``none`` too.
    proxy = next((name for name in reader.names() if name in ("ProxyJump", "ProxyCommand")), "")
    own = str(Path.home() / ".ssh")
    strict = {"true": "yes", "yes": "yes", "accept-new": "accept-new"}
    return HostConfig(
        host=str(reader.get("Hostname") or asked.host),
        port=int(str(reader.get("Port") or 22)),
        user=str(reader.get("User") or _local_user(asked)),
        alias=str(reader.get("HostKeyAlias") or ""),
        jump=text("ProxyJump") if proxy == "ProxyJump" else "",
        proxy_command=text("ProxyCommand") if proxy == "ProxyCommand" else "",
        identity_files=paths("IdentityFile", ()) if "IdentityFile" in reader.names() else None,
        certificate_files=paths("CertificateFile", ()),
        identities_only=bool(reader.get("IdentitiesOnly")),
        agent=_agent(reader, path),
        methods=words("PreferredAuthentications"),
        prompts=0 if reader.get("BatchMode") else int(str(reader.get("NumberOfPasswordPrompts", 3))),
        host_based=bool(reader.get("HostbasedAuthentication")),
        host_based_algorithms=words("HostbasedAcceptedAlgorithms"),
        user_known_hosts=paths("UserKnownHostsFile", (f"{own}/known_hosts", f"{own}/known_hosts2")),
        global_known_hosts=paths("GlobalKnownHostsFile", _SYSTEM_KNOWN_HOSTS),
        hash_known_hosts=bool(reader.get("HashKnownHosts")),
        check_ip=bool(reader.get("CheckHostIP")),
        strict=strict.get(str(reader.get("StrictHostKeyChecking")).lower(), "ask"),
        revoked=path(str(reader.get("RevokedHostKeys") or "")),
        rsa_bits=int(str(reader.get("RequiredRSASize") or 1024)),
        authorities=words("CASignatureAlgorithms"),
        has_ciphers=bool(reader.get("Ciphers")),
        options=reader.for_asyncssh(),
    )


def _agent(reader: _Reader, path: Callable[[str], str]) -> str | None:
    if "IdentityAgent" not in reader.names():
        return None
    value = str(reader.get("IdentityAgent") or "")
    if value == "SSH_AUTH_SOCK":
        return None
    return os.environ.get(value[1:], "") if value[:1] == "$" and value[1:2] != "{" else path(value)
