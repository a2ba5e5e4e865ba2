"""A row of the table: the signs of one failure, what it means and what to type, in English and Chinese."""

from __future__ import annotations

from dataclasses import dataclass

from cockpit.core.finding import Step

FACTS = frozenset(
    {"SIGKILL", "SIGBUS", "SIGSEGV", "SIGABRT", "SIGILL", "SIGFPE", "SIGHUP", "oom", "no-oom", "silent"}
)
"""What may be recorded of an end: its signal; the kernel's OOM killer did, or did not, kill in its cgroup
while it ran; the log says nothing of its end."""


@dataclass(frozen=True)
class Next:
    """What to do.

    :param command: what to type; empty: the reason says all
    :param reason: what it is for
    :param zh: the same in Chinese
    """

    command: str
    reason: str
    zh: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """How to know one failure, and what to say of it.

    :param id: its name, for programs: words with dashes
    :param signs: expressions, each found in one line of a log without its prefix. Each needs a text of three
        characters, see :class:`~cockpit.core.logs.search.Rows`
    :param but: an expression; a line with it is none of these
    :param ends: what must be recorded of an end, words of :data:`FACTS`; with signs, both must hold
    :param checks: findings of the doctor, of NCCL's words and of a run's watch that are this, by their id;
        with a second word, of several things that such a finding may be about only that one
    :param means: what happened, in one sentence
    :param zh: the same in Chinese
    :param next: what to do, the most likely to help first
    :param severity: ``error``: it may be why a rank ended; ``warning``, ``info``: it is not, and is said
        beside it
    :param source: the thread or the source file where it is known from
    :param deep: looser signs, which count where nothing but torch speaks, as in ``doctor --deep``; small
        letters match capitals too
    """

    id: str
    means: str
    zh: str
    next: tuple[Next, ...]
    source: str
    signs: tuple[str, ...] = ()
    but: str = ""
    ends: frozenset[str] = frozenset()
    checks: frozenset[str] = frozenset()
    deep: tuple[str, ...] = ()
    severity: str = "error"

    def meaning(self, lang: str = "en") -> str:
        """What happened, in a language: ``en`` or ``zh``."""
        return self.zh if lang == "zh" else self.means

    def steps(self, lang: str = "en") -> tuple[Step, ...]:
        """What to do, in a language."""
        return tuple(Step(one.command, one.zh if lang == "zh" else one.reason) for one in self.next)
