"""What a person wants of the home screen: a command of cockpit, which takes the terminal until it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Wish:
    """A command.

    :param words: what follows ``cockpit``
    :param cwd: the folder to run it in; empty: this one
    :param env: variables to set for it
    :param prints: whether it prints what a person should have time to read
    """

    words: Sequence[str]
    cwd: str = ""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    prints: bool = False
