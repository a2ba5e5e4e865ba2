"""Pieces of argument parsing that several verbs share."""

from __future__ import annotations

import argparse
import os
import re
import sys
import textwrap
from collections.abc import Callable, Sequence, Set
from typing import Any, NoReturn

from cockpit import paths
from cockpit.cli.output import out_lines, say
from cockpit.errors import CockpitError, Exit, near, near_or_all
from cockpit.slurm import own_job
from cockpit.transport.base import Reach
from cockpit.transport.registry import TRANSPORTS

WORDS = "'WORDS'"
"""The metavar of options whose value is words for another program: they may begin with a dash."""

HELP_ALL = "--help-all"
"""The option that shows every option of a verb."""

GIVE_UP = (
    "seconds to wait for unreachable nodes after all others have ended (default: 600; the app keeps waiting)"
)
"""What ``--give-up`` is for."""


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps line breaks, and wraps longer lines; of an example only what it is for."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return wrapped(text, width)


def wrapped(text: str, width: int) -> str:
    """A text with its longer lines wrapped; of an example only what it is for."""
    lines = []
    # What was broken within a sentence, for more columns than there are, is one line again.
    for line in re.sub(rf"(?m)^(\S.{{{width},}}(?<![.:]))\n(?=\S)", r"\1 ", text).splitlines():
        example = re.match(r"  .*\S {2,}(?=\S)", line)
        if len(line) <= width or (line.startswith("  ") and not example):
            lines.append(line)
            continue
        head = example[0] if example else ""
        rest = textwrap.wrap(line[len(head) :], max(20, width - len(head)), break_long_words=False)
        lines += [head + rest[0], *(" " * len(head) + more for more in rest[1:])]
    return "\n".join(lines)


class _Help(argparse.Action):
    """Prints the help, and ends; ``--help`` the options that are used most."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        text = parser.format_help() if option_string == HELP_ALL else parser.brief()
        out_lines(text.rstrip("\n").split("\n"))
        parser.exit()


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line and exit 2, and whose help keeps line breaks.

    :param usual: the options that are used most, by their long names; empty: ``--help`` shows all
    """

    def __init__(self, verb: str, description: str, epilog: str = "", usual: str = "") -> None:
        super().__init__(
            prog=f"cockpit {verb}",
            description=description,
            epilog=epilog,
            formatter_class=_Formatter,
            allow_abbrev=False,
            add_help=False,
        )
        self._usual = usual.split()
        text = "show the options used most, and examples" if usual else "show this help"
        self.add_argument("-h", "--help", action=_Help, nargs=0, help=text)
        text = "show all options" if usual else argparse.SUPPRESS
        self.add_argument(HELP_ALL, action=_Help, nargs=0, help=text)

    def brief(self) -> str:
        """The help with the options that are used most, and the examples with no others."""
        shown = {"--help", HELP_ALL, *self._usual}
        hidden: set[str] = set()
        for action in self._actions if self._usual else ():
            if action.option_strings and not shown.intersection(action.option_strings):
                action.help = argparse.SUPPRESS
                hidden.update(action.option_strings)
        self.epilog = _without(hidden, self.epilog or "")
        for group in self._action_groups:
            if all(action.help == argparse.SUPPRESS for action in group._group_actions):
                group.description = None
        return self.format_help()

    def parse_known_args(self, args: Sequence[str], namespace: Any = None) -> Any:  # type: ignore[override]
        """See :meth:`argparse.ArgumentParser.parse_known_args`."""
        return super().parse_known_args(self._joined(args), namespace)

    def parse_args(self, args: Sequence[str], namespace: Any = None) -> Any:  # type: ignore[override]
        """See :meth:`argparse.ArgumentParser.parse_args`."""
        found, odd = self.parse_known_args(args, namespace)
        if odd:
            self.refuse(odd[0])
        return found

    def refuse(self, word: str) -> NoReturn:
        """Say that a word is unknown, and end with exit code 2."""
        option = word.partition("=")[0]
        if option.startswith("-"):
            self.error(f"no option {option!r}", near(option, self._option_string_actions))
        self.error(f"unexpected argument {word!r}")

    def _joined(self, words: Sequence[str]) -> list[str]:
        """``--opt -x`` as ``--opt=-x`` if it takes words for another program, which no option of ours is."""
        worded = {name for name, one in self._option_string_actions.items() if one.metavar == WORDS}
        joined: list[str] = []
        for word in words:
            if joined and joined[-1] in worded and word not in self._option_string_actions:
                joined[-1] += f"={word}"
            else:
                joined.append(word)
        return joined

    def error(self, message: str, meant: str = "") -> NoReturn:
        """Say what is wrong with the words, and what may have been meant, and end with exit code 2."""
        choice = re.search(r"invalid choice: '?([^' ]*)'? \(choose from (.*)\)", message)
        if choice:
            meant = near(choice[1], re.findall(r"[\w-]+", choice[2]))
        say(f"{message}; {f'did you mean: {meant}' if meant else f'see: {self.prog} --help'}")
        sys.exit(Exit.USAGE)


