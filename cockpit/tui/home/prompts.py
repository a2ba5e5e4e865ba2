"""What the home screen asks to be typed."""

from __future__ import annotations

from collections.abc import Sequence

from cockpit.transport.login_prompts import Prompt


class Wanted:
    """Some things to type, for :class:`cockpit.tui.panes.login.LoginDialog`.

    :param title: the question in a few words
    :param lines: what it is about
    :param names: what is to be typed, one field each
    :param does: what enter does at the end
    :param echo: whether they may be seen
    """

    hop = ""
    told: tuple[str, ...] = ()

    def __init__(
        self, title: str, lines: Sequence[str], names: Sequence[str], does: str, *, echo: bool = False
    ) -> None:
        self.title = title
        self.does = does
        self.prompts = tuple(Prompt(name, echo) for name in names)
        self._lines = list(lines)

    def about(self) -> list[str]:
        """What it is about."""
        return self._lines
