"""Which variables from this shell, files and options go to the ranks.

Later wins: this shell's variables with one of DeepSpeed's prefixes, ``.deepspeed_env`` (of the home folder,
then of the working directory), ``--env-file``, ``--env``. The facts are those of DeepSpeed 0.19.8
(``launcher/runner.py``), which itself sends none of this with ``--no_ssh``, and whose ``export NAME="VALUE"``
the shell of each node expands.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cockpit.base import secret
from cockpit.errors import CockpitError, ManyErrors
from cockpit.plans.launch import HELD
from cockpit.plans.nodes.hostfile import lines

PREFIXES = ("MLFLOW", "PYTHON", "MV2", "UCX", "NCCL")
"""``EXPORT_ENVS`` and what the CUDA accelerator adds."""
_AISC = ("NCCL_IB_HCA", "UCX_NET_DEVICES")
# Set by each shell for itself.
_OWN = {"_", "SHLVL", "PWD", "OLDPWD"}

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# Bash refuses to set some of these, and gives the others values of its own.
_BASH = """
    BASHOPTS BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND
    BASH_EXECUTION_STRING BASH_LINENO BASH_REMATCH BASH_SOURCE BASH_SUBSHELL BASH_VERSINFO
    COMP_WORDBREAKS DIRSTACK EPOCHREALTIME EPOCHSECONDS EUID FUNCNAME GROUPS HISTCMD LINENO OPTIND
    PIPESTATUS PPID RANDOM SECONDS SHELLOPTS SHLVL SRANDOM UID _
"""


LONGEST = 128 << 10
"""Bytes of ``NAME=VALUE`` with its end: Linux starts no program with a longer one (``MAX_ARG_STRLEN``)."""

# What a node's shell expands: $NAME, ${NAME}, ${NAME:-plain text} and the like; a backslash keeps a $.
_REFERENCE = re.compile(r"(\\[$\\])|\$([A-Za-z_]\w*)|\$\{([A-Za-z_]\w*)(:?[-+][^{}$`\"\\]*)?\}", re.ASCII)
_COMMAND = re.compile(r"(?<!\\)(?:\$\(|`)")

_LOGIN = {"HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "LANGUAGE", "TERM", "TMPDIR", "TZ", "MAIL"}
_LOGIN_PREFIXES = ("LC_", "XDG_", "SLURM")
"""What a login on each node, or its job, sets by itself."""


@dataclass(frozen=True)
class Environment:
    """Variables for the ranks.

    :param secrets: names of those whose values are never shown
    :param expanded: names of those in whose values each node's shell replaces ``$NAME``, in their order
    """

    values: Mapping[str, str] = field(repr=False)
    secrets: frozenset[str] = frozenset()
    expanded: tuple[str, ...] = ()


def deepspeed_env_paths(environ: Mapping[str, str], home: str, cwd: str) -> tuple[str, ...]:
    """Where to look for ``.deepspeed_env``, in reading order; ``DS_ENV_FILE`` gives another name."""
    name = environ.get("DS_ENV_FILE", ".deepspeed_env")
    paths = (os.path.join(folder, name) for folder in (home, cwd))
    return tuple(dict.fromkeys(paths))


def parse_file(text: str, where: str, refers: dict[str, bool] | None = None) -> dict[str, str]:
    """``NAME=VALUE`` lines, optionally after ``export``; blank lines and ``#`` comments are skipped.

    The value is what follows the first ``=``, without white space around it and without one pair of quotes
    around it; nothing in it is expanded here.

    :param refers: is told of each name whether its value has references that a node's shell expands, as
        it does for DeepSpeed; None: nobody expands them
    :raises ManyErrors: every bad line as ``file:line: …``
    """
    values: dict[str, str] = {}
    errors: list[CockpitError] = []
    for number, line in lines(text):
        name, found, value = re.sub(r"^export\s+", "", line).partition("=")
        name, value = name.rstrip(), value.strip()
        quoted = value[0] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else ""
        value = value[1:-1] if quoted else value
        try:
            if not found:
                raise CockpitError("no `=` in this line", hint="write NAME=VALUE")
            _check(name, value)
            if refers is not None:
                refers.pop(name, None)
                refers[name] = quoted != "'" and not secret.is_secret(name) and _refers(name, value)
            values[name] = value
        except CockpitError as error:
            errors.append(CockpitError(error.what, where=f"{where}:{number}", hint=error.hint))
    if errors:
        raise ManyErrors(errors)
    return values


def _refers(name: str, value: str) -> bool:
    """Whether a node's shell has something to expand in a value.

    :raises CockpitError: a command, which DeepSpeed would run there
    """
    if _COMMAND.search(value):
        hint = f"set it by --setup 'export {name}=…', or write it in single quotes if it is to stay as it is"
        raise CockpitError(f"the value of {name} has a command, which is not run", hint=hint)
    return _REFERENCE.search(value) is not None


def expandable(value: str) -> str:
    """A value with references as a word of a shell: they are expanded, and nothing else is."""
    pieces: list[str] = []
    at = 0
    for found in _REFERENCE.finditer(value):
        name, more = found[2] or found[3], found[4] or "-"
        word = "${" + name + more + "}" if name else found[1]
        pieces += [_literal(value[at : found.start()]), word]
        at = found.end()
    return '"' + "".join([*pieces, _literal(value[at:])]) + '"'


def _literal(text: str) -> str:
    return re.sub(r'[\\"$`]', r"\\\g<0>", text)


def gather(
    environ: Mapping[str, str],
    files: Iterable[tuple[str, str]] = (),
    options: Sequence[str] = (),
    deepspeed: Iterable[tuple[str, str]] = (),
) -> Environment:
    """All variables for the ranks.

    :param environ: this shell's
    :param files: (name, text) of ``--env-file``, in this order
    :param deepspeed: of the existing ``.deepspeed_env`` files, which come before
    :param options: values of ``--env``: ``NAME=VALUE``, or ``NAME`` for this shell's value
    :raises ManyErrors: every bad line and option
    """
    left_out = _AISC if "AISC_JOB_NAME" in environ else ()
    values = {"PYTHONUNBUFFERED": "1"} | {
        name: value
        for name, value in environ.items()
        if name.startswith(PREFIXES) and name not in left_out and _NAME.match(name)
    }
    errors: list[CockpitError] = []
    refers: dict[str, bool] = {}
    for where, text in deepspeed:
        try:
            values.update(parse_file(text, where, refers))
        except ManyErrors as error:
            errors += error.errors
    for where, text in files:
        try:
            found = parse_file(text, where)
            values.update(found)
            refers.update(dict.fromkeys(found, False))
        except ManyErrors as error:
            errors += error.errors
    for option in options:
        try:
            name, value = _option(option, environ)
            values[name], refers[name] = value, False
        except CockpitError as error:
            errors.append(CockpitError(error.what, where="--env", hint=error.hint))
    if errors:
        raise ManyErrors(errors)
    expanded = tuple(name for name, does in refers.items() if does)
    known = secret.values(values)
    secrets = frozenset(
        name
        for name, value in values.items()
        if secret.is_secret(name)
        # What stands for a value that the node's shell has is none.
        or (secret.in_shell(value) if name in expanded else secret.holds(name, value, known))
    )
    return Environment(values, secrets, expanded)


NCCL_TALKS = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,NET,GRAPH,ENV"}
"""What makes NCCL say what it takes. Versions before 2.23 pass over the name BOOTSTRAP: there INIT has it."""


def with_nccl(env: Environment) -> Environment:
    """The variables, and those that make NCCL say what it takes, unless they are set to something."""
    return replace(env, values={**NCCL_TALKS, **env.values})


def nccl_kept(env: Environment) -> str:
    """What of the variables keeps NCCL's words from where they are read, in a sentence; empty: nothing."""
    if "NCCL_DEBUG_FILE" in env.values:
        return "--nccl-debug: NCCL writes to your NCCL_DEBUG_FILE, which cockpit does not read"
    level = env.values.get("NCCL_DEBUG", "INFO")
    if level.upper() not in ("INFO", "TRACE"):
        return f"--nccl-debug: your NCCL_DEBUG={level} is below INFO, so NCCL's choices are not logged"
    return ""