def _without(options: Set[str], text: str) -> str:
    """A text without the examples that have one of these options, and what is said of them."""
    lines: list[str] = []
    drops = False
    for line in text.split("\n"):
        if line.startswith("  ") and not line.startswith("     "):
            drops = not options.isdisjoint(line.partition(" -- ")[0].split())
        elif not line.startswith(" "):
            drops = False
        if not drops:
            lines.append(line)
    return "\n".join(lines)


def split_program(words: list[str]) -> tuple[list[str], list[str]]:
    """Options before the first ``--``, the program and its arguments after it."""
    if "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


def add_link_options(parser: argparse.ArgumentParser, job: str = "JOBID") -> None:
    """How to reach nodes.

    :param job: what ``--slurm`` takes
    """
    group = parser.add_argument_group(
        "links", "If a server accepts no key, cockpit asks for its password or code."
    )
    group.add_argument(
        "--transport",
        choices=tuple(TRANSPORTS),
        default="auto",
        help="auto: srun with --slurm, or for nodes without sshd that your job holds; kubectl for pods; this "
        "machine directly; all others over ssh; openssh: your own ssh program",
    )
    add_word(group, "-F --ssh-config", "FILE", "ssh config file to use instead of ~/.ssh/config")
    add_flag(
        group,
        "--accept-new-host-keys",
        "add unknown host keys to known_hosts without asking; changed keys are still refused",
    )
    group.add_argument(
        "--slurm",
        metavar=job,
        nargs="?",
        const="",
        help="the nodes of a SLURM job, reached by job steps (default JOBID: the job this shell is in)",
    )
    add_word(
        group,
        "--srun-args",
        "'WORDS'",
        "with --slurm: more options for each srun, such as --container-image IMAGE",
    )
    add_word(
        group,
        "--k8s",
        "SELECTOR|KIND/NAME",
        "the pods of a Kubernetes job (job/train, pytorchjob/train, app=train), reached by kubectl exec; "
        ":CONTAINER at its end says which container",
    )
    add_word(group, "-n --namespace", "NAMESPACE", "the pods' namespace (default: as kubectl)")
    add_word(group, "--context", "CONTEXT", "context of your kubeconfig (default: as kubectl)")


def reach(args: argparse.Namespace) -> Reach:
    """How the options want nodes to be reached.

    :raises CockpitError: they contradict each other
    """
    if args.transport == "kubectl" or args.k8s or _pods(args):
        return _by_kubectl(args)
    if args.namespace or args.context:
        what = "-n" if args.namespace else "--context"
        raise CockpitError(f"{what} is for pods", hint="add --k8s KIND/NAME, or name them: -w pod/NAME")
    if args.transport == "srun" or (args.transport == "auto" and args.slurm is not None):
        from cockpit.plans.nodes import slurm  # every other way saves its time
        from cockpit.transport.srun import more_words

        options = {"job": slurm.number(args.slurm or own_job()), "args": args.srun_args}
        more_words(options)
        return Reach("srun", {name: value for name, value in options.items() if value})
    if args.srun_args:
        raise CockpitError("--srun-args is for nodes that srun reaches", hint="add --slurm JOBID")
    config = args.ssh_config and os.path.abspath(args.ssh_config)
    options = {"config": config, "accept_new": "yes" if args.accept_new_host_keys else ""}
    return Reach(args.transport, {name: value for name, value in options.items() if value})


