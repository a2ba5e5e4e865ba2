"""``cockpit completion``: completion of command lines, for a shell."""

from __future__ import annotations

import argparse
from pathlib import Path

from cockpit.cli.output import out_lines
from cockpit.cli.parsing import Parser
from cockpit.errors import Exit

_SCRIPTS = Path(__file__).parents[1] / "completions"
SHELLS = ("bash", "zsh", "fish")


def parser() -> Parser:
    """Its options."""
    made = Parser(
        "completion",
        "Print a script that completes verbs, options, runs, nodes and ranks.",
        "bash, in ~/.bashrc:                    source <(cockpit completion bash)\n"
        "zsh, in ~/.zshrc, after compinit:      source <(cockpit completion zsh)\n"
        "fish, in ~/.config/fish/config.fish:   cockpit completion fish | source",
    )
    made.add_argument("shell", metavar="SHELL", nargs="?", choices=SHELLS, help=", ".join(SHELLS))
    made.add_argument("--words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return made


def main(words: list[str]) -> int:
    """Print the script; or, for the script, what may come next."""
    if words[:2] == ["--words", "--"]:
        from cockpit.cli.completing import candidates
        from cockpit.cli.main import VERBS

        out_lines(f"{word} {text}" if text else word for word, text in candidates(words[2:], VERBS))
        return Exit.OK
    made = parser()
    shell = made.parse_args(words).shell
    if shell is None:
        made.error("give a SHELL")
    out_lines((_SCRIPTS / f"cockpit.{shell}").read_text(encoding="utf-8").rstrip("\n").split("\n"))
    return Exit.OK