def held(words: Sequence[str], env: Environment) -> Environment:
    """The variables, and more of them for the secrets in a command line that none of them is."""
    taken: list[str] = []
    secret.command(words, (), taken)
    known = {env.values[name] for name in env.secrets}
    more = {
        f"{HELD}{number}": value
        for number, value in enumerate(dict.fromkeys(each for each in taken if each not in known), 1)
    }
    return replace(env, values={**env.values, **more}, secrets=env.secrets | more.keys())


def _option(option: str, environ: Mapping[str, str]) -> tuple[str, str]:
    name, found, value = option.partition("=")
    if not found:
        _check(name, "")
        if name not in environ:
            raise CockpitError(
                f"{name} is not set in this shell", hint=f"set and export it, or write {name}=VALUE"
            )
        value = environ[name]
    _check(name, value)
    return name, value


def is_variable(name: object) -> bool:
    """Whether it is a valid name for a shell variable."""
    return isinstance(name, str) and _NAME.match(name) is not None


def _check(name: str, value: str) -> None:
    if not is_variable(name):
        what = f"{name[:60]!a} is not a valid variable name"
        raise CockpitError(what, hint="names have letters, digits and _, and do not start with a digit")
    if name.startswith("COCKPIT_"):
        raise CockpitError(f"{name} is cockpit's own", hint="leave it out")
    if name in _BASH.split():
        raise CockpitError(f"{name} belongs to the shell", hint="leave it out, or set it in the program")
    if "\0" in value:
        raise CockpitError(
            f"the value of {name} contains a NUL byte", hint="remove it: no program can receive one"
        )
    if (bytes_ := len(os.fsencode(f"{name}={value}")) + 1) > LONGEST:
        what = f"{name} has {bytes_:,} bytes, and Linux allows at most {LONGEST:,}"
        raise CockpitError(what, hint="write it into a file, and give its path")


def conda(environ: Mapping[str, str]) -> str:
    """The path of this shell's conda, or empty; a setup uses it on a node where it finds no conda."""
    return environ.get("CONDA_EXE") or shutil.which("conda", path=environ.get("PATH", "")) or ""


def unlike_elsewhere(environ: Mapping[str, str], env: Mapping[str, str]) -> list[str]:
    """Names of this shell's variables that ranks on this machine would have, and those elsewhere not."""
    return [n for n in not_sent(environ, env) if n not in _LOGIN and not n.startswith(_LOGIN_PREFIXES)]


def not_sent(environ: Mapping[str, str], env: Mapping[str, str]) -> list[str]:
    """Names of this shell's variables that the ranks do not get, sorted."""
    return sorted(name for name in environ if name not in env and name not in _OWN)