def _pods(args: argparse.Namespace) -> bool:
    """Whether ``-w`` names pods."""
    from cockpit.plans.nodes.hostfile import POD

    return any(word.startswith(POD) for word in getattr(args, "nodelist", ()))


def _by_kubectl(args: argparse.Namespace) -> Reach:
    if args.transport not in ("auto", "kubectl"):
        raise CockpitError(
            f"pods are reached by kubectl, not by --transport {args.transport}", hint="leave that out"
        )
    if args.slurm is not None:
        raise CockpitError("--slurm names no pods", hint="leave out either --slurm or the pods")
    options = {"context": args.context, "namespace": args.namespace, "pods": args.k8s}
    from cockpit.kube.kubectl_queries import Cluster

    Cluster.of(options)
    return Reach("kubectl", {name: value for name, value in options.items() if value})


def add_flag(group: argparse._ActionsContainer, options: str, text: str) -> None:
    """An option without a value; its names are apart by blanks."""
    group.add_argument(*options.split(), action="store_true", help=text)


def add_word(
    group: argparse._ActionsContainer, options: str, shape: str, text: str, default: str | None = ""
) -> None:
    """An option with any word as its value; its names are apart by blanks.

    :param shape: what stands for the value in the help
    """
    group.add_argument(*options.split(), metavar=shape, default=default, help=text)


def add_seconds(group: argparse._ActionsContainer, option: str, default: float | None, text: str) -> None:
    """An option that takes a number of seconds, not negative."""
    group.add_argument(option, type=seconds, default=default, metavar="S", help=text)


def theme(text: str) -> str:
    """The name of a theme that is there."""
    names = paths.theme_names()
    if text not in names:
        raise argparse.ArgumentTypeError(f"no theme {text!r}, {near_or_all(text, names)}")
    return text


def add_theme(group: argparse._ActionsContainer) -> None:
    """In which theme the app is drawn."""
    text = "draw the app in this theme (default: that of your settings); cockpit help themes"
    group.add_argument("--theme", type=theme, metavar="NAME", help=text)


def whole(what: str, least: int = 0, most: int | None = None) -> Callable[[str], int]:
    """Reads whole numbers from the command line, as the ``type`` of an option.

    :param what: what they are, for errors: ``a port``
    """
    bounds = f" ({least} to {most})" if most is not None else f" ({least} or more)" if least else ""

    def read(text: str) -> int:
        if text.isascii() and text.isdigit() and len(text) < 16 and least <= int(text) <= (most or int(text)):
            return int(text)
        wrong = "out of range" if text.isascii() and text.isdigit() else f"not {what}"
        raise argparse.ArgumentTypeError(f"{wrong}: {text!r}{bounds}")

    return read


def seconds(text: str) -> float:
    """A number of seconds from the command line, not negative.

    :raises argparse.ArgumentTypeError: it is not
    """
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"not a number of seconds: {text!r}")
    return value


def rank_set(text: str) -> frozenset[int]:
    """A rank set from the command line, like ``0-3,7``.

    :raises argparse.ArgumentTypeError: it is not one
    """
    from cockpit.core.ranks import read_ranks  # other verbs save 30 ms

    try:
        return read_ranks(text)
    except CockpitError as error:
        raise argparse.ArgumentTypeError(error.what) from None


_AGES = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


def age(text: str) -> float:
    """Seconds from the command line, like ``30d``, ``12h``, ``90m``.

    :raises argparse.ArgumentTypeError: it is no such length of time
    """
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhdw])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"not a length of time: {text!r} (like 30d, 12h, 90m)")
    return float(found[1]) * _AGES[found[2]]


def byte_count(text: str) -> int:
    """Bytes from the command line, like ``500M``, ``1.5G``, ``2GiB``.

    :raises argparse.ArgumentTypeError: it is no such size
    """
    found = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,3})?)(?:([KMGT])(i?B)?|B)?", text, re.IGNORECASE)
    if found is None:
        raise argparse.ArgumentTypeError(f"not a size: {text!r} (like 500M, 1.5G, 2GiB)")
    power = "KMGT".index(found[2].upper()) + 1 if found[2] else 0
    return int(float(found[1]) * (1024 if (found[3] or "").lower() == "ib" else 1000) ** power)
